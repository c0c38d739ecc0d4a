"""Jobs that dump and restore one database. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec
from msgspec import UNSET, UnsetType

from steersman.api.apply import batch, core, meta
from steersman.api.core_v1 import ResourceRequirements
from steersman.meta import ObjectKey
from steersman_databases.api import Backup, Database
from steersman_databases.api.backups.backup_common import BackupJobSettings, BackupSettings, period
from steersman_databases.core.database_naming import MANAGED_BY, DatabaseNames
from steersman_databases.engines.cluster_engine import DEFAULT_PULL_POLICY, PodTemplateSettings
from steersman_databases.engines.naming import ClusterNames
from steersman_databases.engines.versions import CLIENT_VERSIONS, image
from steersman_databases.engines.workload_identity import WorkloadIdentity, with_identity
from steersman_databases.features.backup.model import is_finished, trigger_of
from steersman_databases.features.backup.specs import (
    STORE_MOUNT,
    JobPlan,
    job_of,
    program_pod,
    secret_volume,
)
from steersman_databases.features.dump.connection import JobConnection, owner_files, server_files
from steersman_databases.specs.scheduling import auxiliary_affinity, with_scheduling

STORE_KEY = "store.json"
SERVER_MOUNT = "/etc/steersman/server"
_OWNER_MOUNT = "/etc/steersman/owner"
_SOURCE_MOUNT = "/etc/steersman/source"
IMPORT_MOUNT = "/etc/steersman/import"
_DEADLINE_SECONDS = 24 * 3600
_COMPONENT = "dump"


def dump_labels(database: Database) -> dict[str, str]:
    """Labels of the Jobs of dumps, of their pods and ConfigMaps."""
    prefix = "app.kubernetes.io"
    return {
        f"{prefix}/name": f"{database.engine}-{_COMPONENT}",
        f"{prefix}/instance": database.metadata.name,
        f"{prefix}/managed-by": MANAGED_BY,
        f"{prefix}/component": _COMPONENT,
    }


def client_image(engine: str) -> str:
    """Return the image with the client programs of an engine."""
    return image(engine, CLIENT_VERSIONS[engine])


def dump_plan(
    database: Database,
    settings: BackupSettings,
    backup: Backup,
    connection: JobConnection,
    others: Iterable[Backup],
) -> JobPlan:
    """The plan of a dump.

    Args:
        others: all ``Backup`` objects of the database: retention keeps what they declare.
    """
    window = period(settings.retention.window)
    assert window is not None
    document: Mapping[str, object] = {
        "format": 1,
        "engine": database.engine,
        "server": connection.document(),
        "backup": {"name": backup.metadata.name, "uid": backup.metadata.uid, "trigger": trigger_of(backup)},
        "retention": {
            "window_seconds": int(window.total_seconds()),
            "minimum_full_backups": settings.retention.minimum_full_backups,
        },
        "retain_until": {
            other.status.backup_id: other.spec.retain_until.isoformat()
            for other in others
            if is_finished(other) and other.status.backup_id and other.spec.retain_until is not None
        },
    }
    return JobPlan(
        key=ClusterNames(database.key).backup_job(backup.metadata.uid),
        subcommand="dump",
        image=client_image(database.engine),
        document=document,
        settings=settings.jobs,
        component=_COMPONENT,
        deadline_seconds=_DEADLINE_SECONDS,
    )


def load_plan(
    database: Database, connection: JobConnection, backup_id: str | None = None, source: JobConnection | None = None
) -> JobPlan:
    """The plan of a restore or import.

    Args:
        backup_id: the dump. None is the last one of the store.
        source: server to import from. None restores a dump of a store.
    """
    document: Mapping[str, object] = {
        "format": 1,
        "engine": database.engine,
        "server": connection.document(),
        **({} if backup_id is None else {"backup_id": backup_id}),
        **({} if source is None else {"source": source.document()}),
    }
    return JobPlan(
        key=DatabaseNames(database.key).restore_job,
        subcommand="load",
        image=client_image(database.engine),
        document=document,
        settings=BackupJobSettings() if database.spec.backup is None else database.spec.backup.jobs,
        component=_COMPONENT,
        deadline_seconds=_DEADLINE_SECONDS,
    )


def dump_job(
    database: Database, plan: JobPlan, connection: JobConnection, identity: WorkloadIdentity | None = None
) -> batch.Job:
    """The Job of `dump_plan`, without an owner.

    Args:
        identity: workload identity for the object store.
    """
    store = secret_volume("store", DatabaseNames(database.key).dump_store)
    volumes = {"store": (STORE_MOUNT, store), "server": (SERVER_MOUNT, server_files(connection))}
    return _with_account(_job(database, plan, volumes), DatabaseNames(database.key).dump_store, identity)


def load_job(
    database: Database,
    plan: JobPlan,
    connection: JobConnection,
    source: JobConnection | None = None,
    identity: WorkloadIdentity | None = None,
) -> batch.Job:
    """The Job of `load_plan`, without an owner.

    Args:
        identity: workload identity for the object store.
    """
    store = (_SOURCE_MOUNT, secret_volume("source", plan.key))
    volumes = {
        "source": store if source is None else (IMPORT_MOUNT, server_files(source, "source")),
        "server": (SERVER_MOUNT, server_files(connection)),
        "owner": (_OWNER_MOUNT, owner_files(database)),
    }
    return _with_account(_job(database, plan, volumes), plan.key, identity)


def store_account(key: ObjectKey, labels: Mapping[str, str], identity: WorkloadIdentity) -> core.ServiceAccount:
    """The ServiceAccount of Jobs with a workload identity, without an owner. It has no permissions."""
    metadata = meta.ObjectMeta(
        name=key.name, namespace=key.namespace, labels=labels, annotations=identity.annotations or UNSET
    )
    return core.ServiceAccount(metadata=metadata, automount_service_account_token=False)


def store_secret(key: ObjectKey, labels: Mapping[str, str], document: Mapping[str, object]) -> core.Secret:
    """The Secret with an object store for Jobs, without an owner."""
    return core.Secret(
        metadata=meta.ObjectMeta(name=key.name, namespace=key.namespace, labels=labels),
        type="Opaque",
        data={STORE_KEY: msgspec.json.encode(document, order="deterministic")},
    )


def _with_account(job: batch.Job, account: ObjectKey, identity: WorkloadIdentity | None) -> batch.Job:
    """Return the Job with the account and token of an identity."""
    if identity is None:
        return job
    assert not isinstance(job.spec, UnsetType)
    template = job.spec.template
    assert not isinstance(template, UnsetType) and not isinstance(template.spec, UnsetType)
    pod = msgspec.structs.replace(with_identity(template.spec, identity), service_account_name=account.name)
    spec = msgspec.structs.replace(job.spec, template=msgspec.structs.replace(template, spec=pod))
    return msgspec.structs.replace(job, spec=spec)


def _job(database: Database, plan: JobPlan, volumes: Mapping[str, tuple[str, core.Volume]]) -> batch.Job:
    return job_of(plan, dump_labels(database), scheduled_pod(plan, volumes))


def scheduled_pod(plan: JobPlan, volumes: Mapping[str, tuple[str, core.Volume]]) -> core.PodSpec:
    """The pod of a plan, with the scheduling of its settings.

    Args:
        volumes: where they are mounted read-only, by name.
    """
    settings = plan.settings
    pods = PodTemplateSettings(
        resources=settings.resources or ResourceRequirements(),
        node_selector=settings.node_selector,
        tolerations=settings.tolerations,
        priority_class=settings.priority_class_name or "",
    )
    return with_scheduling(pods, program_pod(plan, volumes, DEFAULT_PULL_POLICY), auxiliary_affinity(pods))
