# Copyright 2026
# SPDX-License-Identifier: Apache-2.0

"""API types of MyApp in example.com/v1."""

from __future__ import annotations

from typing import Annotated, Literal

from steersman import Field, FrozenStruct, PrinterColumn, Quantity, Resource, Rule, Scale, Spec, Status, resource

Phase = Literal["Pending", "Migrating", "RollingOut", "Ready", "RolledBack", "Failed"]

# A tag of an image that is also the value of a label.
VERSION = "^[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$"
REPOSITORY = "^[a-z0-9]([-a-z0-9._]*[a-z0-9])?(:[0-9]+)?(/[a-z0-9]([-a-z0-9._]*[a-z0-9])?)*$"


class MyAppDatabase(FrozenStruct):
    """The database of an application."""

    enabled: bool = False
    """Whether the application has a database. What is stored outlives `false`: see the Database of the same name."""
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
    """Size of the volume for the data. It can grow where the storage class allows it; it never shrinks."""


class MyAppSpec(Spec):
    """The application that is wanted."""

    version: Annotated[str, Field(pattern=VERSION)]
    """Which version runs: the tag of the image. A change runs the new version's migration first, if there is a
    database. Where that or the rollout fails, the version before serves on, until another one is wanted."""
    replicas: Annotated[int, Field(ge=0, le=1000, format="int32")] = 1
    """How many pods run. Leave it out where an autoscaler decides."""
    image: Annotated[str, Field(min_length=1, max_length=255, pattern=REPOSITORY)] = "example.com/myapp"
    """The image without its tag: pods run `image:version`. The image serves HTTP at port 8080, with /livez and
    /readyz, and its argument `migrate` brings the database in $DATABASE_URL to its version; running that again, or
    on what a newer version has migrated, must do no harm."""
    database: MyAppDatabase = MyAppDatabase()
    """The database, PostgreSQL, if the application wants one."""
    rollout_deadline_seconds: Annotated[int, Field(ge=1, le=86400, format="int32")] = 120
    """A rollout has failed that made no progress for so long."""
    migration_deadline_seconds: Annotated[int, Field(ge=1, le=86400, format="int32")] = 600
    """A migration has failed that is not done after so long."""


class Migration(FrozenStruct):
    """A migration that has succeeded."""

    image: str
    """Which image's, with its tag."""
    database: str
    """UID of the Database that was migrated."""


class Failure(FrozenStruct):
    """An image that failed. It is not tried again until another one has been wanted."""

    image: str
    """Which, with its tag."""
    reason: Literal["MigrationFailed", "RolloutFailed"]
    """What of it failed."""
    message: str
    """What was seen."""


class MyAppStatus(Status):
    """The application as it is."""

    phase: Phase | None = None
    """Pending (waits for the database), Migrating, RollingOut, Ready, RolledBack (the version before runs), or
    Failed (and there is no version before)."""
    replicas: int = 0
    """How many pods there are."""
    ready_replicas: int = 0
    """How many of them are ready."""
    selector: str | None = None
    """Selects the pods, for autoscalers."""
    version: str | None = None
    """The version that last came up whole. What fails goes back to it."""
    image: str | None = None
    """The image of that version, with its tag."""
    failed: Failure | None = None
    """What is wanted, but failed."""
    migrated: Migration | None = None
    """The last migration that succeeded."""


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
            "a Service and a Database are named after it",
        ),
    ],
)
class MyApp(Resource[MyAppSpec, MyAppStatus]):
    """A web application, with its database if it wants one."""

    @property
    def image(self) -> str:
        """The image that is wanted, with its tag."""
        return f"{self.spec.image}:{self.spec.version}"
