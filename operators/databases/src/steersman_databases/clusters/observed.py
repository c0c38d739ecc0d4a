"""A cluster as it is: its instances with their objects, and what the members say."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import TypeVar

from steersman.api.apps_v1 import StatefulSet
from steersman.api.core_v1 import PersistentVolumeClaim, PersistentVolumeClaimCondition, Pod
from steersman.meta import Object, is_true
from steersman_databases.engines.cluster_names import INSTANCE_LABEL, ClusterNames
from steersman_databases.engines.topology import Member, Members

RESTART_HASH = "databases.steersman.dev/restart-hash"
"""On templates and pods: the hash of what the user declared of the pod."""
PULL_HASH = "databases.steersman.dev/pull-hash"
"""On templates and pods: the hash of how the user declared that images are pulled; absent where nothing is said."""
FENCED = "databases.steersman.dev/fenced"
"""On templates and pods: ``"true"`` where no server is started."""
MAJOR_LABEL = "databases.steersman.dev/major"
"""On claims: the version of the data."""
RETIRED = "databases.steersman.dev/retired"
"""On claims: they belonged to an instance that was scaled in or replaced, and are not used again."""
OUT_OF_SERVICE = "node.kubernetes.io/out-of-service"
"""The taint by which a person says that a node does not come back. Source: Kubernetes, non-graceful node shutdown."""

T = TypeVar("T", bound=Object)


@dataclass(frozen=True, slots=True, kw_only=True)
class Instance:
    """One instance and what there is of it. ``wal`` is its second claim, where one is declared.

    ``home_lost``: its volume is tied to a node that is gone. ``estranged``: what it trusts and shows is signed by
    authorities that are lost, and it cannot be told to read the present ones. ``outpaced``: the log is gone that it
    needs to follow. ``known`` is what is known of why it does not, a clause.
    """

    number: int
    statefulset: StatefulSet | None = None
    pod: Pod | None = None
    data: PersistentVolumeClaim | None = None
    wal: PersistentVolumeClaim | None = None
    member: Member | None = None
    home_lost: bool = False
    estranged: bool = False
    outpaced: bool = False
    known: str = ""

    @property
    def is_own(self) -> bool:
        """Whether its pod is one of its StatefulSet's, and no stranger's that bears the same labels."""
        reference = None if self.pod is None else self.pod.controller_reference
        return (
            reference is not None and self.statefulset is not None and reference.uid == self.statefulset.metadata.uid
        )

    @property
    def is_unadopted(self) -> bool:
        """Whether its pod is nobody's: somebody deleted its StatefulSet without it, and no other has taken it yet."""
        return self.pod is not None and self.pod.controller_reference is None

    @property
    def mounted(self) -> Sequence[str]:
        """The names of the claims that its StatefulSet has its pod use."""
        volumes = () if self.statefulset is None else self.statefulset.spec.template.spec.volumes
        return [v.persistent_volume_claim.claim_name for v in volumes if v.persistent_volume_claim is not None]

    @property
    def pod_ends(self) -> bool:
        """Whether its pod is on the way out."""
        return self.pod is not None and self.pod.metadata.deletion_timestamp is not None

    @property
    def pod_ready(self) -> bool:
        """Whether the kubelet says that its pod serves."""
        if self.pod is None or self.pod_ends:
            return False
        return is_true(self.pod.status.conditions, "Ready")

    @property
    def leaves(self) -> bool:
        """Whether its claims are marked and its StatefulSet is there: its removal was cut off in between."""
        if self.statefulset is None or self.statefulset.metadata.deletion_timestamp is not None:
            return False
        return any(is_retired(c) for c in (self.data, self.wal) if c is not None)

    @property
    def grows_when_started(self) -> bool:
        """Whether one of its volumes has become larger, and its file system follows when a pod starts."""
        return bool(self._growing())

    def missed_growth(self, now: datetime, for_: timedelta) -> bool:
        """Whether its pod has been there since before, and that has lasted ``for_``: it is no growth under way."""
        since = [c.last_transition_time for c in self._growing() if c.last_transition_time is not None]
        made = None if self.pod is None or self.pod_ends else self.pod.metadata.creation_timestamp
        return made is not None and any(made < time <= now - for_ for time in since)

    def _growing(self) -> Sequence[PersistentVolumeClaimCondition]:
        claims = [c for c in (self.data, self.wal) if c is not None]
        return [
            condition
            for claim in claims
            for condition in claim.status.conditions
            if condition.type == "FileSystemResizePending" and condition.status == "True"
        ]

    @property
    def without_room(self) -> bool:
        """Whether its server, once stopped, may not come up: a volume is full, and a start makes it no larger."""
        return self.member is not None and self.member.full and not self.grows_when_started

    @property
    def stopped(self) -> bool:
        """Whether its StatefulSet was told to run no pod."""
        return self.statefulset is not None and self.statefulset.spec.replicas == 0

    @property
    def image(self) -> str:
        """What its pod runs; nothing where there is none."""
        return next((c.image or "" for c in self.pod.spec.containers), "") if self.pod is not None else ""

    @property
    def hash(self) -> str:
        """Of what was declared when its pod was made."""
        return "" if self.pod is None else self.pod.metadata.annotations.get(RESTART_HASH, "")

    @property
    def fenced(self) -> bool:
        """Whether its pod runs no server."""
        return self.pod is not None and self.pod.metadata.annotations.get(FENCED) == "true"

    def follows(self, primary: Member) -> bool:
        """Whether it serves, as ``primary`` or streaming from it on its timeline."""
        member = self.member
        if member is None or not self.pod_ready or self.fenced:
            return False
        if member.instance == primary.instance:
            return True
        return member.role == "Replica" and member.state == "Streaming" and member.timeline == primary.timeline

    def unready_for(self, now: datetime) -> timedelta:
        """How long its pod has not been ready; nothing where it is, or where there is none."""
        if self.pod is None or self.pod_ready:
            return timedelta(0)
        since = self.pod.metadata.creation_timestamp
        for condition in self.pod.status.conditions:
            if condition.type == "Ready" and condition.last_transition_time is not None:
                since = condition.last_transition_time
        return timedelta(0) if since is None else now - since

    def has_run_for(self, least: timedelta, now: datetime) -> bool:
        """Whether its server's container has run for so long, or has ended: who has no node has tried nothing."""
        for container in () if self.pod is None else self.pod.status.container_statuses:
            if container.state.terminated is not None or container.last_state.terminated is not None:
                return True
            running = container.state.running
            if running is not None and running.started_at is not None and now - running.started_at > least:
                return True
        return False

    @property
    def last_words(self) -> str:
        """What its server's container said as it last ended, whether or not it runs again."""
        for container in () if self.pod is None else self.pod.status.container_statuses:
            if (ended := container.state.terminated or container.last_state.terminated) is not None:
                return (ended.message or "").strip()
        return ""

    @property
    def exit_code(self) -> int | None:
        """What its server's container last ended with, where it does not run now: it may be well on its way since."""
        for container in () if self.pod is None else self.pod.status.container_statuses:
            if container.state.running is not None:
                continue
            if (ended := container.state.terminated or container.last_state.terminated) is not None:
                return ended.exit_code
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """The last switchover that was decided: to which instance, when, and for which declaration.

    ``sent``: the members were asked, and not only about to be when something cut it. ``ended``: somebody has seen how
    it went. ``before`` are those who refused it for the same declaration.
    """

    to: int
    at: datetime
    declared: str
    sent: bool
    ended: bool
    before: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class Observed:
    """All instances of a cluster by number, what its members say, and when it was looked.

    ``used`` are all the numbers that something bears, retired claims too. ``attempt`` did not succeed, or not yet.
    ``misread``: of what servers read as they start one that runs could not read all; None where nobody knows.
    """

    instances: Sequence[Instance]
    members: Members
    used: frozenset[int]
    now: datetime
    attempt: Attempt | None = None
    misread: bool | None = None

    @property
    def primary(self) -> Instance | None:
        """The instance that serves as primary, ready or not."""
        member = self.members.primary
        return None if member is None else self.instance(member.instance)

    def instance(self, number: int) -> Instance | None:
        return next((i for i in self.instances if i.number == number), None)

    def with_estranged(self, pods: Container[str]) -> Observed:
        """The same, of which the pods with these UIDs are estranged."""
        told = [replace(i, estranged=i.pod is not None and i.pod.metadata.uid in pods) for i in self.instances]
        return replace(self, instances=told)

    def replicas(self) -> Iterator[Instance]:
        """All but the primary."""
        primary = self.members.primary
        return (i for i in self.instances if primary is None or i.number != primary.instance)

    @property
    def next_number(self) -> int:
        """The number of an instance that would be made now."""
        return max(self.used, default=-1) + 1


