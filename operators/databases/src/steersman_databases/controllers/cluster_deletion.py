"""What happens to the data of a cluster when it is deleted."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from steersman.api.apps_v1 import StatefulSet
from steersman.api.core_v1 import ConfigMap, PersistentVolumeClaim, Secret
from steersman.controller import remove_finalizer
from steersman.meta import Object, ObjectKey
from steersman_databases.clusters.keyring import pooler_certificate
from steersman_databases.clusters.observed import Observed
from steersman_databases.controllers.declaring import Charge
from steersman_databases.controllers.lookup import find_live
from steersman_databases.controllers.outcome import Blocked, Outcome
from steersman_databases.controllers.volumes import Volumes
from steersman_databases.engines.cluster import ClusterView
from steersman_databases.resources.labels import belongs_to, cluster_selector

FINALIZER = "databases.steersman.dev/data"

# Servers have two minutes to stop; a pod on a lost node never ends, and the deletion must.
_PATIENCE = timedelta(seconds=180)


class ClusterDeletion:
    """Stops the instances, then keeps or deletes their data as ``spec.deletionPolicy`` says at this moment.

    Everything is derived from what is there, so it can be cut anywhere and begun again. No server is asked.

    Args:
        served: servers of this cluster ran, so that the data are theirs.
    """

    def __init__(self, charge: Charge, *, served: bool) -> None:
        self._served = served
        self._charge = charge
        self._names = charge.view.names

    async def advance(self, observed: Observed, claims: Sequence[PersistentVolumeClaim]) -> Outcome | None:
        """One step. None when nothing is left to do and the object has been let go."""
        cluster = self._charge.cluster
        if FINALIZER not in cluster.metadata.finalizers:
            return None
        running = await self._stop(observed)
        if running and not self._is_overdue():
            message = f"waiting for {', '.join(sorted(running))} to stop"
            return Outcome(phase="Deleting", reason="Deleting", message=message, retry_after=2.0)
        await self._settle_data(claims)
        await remove_finalizer(self._charge.client, cluster, FINALIZER)
        return None

    async def _stop(self, observed: Observed) -> set[str]:
        """Asks all to end, the primary last, and gives the pods that are still there."""
        leader = observed.members.leader
        pods = {i.number: i.pod.metadata.name for i in observed.instances if i.pod is not None}
        replicas_run = any(n != leader for n in pods)
        for instance in observed.instances:
            stateful = instance.statefulset
            if stateful is None or stateful.metadata.deletion_timestamp is not None:
                continue
            if instance.number != leader or not replicas_run or self._is_overdue():
                if instance.leaves and instance.number == observed.members.last_leader:
                    # It has taken over while it was taken away, and has what nobody else has.
                    await Volumes(self._charge).keep(instance)
                await self._charge.delete(StatefulSet, stateful)
        return set(pods.values())

    def _is_overdue(self) -> bool:
        started = self._charge.cluster.metadata.deletion_timestamp
        if self._charge.view.requests.force_delete:
            return True
        return started is not None and self._charge.clock.now() - started > _PATIENCE

    async def _settle_data(self, claims: Sequence[PersistentVolumeClaim]) -> None:
        deletes = self._charge.view.deletes_data
        if deletes or not claims:
            claims = await self._live_claims()
        deletes = deletes and not self._were_refused(claims)
        if claims and not deletes:
            self._tell_retained(claims)
            return
        for claim in claims:
            await self._charge.delete(PersistentVolumeClaim, claim)
        deleted = [f"PersistentVolumeClaim {claim.metadata.name}" for claim in claims]
        # They are owned by the claims; but those may be waiting for a pod, or were never made.
        for kind, key in _kept(self._charge.view):
            obj = await find_live(self._charge.client, kind, key)
            if obj is None or not belongs_to(obj, self._charge.view):
                continue
            # A claim that has lost its labels is not seen: what has owners may open data, and goes with those.
            if deletes or (kind is Secret and not obj.metadata.owner_references):
                await self._charge.delete(kind, obj)
                deleted.append(f"{kind.api_resource.kind} {key.name}")
        if deleted:
            words = "" if deletes else ": there are no data that they would open"
            message = f"deleted {', '.join(sorted(deleted))}{words}"
            self._charge.events.normal(self._charge.cluster, "DataDeleted", message)

    def _were_refused(self, claims: Sequence[PersistentVolumeClaim]) -> bool:
        """Whether these are retained data of a former cluster, which this one could not adopt."""
        if self._served:
            return False
        try:
            Volumes(self._charge).check_adopted(claims, served=False)
        except Blocked:
            return True
        return False

    async def _live_claims(self) -> Sequence[PersistentVolumeClaim]:
        # Live: whatever is overlooked now is forgotten for good.
        found = await self._charge.client.live.list(
            PersistentVolumeClaim,
            namespace=self._names.key.namespace,
            label_selector=",".join(f"{k}={v}" for k, v in cluster_selector(self._charge.view).items()),
        )
        ours = [claim for claim in found.items if belongs_to(claim, self._charge.view)]
        return [claim for claim in ours if self._names.claimed(claim.metadata.name) is not None]

    def _tell_retained(self, claims: Sequence[PersistentVolumeClaim]) -> None:
        cluster, kept = self._charge.cluster, ", ".join(sorted(c.metadata.name for c in claims))
        self._charge.events.normal(
            cluster,
            "DataRetained",
            f"kept {kept} and the Secrets that open them; a new cluster named {cluster.metadata.name} adopts "
            "them, and deleting the claims deletes them all",
        )


def _kept(view: ClusterView) -> list[tuple[type[Object], ObjectKey]]:
    """What outlives the cluster where its data are retained, beside the claims."""
    names = view.names
    secrets = (
        names.authorities,
        names.server_certificate,
        names.peer_certificate,
        names.operator_certificate,
        names.administrator_secret,
        names.application_secret,
        pooler_certificate(view),
    )
    return [*((Secret, key) for key in secrets), *((ConfigMap, key) for key in view.store.every)]
