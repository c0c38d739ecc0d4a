"""Dedicated cluster of a `Database` without a reference.

It is deleted with the `Database`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from steersman.api.apply import meta
from steersman.api.core_v1 import PersistentVolumeClaim
from steersman.cache import CachedClient
from steersman.client import MergePatch
from steersman.controller import EventRecorder
from steersman.errors import NotFound
from steersman.meta import Condition, Quantity, find_condition
from steersman_databases.api import Cluster, Database
from steersman_databases.api.backups.backup_common import SKIP_FINAL_BACKUP_ANNOTATION, is_final_backup_skipped
from steersman_databases.api.database import DatabasePhase
from steersman_databases.api.group import (
    ADOPT_ANNOTATION,
    FORCE_DELETE_ANNOTATION,
    is_adoption_requested,
    is_deletion_forced,
)
from steersman_databases.api.kstatus import READY
from steersman_databases.api.volume_sizes import StorageStatus
from steersman_databases.cluster.declared import kind_of
from steersman_databases.cluster.executor import CLUSTER_INDEX
from steersman_databases.cluster.state import is_pvc_of, is_retired
from steersman_databases.core.api_errors import REASONS
from steersman_databases.core.cached_reads import get_cached_or_live, get_live
from steersman_databases.core.context import adoption_advice, adoption_patch
from steersman_databases.core.created_fields import has_other_manager, own_created_spec_by_apply
from steersman_databases.core.database_naming import database_of, is_of_database
from steersman_databases.core.outcome import ReconcileBlocked
from steersman_databases.engines import EngineError, InvalidName, SqlEngine, image
from steersman_databases.engines.naming import OPERATOR_ROLE, ClusterNames
from steersman_databases.engines.sql.desired import DesiredDatabase, DesiredUser
from steersman_databases.features.storage.specs import ENGINE_LABEL
from steersman_databases.specs.data_secrets import owned_by
from steersman_databases.sql.database.specs import dedicated_cluster

# Reasons of a cluster that a Database reports unchanged. For others it only waits for a server.
_SHARED_REASONS = frozenset(
    {
        *("AdministratorSecretMissing", "DataLost", "ImageUnavailable", "PodRejected", "NameConflict"),
        *("RetainedDataMismatch", "Unschedulable", "UnsupportedVersion"),
        *REASONS,
    }
)
_EXTERNAL_REASONS = frozenset({"ImageUnavailable", "PodRejected", "RequestFailed", "ServerNotReady", "Unschedulable"})
_TRANSLATED_REASONS = {
    **dict.fromkeys(("InstanceCrashing", "MemberError"), "ServerCrashing"),
    **dict.fromkeys(("DiskFull", "Fenced", "Hibernated"), "ServerNotReady"),
}

_SIZE_FIELD = ("spec", "storage", "size")


@dataclass(frozen=True, slots=True)
class DedicatedCluster:
    """The dedicated cluster of one `Database`."""

    client: CachedClient
    events: EventRecorder
    database: Database

    async def ensure(self, sql_engine: SqlEngine) -> None:
        """Apply the cluster, and check that it serves.

        Raises:
            ReconcileBlocked: the declaration is not possible, the name is taken, or the cluster does not serve yet.
        """
        _check(self.database, sql_engine)
        present = await get_cached_or_live(self.client, self._kind, self.database.key)
        if present is None:
            await self._require_engine()
            # Created and not applied: an apply would take over an object that another client has just created.
            config = dedicated_cluster(self.database, self.database.storage_size)
            cluster = await self.client.create(config, owner=self.database)
            self.events.normal(self.database, "Created", f"created {_qualified_name(cluster)}")
        else:
            present = await self._adopted(present)
            self._require_controlled(present)
            # Otherwise, a field that the Database no longer declares would stay in the cluster.
            present = await own_created_spec_by_apply(self.client, present)
            config, uid = dedicated_cluster(self.database, await self._storage_size(present)), present.metadata.uid
            cluster = await self.client.apply(config, owner=self.database, uid=uid)
        if not cluster.status.primary:
            raise _not_ready(cluster)

    async def _storage_size(self, present: Cluster) -> Quantity:
        """Return the declared size, or a larger one of the cluster.

        A size that no volume has reached is lowered, unless another client has set it at the cluster.
        """
        declared, size, status = self.database.storage_size, present.spec.storage.size, present.status.storage
        capacity = size if status is None or status.data_capacity is None else status.data_capacity
        if declared < size and capacity < size and not await has_other_manager(self.client, present, *_SIZE_FIELD):
            return max(declared, capacity)
        return max(declared, size)

    async def storage_status(self) -> StorageStatus | None:
        """Return the size of the data volumes of the own cluster."""
        cluster = await self.client.get_or_none(self._kind, self.database.key)
        if cluster is None or cluster.status.storage is None or not self._controls(cluster):
            return None
        return StorageStatus(data_capacity=cluster.status.storage.data_capacity)

    async def pvcs(self) -> tuple[PersistentVolumeClaim, ...]:
        """Return the PVCs of its data, which own the Secret."""
        return tuple(c for c in await self._pvcs_of_any_engine() if self._engine_label(c) == self.database.engine)

    async def secret_owners(self) -> Sequence[meta.OwnerReference]:
        """Return the owners of the Secret: the `Database` and the PVCs."""
        database, resource = self.database, Database.api_resource
        own = meta.OwnerReference(
            api_version=resource.api_version,
            kind=resource.kind,
            name=database.metadata.name,
            uid=database.metadata.uid,
        )
        return [own, *(owned_by(pvc) for pvc in await self.pvcs())]

    async def _pvcs_of_any_engine(self) -> Sequence[PersistentVolumeClaim]:
        """Return the PVCs, including those with data of another engine."""
        found = await self.client.list(PersistentVolumeClaim, index=(CLUSTER_INDEX, str(self.database.key)))
        names = ClusterNames(self.database.key)
        return [
            c for c in found if is_pvc_of(names, c) and not is_retired(c) and c.metadata.deletion_timestamp is None
        ]

    def _engine_label(self, pvc: PersistentVolumeClaim) -> str:
        return pvc.metadata.labels.get(ENGINE_LABEL, self.database.engine)

    async def delete(self) -> None:
        """Delete it, with its data if the `Database` says so now.

        Raises:
            ReconcileBlocked: it still exists.
        """
        cluster = await get_live(self.client, self._kind, self.database.key)
        if cluster is None or not self._controls(cluster):
            await self._emit_retained()
            return
        try:
            if changes := self._pending_changes(cluster):
                version = cluster.metadata.resource_version
                changes["metadata"] = {**changes.get("metadata", {}), "resourceVersion": version}
                await self.client.patch(self._kind, cluster.key, MergePatch(changes))
            if cluster.metadata.deletion_timestamp is None:
                await self.client.delete(self._kind, cluster.key, uid=cluster.metadata.uid)
        except NotFound:
            pass
        raise ReconcileBlocked("Deleting", "Deleting", _deletion_progress(cluster), retry_after=2.0)

    def _pending_changes(self, cluster: Cluster) -> dict[str, Any]:
        """Return changes that the cluster needs before its deletion, or nothing."""
        changes: dict[str, Any] = {}
        if cluster.spec.deletion_policy != (policy := self.database.spec.deletion_policy):
            changes["spec"] = {"deletionPolicy": policy}
        annotations: dict[str, str] = {}
        if is_deletion_forced(self.database) and not is_deletion_forced(cluster):
            annotations[FORCE_DELETE_ANNOTATION] = "true"
        if is_final_backup_skipped(self.database) and not is_final_backup_skipped(cluster):
            annotations[SKIP_FINAL_BACKUP_ANNOTATION] = "true"
        if annotations:
            changes["metadata"] = {"annotations": annotations}
        return changes

    async def _emit_retained(self) -> None:
        if self.database.spec.deletion_policy != "Delete" and (pvcs := await self.pvcs()):
            kept = ", ".join(sorted(c.metadata.name for c in pvcs))
            self.events.normal(
                self.database,
                "DataRetained",
                f"retained PVCs {kept} and their Secrets. To reuse them, create Database "
                f"{self.database.metadata.name} again. To delete the data, delete the PVCs",
            )

    async def _require_engine(self) -> None:
        """Refuse retained data of another engine. Raises ReconcileBlocked."""
        for pvc in await self._pvcs_of_any_engine():
            if (engine := self._engine_label(pvc)) != self.database.engine:
                raise ReconcileBlocked(
                    "Failed",
                    "RetainedDataMismatch",
                    f"PVC {pvc.metadata.name} has retained data of {engine}. Set spec.engine to {engine} in a new "
                    "Database of this name, or delete the PVC to delete the data",
                )

    @property
    def _kind(self) -> type[Cluster]:
        return kind_of(self.database.engine)

    def _controls(self, cluster: Cluster) -> bool:
        reference = cluster.controller_reference
        return reference is not None and reference.uid == self.database.metadata.uid

    async def _adopted(self, cluster: Cluster) -> Cluster:
        """Adopt a restored cluster if the `Database` permits it.

        The cluster then adopts its own objects.
        """
        if self._controls(cluster) or not is_adoption_requested(self.database) or not self._is_restored(cluster):
            return cluster
        body = dict(adoption_patch(cluster, self.database).body)
        body["metadata"] = {**body["metadata"], "annotations": {ADOPT_ANNOTATION: "true"}}
        adopted = await self.client.patch(self._kind, cluster.key, MergePatch(body))
        self.events.normal(self.database, "Updated", f"adopted {_qualified_name(cluster)}")
        return adopted

    def _is_restored(self, cluster: Cluster) -> bool:
        """Return True if it has labels of this `Database` and no controller."""
        is_own = is_of_database(cluster) and self.database.key in database_of(cluster)
        return is_own and cluster.controller_reference is None

    def _require_controlled(self, cluster: Cluster) -> None:
        name, reference = cluster.metadata.name, cluster.controller_reference
        owner_name = _qualified_name(cluster)
        if self._controls(cluster):
            if cluster.metadata.deletion_timestamp is None:
                return
            raise ReconcileBlocked(
                "Pending", "ServerTerminating", f"{owner_name} is being deleted: waiting for its deletion"
            )
        if reference is not None and (reference.kind, reference.name) == (Database.api_resource.kind, name):
            raise ReconcileBlocked(
                "Pending",
                "ServerTerminating",
                f"{owner_name} belongs to a previous Database of this name: "
                "waiting for the garbage collector to delete it",
            )
        advice = adoption_advice(Database.api_resource.kind) if self._is_restored(cluster) else ""
        raise ReconcileBlocked(
            "Failed",
            "NameConflict",
            f"{owner_name} exists and does not belong to this Database. Refer to it by spec.clusterRef in a new "
            f"Database, or rename one of them{advice}",
        )


def _qualified_name(cluster: Cluster) -> str:
    return f"{type(cluster).api_resource.kind} {cluster.metadata.name}"


def _check(database: Database, sql_engine: SqlEngine) -> None:
    """Refuse impossible declarations before creation. Raises ReconcileBlocked."""
    try:
        image(sql_engine.name, database.version)
    except EngineError as error:
        raise ReconcileBlocked("Failed", "UnsupportedVersion", f"spec.version: {error}", retry_after=None) from error
    try:
        if not database.spec.owner:
            sql_engine.check(DesiredUser(database.username, "any"), OPERATOR_ROLE)
        sql_engine.check(DesiredDatabase(database.database_name, database.username), OPERATOR_ROLE)
    except InvalidName as error:
        raise ReconcileBlocked("Failed", "InvalidName", f"spec.{error.field}: {error}", retry_after=None) from error


def _deletion_progress(cluster: Cluster) -> str:
    """Return the reason why a cluster is still being deleted."""
    waiting, status = f"waiting for {_qualified_name(cluster)} to stop", cluster.status
    ready = find_condition(status.conditions, READY) if status.phase == "Deleting" else None
    return waiting if ready is None else f"{waiting}: {ready.message}"


def _not_ready(cluster: Cluster) -> ReconcileBlocked:
    """Return why a cluster does not serve yet.

    The reason is one of `Database`.
    """
    condition = find_condition(cluster.status.conditions, READY)
    if condition is None or condition.status == "True":
        condition = Condition(type=READY, status="False", reason="Creating", message="waiting for its controller")
    reason = (
        condition.reason
        if condition.reason in _SHARED_REASONS
        else _TRANSLATED_REASONS.get(condition.reason, "ServerStarting")
    )
    failed = reason in REASONS or cluster.status.phase == "Failed"
    phase: DatabasePhase = "Pending" if reason in _EXTERNAL_REASONS else "Failed" if failed else "Provisioning"
    return ReconcileBlocked(phase, reason, f"{_qualified_name(cluster)}: {condition.message}")
