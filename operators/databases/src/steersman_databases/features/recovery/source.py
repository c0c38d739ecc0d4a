"""Resolution of ``spec.bootstrap.recovery`` to an archive in an object store.

It checks who may read it.
"""

from __future__ import annotations

from dataclasses import dataclass

from steersman.cache import CachedClient
from steersman.meta import ObjectKey
from steersman_databases.api import Backup, BackupStore, Cluster
from steersman_databases.api.backups.backup_common import RecoverySettings, StoreReference
from steersman_databases.cluster.declared import engine_of, kind_of
from steersman_databases.core.cached_reads import get_live
from steersman_databases.features.backup_store.model import find_store
from steersman_databases.sql import tenancy


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoverySource:
    """An archive to recover from.

    Args:
        store: the object store.
        path: of the archive in the store, below its prefix.
        backup_id: the backup to begin with. None lets the recovery choose.
    """

    store: BackupStore
    path: str
    backup_id: str | None = None


class SourceUnavailable(Exception):
    """The source is missing, unsuitable or not permitted.

    ``reason`` is one of ``Recovered``.
    """

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


async def resolve_source(client: CachedClient, cluster: Cluster, settings: RecoverySettings) -> RecoverySource:
    """Find the archive that a cluster recovers from.

    A store of another namespace must permit the cluster's namespace, and then only archives of that namespace are
    open, or of a cluster that permits it.

    Raises:
        SourceUnavailable: there is no such source, or it is not permitted.
        StoreProblem: its object store does not exist, or is not permitted.
    """
    if settings.backup is not None:
        return await _from_backup(client, cluster, settings.backup.name)
    if settings.cluster is not None:
        key = ObjectKey(settings.cluster.namespace or cluster.metadata.namespace, settings.cluster.name)
        return await _from_cluster(client, cluster, key)
    assert settings.store is not None
    store = await find_store(client, settings.store.store_ref, cluster.metadata.namespace)
    _require_own_path(cluster, store, settings.store.path)
    return RecoverySource(store=store, path=settings.store.path)


async def _from_backup(client: CachedClient, cluster: Cluster, name: str) -> RecoverySource:
    namespace = cluster.metadata.namespace
    backup = await get_live(client, Backup, ObjectKey(namespace, name))
    if backup is None:
        raise SourceUnavailable("SourceNotFound", f"Backup {name} does not exist in namespace {namespace}")
    status = backup.status
    if backup.spec.cluster_ref is None:
        raise SourceUnavailable(
            "SourceMismatch", f"Backup {name} is a dump of one database. Restore it by a Database with clusterRef"
        )
    if status.phase != "Completed" or not status.backup_id or not status.path or status.store is None:
        raise SourceUnavailable("SourceNotFound", f"Backup {name} is not completed")
    _require_fitting(cluster, f"Backup {name}", status.engine, status.version)
    store = await find_store(client, status.store, namespace)
    _require_own_path(cluster, store, status.path)
    return RecoverySource(store=store, path=status.path, backup_id=status.backup_id)


async def _from_cluster(client: CachedClient, cluster: Cluster, key: ObjectKey) -> RecoverySource:
    kind, own = kind_of(engine_of(type(cluster))), cluster.metadata.namespace
    name = f"{kind.api_resource.kind} {key}"
    source = await get_live(client, kind, key)
    # One message for both: it must not show which clusters exist in other namespaces.
    if source is None or not tenancy.permits(source.spec.allowed_namespaces, key.namespace, own):
        raise SourceUnavailable("SourceNotFound", f"{name} does not exist or does not permit namespace {own}")
    declared, observed = source.spec.backup, source.status.backup
    if declared is None or observed is None or not observed.path:
        raise SourceUnavailable("SourceNotFound", f"{name} has no archive. Declare spec.backup there")
    _require_fitting(cluster, name, engine_of(kind), source.spec.version)
    reference = StoreReference(name=declared.store_ref.name, namespace=declared.store_ref.namespace or key.namespace)
    return RecoverySource(store=await find_store(client, reference, own), path=observed.path)


def _require_own_path(cluster: Cluster, store: BackupStore, path: str) -> None:
    """Reject the archive of another namespace.

    The owner of the store owns all of its content.
    """
    own = cluster.metadata.namespace
    if own not in (store.metadata.namespace, path.partition("/")[0]):
        raise SourceUnavailable(
            "SourceNotPermitted",
            f"path {path} of BackupStore {store.key} does not belong to namespace {own}",
        )


def _require_fitting(cluster: Cluster, source: str, engine: str | None, version: str | None) -> None:
    expected = engine_of(type(cluster))
    if engine not in (None, expected):
        raise SourceUnavailable("SourceMismatch", f"{source} has engine {engine}, and the cluster has {expected}")
    declared = cluster.spec.version
    if version is not None and version != declared and not version.startswith(f"{declared}."):
        raise SourceUnavailable("SourceMismatch", f"{source} has version {version}, and the cluster has {declared}")
