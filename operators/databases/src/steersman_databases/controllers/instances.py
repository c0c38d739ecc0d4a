"""The instances of a cluster: what there is of them, their StatefulSets, and the planner's steps carried out."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TypeVar

from steersman.api.apps_v1 import StatefulSet
from steersman.api.core_v1 import ConfigMap, Node, PersistentVolume, PersistentVolumeClaim, Pod
from steersman.errors import NotFound
from steersman.meta import Object, ObjectKey
from steersman_databases.clusters.observed import (
    OUT_OF_SERVICE,
    Instance,
    Observed,
    is_claim_of,
    is_in_use,
    observe,
)
from steersman_databases.clusters.rollout import wanted_image
from steersman_databases.clusters.steps import (
    BeginAnew,
    CreateInstance,
    KeepInstance,
    RenewPod,
    RestartServer,
    RetireInstance,
    StartInstance,
    Step,
    StopInstance,
    SwitchOver,
)
from steersman_databases.controllers.declaring import Charge, is_owned
from steersman_databases.controllers.lookup import find, find_live
from steersman_databases.controllers.restarts import Restarts
from steersman_databases.controllers.volumes import Volumes
from steersman_databases.engines.cluster import ClusterEngine
from steersman_databases.engines.topology import Member, Members, Topology
from steersman_databases.resources.instance import InstancePlan, instance_statefulset
from steersman_databases.resources.labels import belongs_to, cluster_labels

T = TypeVar("T", bound=Object)

CLUSTER_INDEX = "cluster"
"""The index of cached objects by the cluster that they belong to, ``namespace/name``."""
_HOSTNAME = "kubernetes.io/hostname"


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What there is of a cluster. ``claims`` are all, retired ones too."""

    observed: Observed
    claims: Sequence[PersistentVolumeClaim]

    @property
    def in_use(self) -> Sequence[PersistentVolumeClaim]:
        """The claims of data that are wanted and not on their way out."""
        return [c for c in self.present if c.metadata.deletion_timestamp is None]

    @property
    def present(self) -> Sequence[PersistentVolumeClaim]:
        """The same, and those that go as soon as no pod uses them: what belongs to them is still of use."""
        stateful = {i.number for i in self.observed.instances if i.statefulset is not None}
        return [c for c in self.claims if is_in_use(c, stateful)]


