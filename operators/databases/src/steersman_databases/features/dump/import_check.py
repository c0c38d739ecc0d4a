"""Job of the dry run of ``bootstrap.import``. Pure.

The Job has the image, the mounts and the network of the import, and only reads. It needs neither the operator nor the
``Database``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from steersman.api.apply import batch
from steersman.meta import FrozenStruct, ObjectKey
from steersman_databases.api import Cluster, Database
from steersman_databases.api.backups.backup_common import BackupJobSettings
from steersman_databases.engines.versions import image
from steersman_databases.features.backup.specs import JobPlan, job_of
from steersman_databases.features.dump.connection import (
    NotConnectable,
    connection_of,
    import_connection,
    server_files,
)
from steersman_databases.features.dump.specs import IMPORT_MOUNT, SERVER_MOUNT, client_image, scheduled_pod

TIMEOUT_SECONDS = 300
"""Time after which the Job fails."""
_MAINTENANCE_DATABASE = "postgres"

GrantKind = Literal["database", "schema", "table", "sequence", "function"]
_Names = Annotated[tuple[str, ...], Meta(max_length=64)]


class FoundGrant(FrozenStruct):
    """Privileges on objects of one kind. ``objects`` has an empty name for a database or schema."""

    kind: GrantKind
    privileges: _Names
    schema: str = ""
    objects: _Names = ()
    columns: _Names = ()
    option: bool = False


class FoundRole(FrozenStruct):
    """Membership of an account in a role."""

    name: str
    admin: bool = False


class FoundAccount(FrozenStruct):
    """An account of the source. The host is of MySQL, and empty for a role of MariaDB."""

    name: str
    host: str = "%"
    login: bool = True
    inherit: bool = True
    create_database: bool = False
    replication: bool = False
    bypass_row_level_security: bool = False
    connection_limit: int = -1
    valid_until: str | None = None
    limits: Mapping[str, int] = msgspec.field(default_factory=dict[str, int])
    roles: tuple[FoundRole, ...] = ()
    grants: Annotated[tuple[FoundGrant, ...], Meta(max_length=64)] = ()
    omitted_grants: int = 0


class FoundProblem(FrozenStruct):
    """An obstacle. ``names`` are the first of ``count`` objects."""

    reason: str
    message: str
    count: int = 0
    names: _Names = ()


class LeftOut(FrozenStruct):
    """Objects that an import leaves out. ``names`` are the first of ``count``."""

    kind: str
    count: int
    names: _Names = ()


class CheckedServer(FrozenStruct):
    """A server of a check."""

    version: str
    size_bytes: int = 0


class ImportReport(FrozenStruct):
    """Result of a check.

    Args:
        truncated: True if the accounts have more privileges than the report.
    """

    source: CheckedServer
    target: CheckedServer
    problems: tuple[FoundProblem, ...] = ()
    left_out: tuple[LeftOut, ...] = ()
    notes: tuple[str, ...] = ()
    accounts: Annotated[tuple[FoundAccount, ...], Meta(max_length=200)] = ()
    omitted_accounts: int = 0
    truncated: bool = False


def check_plan(database: Database, key: ObjectKey, cluster: Cluster | None = None, image_name: str = "") -> JobPlan:
    """The plan of a check.

    Args:
        key: of the Job.
        cluster: the one of ``clusterRef``.
        image_name: image of the new server. Defaults to the one of the cluster, or of the declared version.

    Raises:
        UnsupportedVersion: there is no such version.
        NotConnectable: the server of ``serverRef`` cannot be reached by pods.
    """
    source = database.import_settings
    assert source is not None
    document: Mapping[str, object] = {
        "format": 1,
        "engine": database.engine,
        "source": import_connection(database, source).document(),
        "declared": _declared(database, cluster),
        **_server(database),
    }
    return JobPlan(
        key=key,
        subcommand="check-import",
        image=image_name or _image(database, cluster),
        document=document,
        settings=BackupJobSettings() if database.spec.backup is None else database.spec.backup.jobs,
        component="dump",
        deadline_seconds=TIMEOUT_SECONDS,
    )


def check_job(database: Database, plan: JobPlan) -> batch.Job:
    """The Job of `check_plan`, without an owner."""
    source = database.import_settings
    assert source is not None
    volumes = {"source": (IMPORT_MOUNT, server_files(import_connection(database, source), "source"))}
    if database.spec.server_ref is not None:
        volumes["server"] = (SERVER_MOUNT, server_files(connection_of(database)))
    return job_of(plan, check_labels(database), scheduled_pod(plan, volumes))


def check_labels(database: Database) -> dict[str, str]:
    """Labels of the Job, its pod and its ConfigMap. The operator does not select by them."""
    prefix = "app.kubernetes.io"
    return {
        f"{prefix}/name": f"{database.engine}-import-check",
        f"{prefix}/instance": database.metadata.name,
        f"{prefix}/managed-by": "kubectl-steersman",
        f"{prefix}/component": "import-check",
    }


def _server(database: Database) -> Mapping[str, object]:
    """The member ``server``: the Job reads an existing server itself."""
    reference = database.spec.server_ref
    if reference is None:
        return {}
    # The database may not exist yet.
    found: dict[str, Any] = {**connection_of(database).document()}
    return {"server": {**found, "database": reference.maintenance_database or _MAINTENANCE_DATABASE}}


def _declared(database: Database, cluster: Cluster | None) -> Mapping[str, object]:
    spec = database.spec
    size = database.storage_size if cluster is None else cluster.spec.storage.size
    autogrow = spec.autogrow if cluster is None else cluster.spec.storage.autogrow
    largest = size if autogrow is None else autogrow.max_size
    return {
        "extensions": [{"name": each.name} for each in spec.extensions if each.ensure == "Present"],
        "storage_bytes": 0 if spec.server_ref is not None else int(largest.value),
        # Members of a MySQLCluster, also of the one of a Database, replicate InnoDB tables only.
        "storage_engines": "InnoDB" if spec.server_ref is None else "Any",
        **({} if spec.encoding is None else {"encoding": spec.encoding}),
    }


def _image(database: Database, cluster: Cluster | None) -> str:
    if database.spec.server_ref is not None:
        return client_image(database.engine)
    if cluster is not None and cluster.status.image:
        return cluster.status.image
    version = database.spec.version if cluster is None else cluster.spec.version
    if version is None:
        raise NotConnectable("the version of the new server is not known. Set --image to its image")
    return image(database.engine, version)
