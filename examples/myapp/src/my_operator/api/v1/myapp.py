# Copyright 2026
# SPDX-License-Identifier: Apache-2.0

"""API types of MyApp in example.com/v1."""

from __future__ import annotations

import json
from hashlib import sha256
from typing import Annotated, Literal

from steersman import (
    Field,
    FrozenDict,
    FrozenStruct,
    PrinterColumn,
    Quantity,
    Resource,
    Rule,
    Scale,
    Spec,
    Status,
    resource,
)

Phase = Literal["Pending", "Migrating", "RollingOut", "Ready", "RolledBack", "Failed"]

# Both an image tag and a label value.
VERSION = "^[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$"
REPOSITORY = "^[a-z0-9]([-a-z0-9._]*[a-z0-9])?(:[0-9]+)?(/[a-z0-9]([-a-z0-9._]*[a-z0-9])?)*$"


class MyAppDatabase(FrozenStruct):
    """The database of an application."""

    enabled: bool = False
    """Creates a Database of the same name. Its data are retained after a change to `false`."""
    storage: Annotated[
        Quantity,
        Field(
            rules=(
                Rule(
                    rule="quantity(string(self)).compareTo(quantity(string(oldSelf))) >= 0",
                    message="storage can grow but never shrink: volumes cannot be made smaller",
                ),
                Rule(
                    rule="quantity(string(self)).isGreaterThan(quantity('0'))",
                    message="storage must be more than 0, such as 1Gi",
                ),
            )
        ),
    ] = Quantity("1Gi")
    """Size of the volume for the data. It can grow if the storage class allows expansion. It cannot shrink."""


class MyAppSpec(Spec):
    """Desired state of a MyApp."""

    version: Annotated[str, Field(pattern=VERSION)]
    """Version to run: the tag of the image. With a database, a change runs the migration of the new version first. If
    the migration or the rollout fails, the previous release keeps running until another one is set."""
    config: Annotated[
        FrozenDict[str, Annotated[str, Field(max_length=4096)]],
        Field(
            max_properties=64,
            rules=(
                Rule(
                    rule="self.all(name, name.matches('^[A-Z_][A-Z0-9_]*$') && name != 'DATABASE_URL')",
                    message="settings are named like environment variables, such as LOG_LEVEL, but not DATABASE_URL",
                ),
            ),
        ),
    ] = FrozenDict()
    """Settings of the application and of its migrations, as environment variables. Version and settings together are
    a release: a change of settings rolls out and rolls back like a change of the version. For passwords use a Secret,
    not this field."""
    replicas: Annotated[int, Field(ge=0, le=1000, format="int32")] = 1
    """Number of pods. Omit it with an autoscaler."""
    image: Annotated[str, Field(min_length=1, max_length=255, pattern=REPOSITORY)] = "example.com/myapp"
    """Image without tag: pods run `image:version`. The image serves HTTP on port 8080 with /livez and /readyz. Its
    argument `migrate` migrates the database in $DATABASE_URL. Migrations must be idempotent, also on a database that
    a newer version has migrated."""
    database: MyAppDatabase = MyAppDatabase()
    """The PostgreSQL database of the application."""
    rollout_deadline_seconds: Annotated[int, Field(ge=1, le=86400, format="int32")] = 120
    """Time without progress after which a rollout has failed, in seconds."""
    migration_deadline_seconds: Annotated[int, Field(ge=1, le=86400, format="int32")] = 600
    """Time after which a migration has failed, in seconds."""


class Release(FrozenStruct):
    """An image with its settings, which roll out and roll back together."""

    image: str
    """Image with its tag."""
    config: str = ""
    """Name of the ConfigMap with the settings; empty without settings."""

    @property
    def version(self) -> str:
        """The tag of the image."""
        return self.image.rpartition(":")[2]


class Migration(FrozenStruct):
    """A successful migration."""

    image: str
    """Image with its tag."""
    database: str
    """UID of the migrated Database."""


class Failure(FrozenStruct):
    """A release that failed. It is not retried until another one was set."""

    release: Release
    """The release."""
    reason: Literal["MigrationFailed", "RolloutFailed"]
    """Failed step."""
    message: str
    """Message of the Job or the Deployment."""


class MyAppStatus(Status):
    """Observed state of a MyApp."""

    phase: Phase | None = None
    """Current phase. Pending waits for the database. RolledBack runs the previous version. Failed has none to run."""
    replicas: int = 0
    """Number of pods."""
    ready_replicas: int = 0
    """Number of ready pods."""
    selector: str | None = None
    """Label selector of the pods, for autoscalers."""
    version: str | None = None
    """Version of the last complete rollout, and the target of rollbacks."""
    release: Release | None = None
    """Image and settings of that version."""
    failed: Failure | None = None
    """Failure of the desired release."""
    migrated: Migration | None = None
    """The last successful migration."""


@resource(
    group="example.com",
    version="v1",
    short_names=["ma"],
    categories=["all"],
    scale=Scale(".spec.replicas", ".status.replicas", ".status.selector"),
    columns=[
        PrinterColumn("Wanted", ".spec.version"),
        PrinterColumn("Version", ".status.version"),
        PrinterColumn("Phase", ".status.phase"),
        PrinterColumn("Ready", ".status.readyReplicas", "integer"),
        PrinterColumn("Replicas", ".spec.replicas", "integer"),
        PrinterColumn("Reason", '.status.conditions[?(@.type=="Ready")].reason', priority=1),
        PrinterColumn("Message", '.status.conditions[?(@.type=="Ready")].message', priority=1),
    ],
    rules=[
        Rule(
            rule="self.metadata.name.matches('^[a-z]([-a-z0-9]{0,43}[a-z0-9])?$')",
            message="metadata.name must be at most 45 lower-case letters, digits and '-', starting with a letter: "
            "the Service and the Database have the same name",
        ),
    ],
)
class MyApp(Resource[MyAppSpec, MyAppStatus]):
    """A MyApp runs a web application with an optional database."""

    @property
    def image(self) -> str:
        """The desired image with its tag."""
        return f"{self.spec.image}:{self.spec.version}"

    @property
    def release(self) -> Release:
        """The desired release. The name of its ConfigMap depends on the content only."""
        if not self.spec.config:
            return Release(image=self.image)
        digest = sha256(json.dumps(self.spec.config, sort_keys=True).encode()).hexdigest()[:10]
        return Release(image=self.image, config=f"{self.metadata.name}-config-{digest}")