class Instances:
    """Looks at the instances of one cluster, and does to them what the planner says."""

    def __init__(
        self, charge: Charge, engine: ClusterEngine, topology: Topology, restarts: Restarts | None = None
    ) -> None:
        self._charge = charge
        self._view = charge.view
        self._engine = engine
        self._topology = topology
        self._restarts = restarts or Restarts(charge.clock)
        self._volumes = Volumes(charge)

    async def regain(self) -> Seen:
        """All that there is; what is in use and not in the cache has got back the labels that it had lost."""
        seen = await self.look()
        claims, store = await self._volumes.regain(seen.observed), await self._regain_store(seen.claims)
        return await self.look(claims, store) if claims or store else seen

    async def _regain_store(self, claims: Sequence[PersistentVolumeClaim]) -> Sequence[ConfigMap]:
        """What the members agree in, where it was not seen: without it, nobody would seem to lead."""
        found = list[ConfigMap]()
        for key in self._view.store.every if claims else ():
            present = await find(self._charge.client, ConfigMap, key)
            if present is None or belongs_to(present, self._view) or not is_owned(present, claims):
                continue
            if present.metadata.deletion_timestamp is None:
                with suppress(NotFound):
                    found.append(await self._charge.label_again(ConfigMap, present, cluster_labels(self._view)))
        return found

    async def look(self, unseen: Sequence[PersistentVolumeClaim] = (), store: Sequence[ConfigMap] = ()) -> Seen:
        """All that there is, from the cache, which does not have ``unseen``, and of the store ``store``."""
        view = self._view
        statefulsets = [s for s in await self._ours(StatefulSet) if self._charge.controls(s)]
        pods = await self._ours(Pod)
        claims = {c.key: c for c in (*await self._ours(PersistentVolumeClaim), *unseen)}.values()
        agreed = {c.key: c for c in (*await self._ours(ConfigMap), *store) if c.key in view.store.every}
        members = self._topology.observe(view.key, pods, list(agreed.values()))
        numbered = [c for c in claims if is_claim_of(view.names, c)]
        seen = observe(
            statefulsets=statefulsets, pods=pods, claims=numbered, members=members, now=self._charge.clock.now()
        )
        lost = {i.number for i in seen.replicas() if await self._has_lost_its_node(i)}
        if lost:
            seen = observe(
                statefulsets=statefulsets,
                pods=pods,
                claims=numbered,
                members=members,
                now=seen.now,
                lost_homes=frozenset(lost),
            )
        return Seen(observed=seen, claims=numbered)

    async def _ours(self, kind: type[T]) -> Sequence[T]:
        found = await self._charge.client.list(kind, index=(CLUSTER_INDEX, str(self._view.key)))
        return [obj for obj in found if belongs_to(obj, self._view)]

    async def _has_lost_its_node(self, instance: Instance) -> bool:
        """Whether its volume is on a node that is gone, or that somebody said will not come back."""
        if instance.pod_ready or instance.data is None or not instance.data.spec.volume_name:
            return False
        key = ObjectKey("", instance.data.spec.volume_name)
        volume = await find_live(self._charge.client, PersistentVolume, key)
        homes = () if volume is None else _homes(volume)
        for home in homes:
            nodes = await self._charge.client.live.list(Node, label_selector=f"{_HOSTNAME}={home}")
            if not all(any(t.key == OUT_OF_SERVICE for t in n.spec.taints) for n in nodes.items):
                return False
        return bool(homes)

    async def ensure(self, observed: Observed) -> None:
        """Declares the StatefulSets that are there. With ``OnDelete`` that restarts nothing."""
        for instance in observed.instances:
            if instance.statefulset is not None:
                await self._declare(observed, instance, replicas=0 if instance.stopped else 1)

    async def carry_out(self, step: Step, observed: Observed) -> None:
        """Does one step; that it was done is seen when somebody looks again."""
        match step:
            case CreateInstance(number):
                await self._create(observed, number)
            case BeginAnew(number):
                await self._topology.forget_data(observed.members)
                self._tell("Started", f"had instance {self._name(number)} begin anew: its first start was cut off")
            case StartInstance(number):
                await self._declare(observed, self._instance(observed, number), replicas=1)
                self._tell("Started", f"started instance {self._name(number)}")
            case StopInstance(number):
                await self._declare(observed, self._instance(observed, number), replicas=0)
                self._tell("Stopped", f"stopped instance {self._name(number)}")
            case RenewPod(number, because):
                await self._renew(observed, number, because)
            case RetireInstance():
                await self._retire(observed, step)
            case KeepInstance(number):
                await self._volumes.keep(self._instance(observed, number))
            case SwitchOver(to, because):
                await self._topology.switch_over(observed.members, to)
                self._tell("Switchover", f"asked {self._name(to)} to take over: {because}")
            case RestartServer(number, because):
                member = observed.members.member(number)
                assert member is not None
                if not self._restarts.is_told(member.pod) and await self._waits_for_restart(member):
                    await self._topology.restart_server(observed.members, member)
                    self._restarts.tell(member.pod)
                    self._tell("Restarted", f"restarted the server of {self._name(number)}: {because}")
            case _:
                raise AssertionError(step)

    async def _waits_for_restart(self, member: Member) -> bool:
        """As its pod says it now: what was observed may be from before it has restarted."""
        pod = await find_live(self._charge.client, Pod, member.pod)
        found = self._topology.observe(self._view.key, () if pod is None else (pod,), ())
        return any(one.pending_restart for one in found.members)

    async def _create(self, observed: Observed, number: int) -> None:
        # Claims first: what surrounds the instances is owned by them and declared before the pod starts.
        if not await self._volumes.create(number) and (instance := observed.instance(number)) is not None:
            await self._declare(observed, instance, replicas=1)

    async def _declare(self, observed: Observed, instance: Instance, *, replicas: int) -> None:
        plan = InstancePlan(
            number=instance.number,
            image=wanted_image(self._view, observed, instance),
            fenced=self._view.requests.fences(instance.number),
            replicas=replicas,
        )
        parts = self._engine.pod(self._view, instance.number, fenced=plan.fenced)
        await self._charge.declare(StatefulSet, instance_statefulset(self._view, plan, parts))

    async def _renew(self, observed: Observed, number: int, because: str) -> None:
        pod = self._instance(observed, number).pod
        if pod is not None:
            await self._charge.delete(Pod, pod)
            self._tell("Restarted", f"restarted instance {self._name(number)}: {because}")

    async def _retire(self, observed: Observed, step: RetireInstance) -> None:
        instance = self._instance(observed, step.instance)
        if (await live_members(self._charge, self._topology)).leader == step.instance != observed.members.leader:
            # It has just taken over, and may be the only one with all that was committed.
            return
        # The claims first: without a mark they would be found, and the instance made again, were this cut here.
        await self._volumes.retire(instance)
        if instance.statefulset is not None and instance.statefulset.metadata.deletion_timestamp is None:
            await self._charge.delete(StatefulSet, instance.statefulset)
        name = self._name(step.instance)
        if step.failed:
            self._charge.events.warning(
                self._charge.cluster, "InstanceReplaced", f"{name} is replaced: {step.because}"
            )
        else:
            self._tell("ScaledIn", f"removed instance {name}: {step.because}")

    def _instance(self, observed: Observed, number: int) -> Instance:
        found = observed.instance(number)
        assert found is not None
        return found

    def _name(self, number: int) -> str:
        return self._view.names.instance(number)

    def _tell(self, reason: str, message: str) -> None:
        self._charge.events.normal(self._charge.cluster, reason, message)


async def live_members(charge: Charge, topology: Topology) -> Members:
    """Who leads, as the API server has it and not the cache. Neither the pods nor what else the store says."""
    lock = await find_live(charge.client, ConfigMap, charge.view.store.leader)
    return topology.observe(charge.view.key, (), () if lock is None else (lock,))


def _homes(volume: PersistentVolume) -> Sequence[str]:
    """The host names of the nodes that a volume is tied to; none where it can be anywhere."""
    affinity = volume.spec.node_affinity
    terms = () if affinity is None or affinity.required is None else affinity.required.node_selector_terms
    homes = [
        [v for e in t.match_expressions if (e.key, e.operator) == (_HOSTNAME, "In") for v in e.values] for t in terms
    ]
    # Terms are alternatives: one that names no host lets the volume be elsewhere.
    return [host for term in homes for host in term] if all(homes) else ()
