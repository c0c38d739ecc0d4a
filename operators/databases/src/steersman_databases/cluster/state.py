"""Observed state of a cluster: instances, their objects, member status."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import TypeVar

from steersman.api.apps_v1 import StatefulSet
from steersman.api.core_v1 import PersistentVolumeClaim, PersistentVolumeClaimCondition, Pod, PodTemplateSpec
from steersman.meta import Object, is_true
from steersman_databases.engines.members import Member, Members
from steersman_databases.engines.naming import INSTANCE_LABEL, ClusterNames
from steersman_databases.engines.server_pod import server_statuses

RESTART_HASH = "databases.steersman.dev/restart-hash"
"""On templates and pods: hash of the declared fields of the pod."""
RESIZABLE_HASH = "databases.steersman.dev/restart-hash-without-resources"
"""On templates and pods: the same hash without the resources.

A running pod can change these.
"""
PULL_HASH = "databases.steersman.dev/image-pull-hash"
"""On templates and pods: hash of the image pull settings, if declared."""
IMAGE = "databases.steersman.dev/image"
"""On templates and pods: image of the server before admission.

A webhook may rewrite that of the container.
"""
FENCED_INSTANCE = "databases.steersman.dev/fenced"
"""On templates and pods: `"true"` if no server is started."""
MAJOR_LABEL = "databases.steersman.dev/major-version"
"""On PVCs: major version of the data."""
RETIRED = "databases.steersman.dev/removed-at"
"""On PVCs of removed or replaced instances: they are not used again."""
AWAITING_RECOVERY = "databases.steersman.dev/awaiting-recovery"
"""On data PVCs: UID of the cluster whose recovery fills the volume.

No server starts on it before that.
"""
AWAITING_COPY = "databases.steersman.dev/awaiting-copy"
"""On data PVCs of new replicas until their copy is complete."""
LINEAGE = "databases.steersman.dev/lineage"
"""Annotation of data PVCs: number of restores in place behind their data.

The highest number is that of the cluster's data. Without the annotation it is 0.
"""
RESTORING = "databases.steersman.dev/restoring"
"""Annotation of data PVCs: UID of the `Restore` that fills the volume.

The instance does not exist for the cluster before that. One write then removes this and sets the lineage.
"""
OVERWRITING = "databases.steersman.dev/overwriting"
"""Annotation of data PVCs: UID of the `Restore` that overwrites the data.