def number_of(obj: Object) -> int | None:
    """The instance that ``obj`` bears the number of."""
    label = obj.metadata.labels.get(INSTANCE_LABEL, "")
    return int(label) if label.isascii() and label.isdecimal() else None


def is_claim_of(names: ClusterNames, claim: PersistentVolumeClaim) -> bool:
    """Whether an instance of the cluster is made with it: a copy of one bears its labels, but not its name."""
    return number_of(claim) is not None and names.claimed(claim.metadata.name) is not None


def is_retired(claim: PersistentVolumeClaim) -> bool:
    """Whether it is marked: no instance is made with it again."""
    return RETIRED in claim.metadata.labels


def is_in_use(claim: PersistentVolumeClaim, with_statefulset: Container[int | None]) -> bool:
    """Whether an instance uses it, or will. Beside its StatefulSet it does so marked, too: see `Instance.leaves`."""
    return not is_retired(claim) or number_of(claim) in with_statefulset


def is_lost(instance: Instance) -> bool:
    """Whether a volume of it is gone, or will be as soon as no pod uses it."""
    has_wal = instance.wal is not None or any(name.startswith("wal-") for name in instance.mounted)
    claims = [instance.data, instance.wal] if has_wal else [instance.data]
    return any(c is None or c.status.phase == "Lost" or c.metadata.deletion_timestamp is not None for c in claims)


def observe(
    *,
    statefulsets: Iterable[StatefulSet],
    pods: Iterable[Pod],
    claims: Iterable[PersistentVolumeClaim],
    members: Members,
    now: datetime,
    lost_homes: frozenset[int] = frozenset(),
) -> Observed:
    """Puts a cluster together. All objects are the cluster's own; ``lost_homes`` as in `Instance.home_lost`."""
    present = list(claims)
    stateful, running = _by_number(statefulsets), _by_number(pods)
    in_use = [c for c in present if is_in_use(c, stateful)]
    data = _by_number(c for c in in_use if c.metadata.name.startswith("data-"))
    wal = _by_number(c for c in in_use if c.metadata.name.startswith("wal-"))
    instances = tuple(
        Instance(
            number=n,
            statefulset=stateful.get(n),
            pod=running.get(n),
            data=data.get(n),
            wal=wal.get(n),
            member=members.member(n),
            home_lost=n in lost_homes,
        )
        for n in sorted({*stateful, *data})
    )
    used = {*stateful, *running, *_by_number(present)}
    return Observed(instances=instances, members=members, used=frozenset(used), now=now)


def _by_number(objects: Iterable[T]) -> Mapping[int, T]:
    return {n: obj for obj in objects if (n := number_of(obj)) is not None}
