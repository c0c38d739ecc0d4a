"""Stage of read replicas: slots, then volumes, then pods.

It changes one at a time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, TypeVar

from msgspec.structs import replace

from steersman.api.apply import apps
from steersman.api.apps_v1 import StatefulSet
from steersman.api.core_v1 import ConfigMap, PersistentVolumeClaim, Pod
from steersman.client import MergePatch
from steersman.errors import AlreadyExists, Forbidden, Invalid
from steersman.meta import Object, Quantity, is_true
from steersman_databases.api import Cluster, PostgreSQLCluster
from steersman_databases.api.autopilot.maintenance import NEWER_TEMPLATE, PendingDisruption
from steersman_databases.api.read_replicas import ReadReplicaSettings, ReadReplicasStatus
from steersman_databases.cluster.executor import CLUSTER_INDEX
from steersman_databases.cluster.rules.rolling_update import pooler_image
from steersman_databases.cluster.state import ClusterState
from steersman_databases.core.context import ClusterContext
from steersman_databases.engines.errors import EngineError
from steersman_databases.engines.naming import READ_REPLICA_LABEL, read_replica_slot
from steersman_databases.engines.postgresql.ha import patroni
from steersman_databases.engines.server import ServerEndpoint
from steersman_databases.features.read_replicas.model import (
    Changes,
    ReadReplica,
    ReadReplicaReport,
    next_changes,
    next_status,
    observed_load,
)
from steersman_databases.features.read_replicas.reports import GetReport
from steersman_databases.features.read_replicas.specs import (
    is_unrequested,
    read_replica_configuration,
    read_replica_statefulset,
    read_replica_volume,
    volume_size,
)
from steersman_databases.specs.job_hash import POD_HASH

T = TypeVar("T", bound=Object)


@dataclass(frozen=True, slots=True)
class ReadReplicaObjects:
    """Objects of the read replicas of a cluster, by number."""

    statefulsets: Mapping[int, StatefulSet]
    pods: Mapping[int, Pod]
    pvcs: Mapping[int, PersistentVolumeClaim]

    @property
    def numbers(self) -> Sequence[int]:
        """Numbers of read replicas with a StatefulSet or PVC."""
        return sorted({*self.statefulsets, *self.pvcs})


class ReadReplicaStage:
    """Reconciles the read replicas of one cluster.

    Args:
        get_report: requests the state of a read replica. With None it is unknown.
    """

    def __init__(self, context: ClusterContext, cluster: Cluster, get_report: GetReport | None = None) -> None:
        self._context, self._names = context, context.declared.names
        self._cluster = cluster if isinstance(cluster, PostgreSQLCluster) else None
        self._get_report = get_report

    @property
    def _settings(self) -> ReadReplicaSettings | None:
        return None if self._cluster is None else self._cluster.spec.read_replicas

    async def pods(self) -> Sequence[Pod]:
        """Return the present pods."""
        return () if self._cluster is None else list((await self._observe()).pods.values())

    async def slot_numbers(self) -> frozenset[int]:
        """Return the existing and desired read replicas, which need a slot."""
        if self._cluster is None:
            return frozenset()
        statefulsets = (await self._observe()).statefulsets
        settings = self._settings
        if settings is None:
            return frozenset(statefulsets)
        desired = self._previous(len(statefulsets)).desired or 0
        return frozenset({*statefulsets, *range(max(settings.min, min(desired, settings.largest)))})

    async def ensure(
        self, state: ClusterState, authorities: str, pending: list[PendingDisruption]
    ) -> ReadReplicasStatus | None:
        """Advance by one step. Return the status; None without `spec.readReplicas`.

        Args:
            authorities: of the cluster's servers, in PEM.
            pending: receives the disruptions that wait for a maintenance window.
        """
        if self._cluster is None:
            return None
        objects, settings = await self._observe(), self._settings
        if settings is None:
            await self._remove(objects, objects.numbers, "spec.readReplicas is removed")
            await self._context.delete_if_controlled(ConfigMap, self._names.read_replica_configuration)
            return None
        previous, now = self._previous(len(objects.statefulsets)), state.now
        if self._context.declared.hibernated:
            await self._apply_existing(state, objects, pending, replicas=0)
            stopped = replace(previous, ready=0, reason="Hibernated", message="the cluster is hibernated")
            return replace(stopped, scale_out_since=None, scale_in_since=None)
        if state.members.settings is None:
            return previous
        desired_pods = await self._apply_existing(state, objects, pending, replicas=1)
        replicas = await self._replicas(objects, desired_pods, now, authorities)
        resources = self._context.declared.pod_settings.resources
        load = observed_load(settings, replicas, {**resources.limits, **resources.requests})
        settling = any(r.is_settling for r in replicas) or len(objects.statefulsets) < (previous.desired or 0)
        status = next_status(settings, previous, load, settling=settling, now=now)
        changes = next_changes(status.desired or settings.min, replicas, stored=previous.desired)
        await self._change(state, objects, changes, status)
        return replace(status, ready=sum(r.ready for r in replicas))

    async def remove_all(self) -> None:
        """Delete all read replicas with their volumes."""
        if self._cluster is not None:
            objects = await self._observe()
            await self._remove(objects, objects.numbers, "the cluster is deleted")

    def _previous(self, existing: int) -> ReadReplicasStatus:
        """Return the last status. A lost one is derived from what exists."""
        found = None if self._cluster is None else self._cluster.status.read_replicas
        found = found or ReadReplicasStatus()
        return found if found.desired is not None else replace(found, desired=existing or None)

    async def _observe(self) -> ReadReplicaObjects:
        statefulsets = await self._numbered(StatefulSet)
        pods = {
            number: pod
            for number, pod in (await self._numbered(Pod)).items()
            if (reference := pod.controller_reference) is not None
            and number in statefulsets
            and reference.uid == statefulsets[number].metadata.uid
        }
        owned = {n: s for n, s in statefulsets.items() if self._context.controls(s)}
        pvcs = await self._numbered(PersistentVolumeClaim)
        return ReadReplicaObjects(owned, pods, {n: c for n, c in pvcs.items() if self._context.controls(c)})

    async def _numbered(self, kind: type[T]) -> dict[int, T]:
        group = f"{self._names.key.namespace}/{self._names.read_replica_group}"
        found = await self._context.client.list(kind, index=(CLUSTER_INDEX, group))
        labels = ((obj, obj.metadata.labels.get(READ_REPLICA_LABEL, "")) for obj in found)
        return {int(label): obj for obj, label in labels if label.isascii() and label.isdecimal()}

    async def _apply_existing(
        self, state: ClusterState, objects: ReadReplicaObjects, pending: list[PendingDisruption], *, replicas: int
    ) -> Mapping[int, str]:
        """Apply the existing objects. Return the hash of the desired pods by number."""
        await self._apply_configuration(state)
        hashes = dict[int, str]()
        for number, present in objects.statefulsets.items():
            if present.metadata.deletion_timestamp is not None:
                continue
            desired = self._desired(state, number, present, replicas=replicas)
            if self._context.declared.waits_for_window and is_unrequested(present, desired):
                name = present.metadata.name
                pending.append(PendingDisruption(instance=name, type="Recreate", reason=NEWER_TEMPLATE))
                applied = present
            else:
                applied = await self._context.apply(StatefulSet, desired)
            hashes[number] = applied.spec.template.metadata.annotations.get(POD_HASH, "")
            if (pvc := objects.pvcs.get(number)) is not None:
                await self._grow(pvc)
            else:
                # A user deleted it to get a new copy.
                await self._create_volume(number)
        return hashes

    async def _apply_configuration(self, state: ClusterState) -> None:
        settings: Any = state.members.settings
        declared = self._settings
        if settings is not None and declared is not None:
            seconds = declared.max_lag.seconds
            await self._context.apply(
                ConfigMap, read_replica_configuration(self._context.declared, settings, seconds)
            )

    def _desired(
        self, state: ClusterState, number: int, present: StatefulSet | None, *, replicas: int
    ) -> apps.StatefulSet:
        containers = () if present is None else present.spec.template.spec.containers
        image = pooler_image(self._context.declared, state, next((c.image or "" for c in containers), ""))
        return read_replica_statefulset(self._context.declared, number, image=image, replicas=replicas)

    async def _replicas(
        self, objects: ReadReplicaObjects, desired_pods: Mapping[int, str], now: datetime, authorities: str
    ) -> Sequence[ReadReplica]:
        pods = [objects.pods.get(number) for number in objects.numbers]
        reports = await asyncio.gather(*(self._report(pod, authorities) for pod in pods))
        return [
            _read_replica(number, objects, report, desired_pods, now)
            for number, report in zip(objects.numbers, reports, strict=True)
        ]

    async def _report(self, pod: Pod | None, authorities: str) -> ReadReplicaReport | None:
        if pod is None or not pod.status.pod_ip or self._get_report is None:
            return None
        try:
            return await self._get_report(ServerEndpoint(pod.status.pod_ip, patroni.REST_PORT), authorities)
        except EngineError:
            return None

    async def _change(
        self, state: ClusterState, objects: ReadReplicaObjects, changes: Changes, status: ReadReplicasStatus
    ) -> None:
        await self._remove(objects, changes.remove, status.message or "")
        primary = state.primary
        if primary is None or not primary.pod_ready:
            # Nothing can be copied, and a read replica that runs serves reads.
            return
        if changes.create is not None and _has_slot(state, changes.create):
            await self._create(state, changes.create, status.message or "")
        if changes.replace is not None:
            await self._replace(objects, changes.replace)
        elif changes.recreate is not None and (pod := objects.pods.get(changes.recreate)) is not None:
            await self._context.delete(Pod, pod)
            name = self._names.read_replica(changes.recreate).name
            self._context.events.normal(
                self._context.cluster, "Restarted", f"restarted read replica {name}: its pod template changed"
            )

    async def _replace(self, objects: ReadReplicaObjects, number: int) -> None:
        """Delete volume and pod of a read replica.

        It then takes a copy elsewhere.
        """
        name, pod, pvc = self._names.read_replica(number).name, objects.pods.get(number), objects.pvcs.get(number)
        if pvc is not None and pvc.metadata.deletion_timestamp is None:
            await self._context.delete(PersistentVolumeClaim, pvc)
            self._context.events.warning(
                self._context.cluster,
                "InstanceReplaced",
                f"read replica {name} gets another volume: its pod cannot be scheduled",
            )
        if pod is not None and pod.metadata.deletion_timestamp is None:
            await self._context.delete(Pod, pod)

    async def _create(self, state: ClusterState, number: int, reason: str) -> None:
        if await self._create_volume(number):
            await self._context.apply(StatefulSet, self._desired(state, number, None, replicas=1))
            name = self._names.read_replica(number).name
            self._context.events.normal(
                self._context.cluster, "ReadReplicaAdded", f"added read replica {name}: {reason}"
            )

    async def _create_volume(self, number: int) -> bool:
        """Create the PVC. Return True if it exists and can be used."""
        config = read_replica_volume(self._context.declared, number)
        try:
            await self._context.client.create(config, owner=self._context.cluster)
        except AlreadyExists:
            present = await self._context.client.live.get(PersistentVolumeClaim, config.key)
            present = await self._context.require_control(PersistentVolumeClaim, present)
            return present.metadata.deletion_timestamp is None
        self._context.emit_created(PersistentVolumeClaim, config.key)
        return True

    async def _grow(self, pvc: PersistentVolumeClaim) -> None:
        size = volume_size(self._context.declared)
        if pvc.metadata.deletion_timestamp is not None or size <= Quantity(
            str(pvc.spec.resources.requests.get("storage", "0"))
        ):
            return
        body = {"spec": {"resources": {"requests": {"storage": str(size)}}}}
        try:
            await self._context.client.patch(PersistentVolumeClaim, pvc.key, MergePatch(body))
        except (Forbidden, Invalid):
            # The condition VolumesResized reports it for the instances, whose storage class is the same.
            return

    async def _remove(self, objects: ReadReplicaObjects, numbers: Sequence[int], reason: str) -> None:
        """Delete StatefulSets, then PVCs, which exist until their pods have ended."""
        for number in numbers:
            stateful, pvc = objects.statefulsets.get(number), objects.pvcs.get(number)
            if stateful is not None and stateful.metadata.deletion_timestamp is None:
                await self._context.delete(StatefulSet, stateful)
                name = self._names.read_replica(number).name
                self._context.events.normal(
                    self._context.cluster, "ReadReplicaRemoved", f"removed read replica {name}: {reason}"
                )
            if pvc is not None and pvc.metadata.deletion_timestamp is None:
                await self._context.delete(PersistentVolumeClaim, pvc)


def _read_replica(
    number: int,
    objects: ReadReplicaObjects,
    report: ReadReplicaReport | None,
    desired_pods: Mapping[int, str],
    now: datetime,
) -> ReadReplica:
    stateful, pod = objects.statefulsets.get(number), objects.pods.get(number)
    exists = stateful is not None and stateful.metadata.deletion_timestamp is None
    created = (pod or stateful or objects.pvcs[number]).metadata.creation_timestamp
    ends = pod is not None and pod.metadata.deletion_timestamp is not None
    desired = desired_pods.get(number, "")
    return ReadReplica(
        number=number,
        exists=exists,
        ready=pod is not None and not ends and is_true(pod.status.conditions, "Ready"),
        outdated=pod is not None and not ends and bool(desired) and pod.metadata.annotations.get(POD_HASH) != desired,
        age=timedelta(0) if created is None else now - created,
        unscheduled=_unscheduled_for(pod, objects.pvcs.get(number), now),
        report=report,
    )


def _unscheduled_for(pod: Pod | None, pvc: PersistentVolumeClaim | None, now: datetime) -> timedelta:
    """Return how long a pod with a bound volume is unschedulable."""
    bound = pvc is not None and pvc.status.phase == "Bound"
    conditions = () if pod is None or not bound else pod.status.conditions
    failed = (c for c in conditions if c.type == "PodScheduled" and c.status == "False")
    since = next((c.last_transition_time for c in failed if c.last_transition_time is not None), None)
    return timedelta(0) if since is None else now - since


def _has_slot(state: ClusterState, number: int) -> bool:
    """Return True if the members' configuration declares the slot.

    No primary drops it then.
    """
    settings: Any = state.members.settings or {}
    return read_replica_slot(number) in settings.get("slots", {})