No server starts on it before that is complete. Nothing leads back to the previous data.
"""
OUT_OF_SERVICE_TAINT = "node.kubernetes.io/out-of-service"
"""Taint that declares a node lost. Source: Kubernetes, non-graceful node shutdown."""

T = TypeVar("T", bound=Object)


@dataclass(frozen=True, slots=True, kw_only=True)
class Instance:
    """One instance with its objects. `wal_pvc` is its second PVC, if one is declared.

    Attributes:
        home_lost: its volume is bound to a node that is gone.
        distrusts_ca: its certificates are signed by lost authorities, and it cannot reload the present ones.
        wal_gap: the primary no longer has the WAL that it needs.
        known: why it does not follow, as a clause.
    """

    ordinal: int
    statefulset: StatefulSet | None = None
    pod: Pod | None = None
    data: PersistentVolumeClaim | None = None
    wal: PersistentVolumeClaim | None = None
    member: Member | None = None
    node_lost: bool = False
    distrusts_ca: bool = False
    wal_missing: bool = False
    not_following_reason: str = ""

    @property
    def lineage(self) -> int:
        """Number of restores in place behind its data."""
        text = "" if self.data is None else self.data.metadata.annotations.get(LINEAGE, "")
        return int(text) if text.isascii() and text.isdecimal() else 0

    @property
    def restoring(self) -> str:
        """UID of the `Restore` that fills its volume, or ""."""
        return "" if self.data is None else self.data.metadata.annotations.get(RESTORING, "")

    @property
    def overwriting(self) -> str:
        """UID of the `Restore` that overwrites its data, or ""."""
        return "" if self.data is None else self.data.metadata.annotations.get(OVERWRITING, "")

    @property
    def is_controlled(self) -> bool:
        """Return True if its StatefulSet controls its pod.

        Foreign pods can have the same labels.
        """
        reference = None if self.pod is None else self.pod.controller_reference
        return (
            reference is not None and self.statefulset is not None and reference.uid == self.statefulset.metadata.uid
        )

    @property
    def is_orphan(self) -> bool:
        """Return True if its pod has no controller.

        Its StatefulSet was deleted without the pod, and is not recreated yet.
        """
        return self.pod is not None and self.pod.controller_reference is None

    @property
    def mounted_pvcs(self) -> Sequence[str]:
        """Names of the PVCs in its StatefulSet's template."""
        volumes = () if self.statefulset is None else self.statefulset.spec.template.spec.volumes
        return [v.persistent_volume_claim.claim_name for v in volumes if v.persistent_volume_claim is not None]

    @property
    def pod_terminating(self) -> bool:
        """Return True if its pod is terminating."""
        return self.pod is not None and self.pod.metadata.deletion_timestamp is not None

    @property
    def pod_ready(self) -> bool:
        """Return True if its pod is Ready."""
        if self.pod is None or self.pod_terminating:
            return False
        return is_true(self.pod.status.conditions, "Ready")

    @property
    def removal_interrupted(self) -> bool:
        """Return True if its PVCs are retired while its StatefulSet exists."""
        if self.statefulset is None or self.statefulset.metadata.deletion_timestamp is not None:
            return False
        return any(is_retired(c) for c in (self.data, self.wal) if c is not None)

    @property
    def resize_needs_restart(self) -> bool:
        """Return True if an expanded volume needs a restart.

        Its file system grows when a pod starts.
        """
        return bool(self._resizing_pvcs())

    def resize_missed(self, now: datetime, for_: timedelta) -> bool:
        """Return True if its pod has run since an expansion for `for_`.

        The resize is not in progress then.
        """
        since = [c.last_transition_time for c in self._resizing_pvcs() if c.last_transition_time is not None]
        pod_created = None if self.pod is None or self.pod_terminating else self.pod.metadata.creation_timestamp
        return pod_created is not None and any(pod_created < time <= now - for_ for time in since)

    def _resizing_pvcs(self) -> Sequence[PersistentVolumeClaimCondition]:
        pvcs = [c for c in (self.data, self.wal) if c is not None]
        return [
            condition
            for pvc in pvcs
            for condition in pvc.status.conditions
            if condition.type == "FileSystemResizePending" and condition.status == "True"
        ]

    @property
    def disk_full(self) -> bool:
        """Return True if a full volume might prevent a restart."""
        return self.member is not None and self.member.disk_full and not self.resize_needs_restart

    @property
    def stopped(self) -> bool:
        """Return True if its StatefulSet is scaled to zero."""
        return self.statefulset is not None and self.statefulset.spec.replicas == 0

    @property
    def image(self) -> str:
        """Requested image of its pod; empty without a pod."""
        return "" if self.pod is None else requested_image(self.pod)

    @property
    def restart_hash(self) -> str:
        """Hash of the declaration that its pod was created for."""
        return "" if self.pod is None else self.pod.metadata.annotations.get(RESTART_HASH, "")

    @property
    def fenced(self) -> bool:
        """Return True if its pod runs no server."""
        return self.pod is not None and self.pod.metadata.annotations.get(FENCED_INSTANCE) == "true"

    def is_following(self, primary: Member) -> bool:
        """Return True if it is `primary` or streams from it.

        The timeline must be the same.
        """
        member = self.member
        if member is None or not self.pod_ready or self.fenced:
            return False
        if member.instance == primary.instance:
            return True
        return member.role == "Replica" and member.state == "Streaming" and member.timeline == primary.timeline

    def unready_for(self, now: datetime) -> timedelta:
        """Time since its pod was Ready. Zero if it is, or without a pod."""
        if self.pod is None or self.pod_ready:
            return timedelta(0)
        since = self.pod.metadata.creation_timestamp
        for condition in self.pod.status.conditions:
            if condition.type == "Ready" and condition.last_transition_time is not None:
                since = condition.last_transition_time
        return timedelta(0) if since is None else now - since

    def has_run_for(self, least: timedelta, now: datetime) -> bool:
        """Return True if its container has run this long, or has ended.

        A pending pod has not tried anything.
        """
        for container in () if self.pod is None else server_statuses(self.pod):
            if container.state.terminated is not None or container.last_state.terminated is not None:
                return True
            running = container.state.running
            if running is not None and running.started_at is not None and now - running.started_at > least:
                return True
        return False

    @property
    def termination_message(self) -> str:
        """Last termination message of its server's container."""
        for container in () if self.pod is None else server_statuses(self.pod):
            if (terminated := container.state.terminated or container.last_state.terminated) is not None:
                return (terminated.message or "").strip()
        return ""

    @property
    def exit_code(self) -> int | None:
        """Last exit code of its server's container, unless it runs."""
        for container in () if self.pod is None else server_statuses(self.pod):
            if container.state.running is not None:
                continue
            if (terminated := container.state.terminated or container.last_state.terminated) is not None:
                return terminated.exit_code
        return None


def requested_image(pod: Pod | PodTemplateSpec) -> str:
    """Return the image of the server that the operator requested."""
    return pod.metadata.annotations.get(IMAGE) or next((c.image or "" for c in pod.spec.containers), "")


