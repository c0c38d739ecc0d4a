"""The cluster that a ``Database`` without a reference makes, and takes along when it is deleted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from steersman.api.core_v1 import PersistentVolumeClaim
from steersman.cache import CachedClient
from steersman.client import MergePatch
from steersman.controller import EventRecorder
from steersman.errors import NotFound
from steersman.meta import Condition, find_condition
from steersman_databases.api import Cluster, Database
from steersman_databases.api.database import Phase
from steersman_databases.api.group import FORCE_DELETE, is_forced
from steersman_databases.clusters.observed import is_claim_of, is_retired
from steersman_databases.clusters.view import kind_of
from steersman_databases.controllers.failures import REASONS
from steersman_databases.controllers.instances import CLUSTER_INDEX
from steersman_databases.controllers.lookup import find, find_live
from steersman_databases.controllers.outcome import READY, Blocked
from steersman_databases.engines import Contents, EngineError, InvalidName, image
from steersman_databases.engines.cluster_names import OPERATOR, ClusterNames
from steersman_databases.engines.desired import DesiredDatabase, DesiredUser
from steersman_databases.resources.claims import ENGINE_LABEL
from steersman_databases.resources.own_cluster import own_cluster

# What of a cluster's troubles a Database tells in the same word; of the others it only waits for a server.
_SAME = frozenset(
    {
        *("AdministratorSecretMissing", "ImageUnavailable", "InstanceRefused", "NameTaken"),
        *("RetainedDataMismatch", "Unschedulable", "UnsupportedVersion"),
        *REASONS,
    }
)
_OUTSIDE = frozenset({"ImageUnavailable", "InstanceRefused", "RequestFailed", "ServerNotReady", "Unschedulable"})
_OTHER = {
    **dict.fromkeys(("InstanceCrashing", "InstanceFailing"), "ServerCrashing"),
    **dict.fromkeys(("DiskFull", "Fenced", "Hibernated"), "ServerNotReady"),
}


@dataclass(frozen=True, slots=True)
class OwnCluster:
    """The cluster of one ``Database``."""

    client: CachedClient
    events: EventRecorder
    database: Database

    async def ensure(self, contents: Contents) -> None:
        """The cluster as declared, and serving.

        Raises:
            Blocked: what is declared cannot be, the name is somebody else's, or nobody serves yet.
        """
        _check(self.database, contents)
        present = await find(self.client, self._kind, self.database.key)
        if present is None:
            await self._require_engine()
            # Not applied: it would take over what somebody has just made.
            config = own_cluster(self.database, self.database.storage_size)
            cluster = await self.client.create(config, owner=self.database)
            self.events.normal(self.database, "Created", f"created {_named(cluster)}")
        else:
            self._require_ours(present)
            storage = max(self.database.storage_size, present.spec.storage.size)
            config, uid = own_cluster(self.database, storage), present.metadata.uid
            cluster = await self.client.apply(config, owner=self.database, uid=uid)
        if not cluster.status.primary:
            raise _waiting(cluster)

    async def claims(self) -> tuple[PersistentVolumeClaim, ...]:
        """The claims of its data: with them goes what opens them."""
        return tuple(c for c in await self._claims_of_any() if self._made_by(c) == self.database.engine)

    async def _claims_of_any(self) -> Sequence[PersistentVolumeClaim]:
        """Also those of data that another engine made."""
        found = await self.client.list(PersistentVolumeClaim, index=(CLUSTER_INDEX, str(self.database.key)))
        names = ClusterNames(self.database.key)
        return [
            c for c in found if is_claim_of(names, c) and not is_retired(c) and c.metadata.deletion_timestamp is None
        ]

    def _made_by(self, claim: PersistentVolumeClaim) -> str:
        return claim.metadata.labels.get(ENGINE_LABEL, self.database.engine)

    async def delete(self) -> None:
        """Deletes it, with its data or without as the ``Database`` says at this moment.

        Raises:
            Blocked: it is still there.
        """
        cluster = await find_live(self.client, self._kind, self.database.key)
        if cluster is None or not self._controls(cluster):
            await self._tell_retained()
            return
        try:
            if changes := self._unlike(cluster):
                version = cluster.metadata.resource_version
                changes["metadata"] = {**changes.get("metadata", {}), "resourceVersion": version}
                await self.client.patch(self._kind, cluster.key, MergePatch(changes))
            if cluster.metadata.deletion_timestamp is None:
                await self.client.delete(self._kind, cluster.key, uid=cluster.metadata.uid)
        except NotFound:
            pass
        raise Blocked("Deleting", "Deleting", _stopping(cluster), retry_after=2.0)

    def _unlike(self, cluster: Cluster) -> dict[str, Any]:
        """What the cluster is to know of its deletion and does not; empty where there is nothing."""
        changes: dict[str, Any] = {}
        if cluster.spec.deletion_policy != (policy := self.database.spec.deletion_policy):
            changes["spec"] = {"deletionPolicy": policy}
        if is_forced(self.database) and not is_forced(cluster):
            changes["metadata"] = {"annotations": {FORCE_DELETE: "true"}}
        return changes

    async def _tell_retained(self) -> None:
        if self.database.spec.deletion_policy != "Delete" and (claims := await self.claims()):
            kept = ", ".join(sorted(f"PersistentVolumeClaim {c.metadata.name}" for c in claims))
            self.events.normal(
                self.database,
                "DataRetained",
                f"kept {kept} and its Secrets; a new Database named {self.database.metadata.name} adopts them, and "
                "deleting the claim deletes them all",
            )

    async def _require_engine(self) -> None:
        """Refuses retained data that another engine made. Raises Blocked."""
        for claim in await self._claims_of_any():
            if (engine := self._made_by(claim)) != self.database.engine:
                raise Blocked(
                    "Failed",
                    "RetainedDataMismatch",
                    f"PersistentVolumeClaim {claim.metadata.name} holds retained data of {engine}: set spec.engine "
                    f"to {engine} in a new Database of this name, or delete the claim to give up the data",
                )

    @property
    def _kind(self) -> type[Cluster]:
        return kind_of(self.database.engine)

    def _controls(self, cluster: Cluster) -> bool:
        reference = cluster.controller_reference
        return reference is not None and reference.uid == self.database.metadata.uid

    def _require_ours(self, cluster: Cluster) -> None:
        name, reference = cluster.metadata.name, cluster.controller_reference
        called = _named(cluster)
        if self._controls(cluster):
            if cluster.metadata.deletion_timestamp is None:
                return
            raise Blocked("Pending", "ServerTerminating", f"{called} is being deleted; waiting until it is gone")
        if reference is not None and (reference.kind, reference.name) == (Database.api_resource.kind, name):
            raise Blocked(
                "Pending",
                "ServerTerminating",
                f"{called} belongs to a former Database of this name; waiting until the garbage collector removed it",
            )
        raise Blocked(
            "Failed",
            "NameTaken",
            f"{called} exists and was not made for this Database: refer to it by spec.clusterRef in a new "
            "Database, or rename one of them",
        )


def _named(cluster: Cluster) -> str:
    return f"{type(cluster).api_resource.kind} {cluster.metadata.name}"


def _check(database: Database, contents: Contents) -> None:
    """Refuses what no cluster could satisfy, before one is made. Raises Blocked."""
    try:
        image(contents.name, database.version)
    except EngineError as error:
        raise Blocked("Failed", "UnsupportedVersion", f"spec.version: {error}", retry_after=None) from error
    try:
        if not database.spec.owner:
            contents.check(DesiredUser(database.username, "any"), OPERATOR)
        contents.check(DesiredDatabase(database.database_name, database.username), OPERATOR)
    except InvalidName as error:
        raise Blocked("Failed", "InvalidName", f"spec.{error.field}: {error}", retry_after=None) from error


def _stopping(cluster: Cluster) -> str:
    """What a cluster that is being deleted waits for; what it said before is of no use any more."""
    waiting, status = f"waiting for {_named(cluster)} to stop", cluster.status
    ready = find_condition(status.conditions, READY) if status.phase == "Deleting" else None
    return waiting if ready is None else f"{waiting}: {ready.message}"


def _waiting(cluster: Cluster) -> Blocked:
    """Why a cluster does not serve yet, in the words of a ``Database``."""
    condition = find_condition(cluster.status.conditions, READY)
    if condition is None or condition.status == "True":
        condition = Condition(type=READY, status="False", reason="Creating", message="waiting for its controller")
    reason = condition.reason if condition.reason in _SAME else _OTHER.get(condition.reason, "ServerStarting")
    failed = reason in REASONS or cluster.status.phase == "Failed"
    phase: Phase = "Pending" if reason in _OUTSIDE else "Failed" if failed else "Provisioning"
    return Blocked(phase, reason, f"{_named(cluster)}: {condition.message}")