@dataclass(frozen=True, slots=True, kw_only=True)
class SwitchoverAttempt:
    """Last switchover that was decided: target, time, and declaration.

    `sent`: the members received the request. `ended`: its outcome was observed. `before` are targets that refused it
    for the same declaration.
    """

    to: int
    at: datetime
    declaration_id: str
    sent: bool
    has_ended: bool
    rejected_by: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterState:
    """Instances of a cluster by ordinal, member status, and time.

    `used` are all ordinals in use, retired PVCs included. `restoring` are volumes that a restore in place fills, and
    that are no instances yet. `attempt` has not succeeded, or not yet. With
    `config_unreadable`, a running server could not read some of the configuration that servers read at start;
    None if unknown.
    """

    instances: Sequence[Instance]
    members: Members
    used_ordinals: frozenset[int]
    now: datetime
    restoring: Sequence[Instance] = ()
    attempt: SwitchoverAttempt | None = None
    config_unreadable: bool | None = None

    @property
    def primary(self) -> Instance | None:
        """The primary, ready or not."""
        member = self.members.primary
        return None if member is None else self.instance(member.instance)

    @property
    def lineage(self) -> int:
        """Lineage of the cluster's data. Restores left others behind."""
        return max((i.lineage for i in self.instances), default=0)

    def instance(self, ordinal: int) -> Instance | None:
        return next((i for i in self.instances if i.ordinal == ordinal), None)

    def with_distrusting(self, pods: Container[str]) -> ClusterState:
        """Copy in which the pods with these UIDs distrust the current CA."""
        updated = [replace(i, distrusts_ca=i.pod is not None and i.pod.metadata.uid in pods) for i in self.instances]
        return replace(self, instances=updated)

    def replicas(self) -> Iterator[Instance]:
        """All instances except the primary."""
        primary = self.members.primary
        return (i for i in self.instances if primary is None or i.ordinal != primary.instance)

    @property
    def next_ordinal(self) -> int:
        """Ordinal of the next new instance."""
        return max(self.used_ordinals, default=-1) + 1


def ordinal_of(obj: Object) -> int | None:
    """Ordinal of the instance that `obj` belongs to."""
    label = obj.metadata.labels.get(INSTANCE_LABEL, "")
    return int(label) if label.isascii() and label.isdecimal() else None


def is_pvc_of(names: ClusterNames, pvc: PersistentVolumeClaim) -> bool:
    """Return True if an instance of the cluster uses this PVC. A copy has its labels, but not its name."""
    return ordinal_of(pvc) is not None and names.ordinal_of_pvc(pvc.metadata.name) is not None


def is_retired(pvc: PersistentVolumeClaim) -> bool:
    """Return True if the PVC is marked as retired."""
    return RETIRED in pvc.metadata.labels


def awaits_recovery(instance: Instance) -> bool:
    """Return True if a recovery must still fill the instance's volume."""
    return instance.data is not None and AWAITING_RECOVERY in instance.data.metadata.labels


def is_in_use(pvc: PersistentVolumeClaim, with_statefulset: Container[int | None]) -> bool:
    """Return True if an instance uses the PVC or will. With a StatefulSet this includes marked ones."""
    return not is_retired(pvc) or ordinal_of(pvc) in with_statefulset


def is_lost(instance: Instance) -> bool:
    """Return True if a volume is lost, or is being deleted."""
    has_wal = instance.wal is not None or any(name.startswith("wal-") for name in instance.mounted_pvcs)
    pvcs = [instance.data, instance.wal] if has_wal else [instance.data]
    return any(c is None or c.status.phase == "Lost" or c.metadata.deletion_timestamp is not None for c in pvcs)


def has_data(instance: Instance) -> bool:
    """Return True if its volume may have complete data."""
    data = instance.data
    return data is not None and data.status.phase != "Lost" and AWAITING_COPY not in data.metadata.labels


def served_identity(state: ClusterState) -> str:
    """Return the identity of the primary's data, or ""."""
    return "" if state.primary is None else state.members.data_identity


def build_state(
    *,
    statefulsets: Iterable[StatefulSet],
    pods: Iterable[Pod],
    pvcs: Iterable[PersistentVolumeClaim],
    members: Members,
    now: datetime,
    lost_nodes: frozenset[int] = frozenset(),
) -> ClusterState:
    """Build the state of a cluster. All objects belong to it. `lost_homes` as in `Instance.home_lost`."""
    present = list(pvcs)
    statefulsets_by_ordinal, pods_by_ordinal = _by_number(statefulsets), _by_number(pods)
    in_use = [c for c in present if is_in_use(c, statefulsets_by_ordinal)]
    data = _by_number(c for c in in_use if c.metadata.name.startswith("data-"))
    wal = _by_number(c for c in in_use if c.metadata.name.startswith("wal-"))
    found = tuple(
        Instance(
            ordinal=n,
            statefulset=statefulsets_by_ordinal.get(n),
            pod=pods_by_ordinal.get(n),
            data=data.get(n),
            wal=wal.get(n),
            member=members.member(n),
            node_lost=n in lost_nodes,
        )
        for n in sorted({*statefulsets_by_ordinal, *data})
    )
    used_ordinals = {*statefulsets_by_ordinal, *pods_by_ordinal, *_by_number(present)}
    return ClusterState(
        instances=tuple(i for i in found if not i.restoring),
        members=members,
        used_ordinals=frozenset(used_ordinals),
        now=now,
        restoring=tuple(i for i in found if i.restoring),
    )


def _by_number(objects: Iterable[T]) -> Mapping[int, T]:
    return {n: obj for obj in objects if (n := ordinal_of(obj)) is not None}
