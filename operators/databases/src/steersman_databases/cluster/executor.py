"""Observe instances, declare their StatefulSets, and execute planner actions."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TypeVar

from steersman.api.apps_v1 import StatefulSet
from steersman.api.core_v1 import ConfigMap, Node, PersistentVolume, PersistentVolumeClaim, Pod
from steersman.errors import NotFound
from steersman.meta import Object, ObjectKey
from steersman_databases.cluster.actions import (
    Action,
    CancelRemoval,
    CreateInstance,
    RecreatePod,
    RemoveInstance,
    RestartServer,
    RetryBootstrap,
    StartInstance,
    StopInstance,
    SwitchOver,
)
from steersman_databases.cluster.restart_cooldown import RestartCooldown
from steersman_databases.cluster.rules.rolling_update import target_image
from steersman_databases.cluster.state import (
    OUT_OF_SERVICE_TAINT,
    ClusterState,
    Instance,
    build_state,
    has_data,
    is_in_use,
    is_pvc_of,
    ordinal_of,
)
from steersman_databases.core.cached_reads import get_cached_or_live, get_live
from steersman_databases.core.context import ClusterContext, is_owned
from steersman_databases.core.labels import belongs_to, data_labels
from steersman_databases.engines.cluster_engine import ClusterEngine
from steersman_databases.engines.members import HaBackend, Member, Members
from steersman_databases.features.restore_in_place.volumes import LineageVolumes
from steersman_databases.features.storage.stage import VolumeReconciler
from steersman_databases.specs.statefulset import InstanceSettings, instance_statefulset

T = TypeVar("T", bound=Object)

CLUSTER_INDEX = "cluster"
"""Index of cached objects by cluster, `namespace/name`."""
_HOSTNAME_LABEL = "kubernetes.io/hostname"


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """Objects of a cluster. `pvcs` includes retired ones."""

    state: ClusterState
    pvcs: Sequence[PersistentVolumeClaim]

    @property
    def pvcs_in_use(self) -> Sequence[PersistentVolumeClaim]:
        """PVCs of wanted data that are not being deleted."""
        restoring = {i.ordinal for i in self.state.restoring}
        present = [c for c in self.pvcs_present if c.metadata.deletion_timestamp is None]
        return [c for c in present if ordinal_of(c) not in restoring]

    @property
    def pvcs_present(self) -> Sequence[PersistentVolumeClaim]:
        """PVCs in use, with those that wait for their pods.

        Their Secrets are still needed.
        """
        stateful = {i.ordinal for i in self.state.instances if i.statefulset is not None}
        return [c for c in self.pvcs if is_in_use(c, stateful)]


class InstanceExecutor:
    """Observes the instances of one cluster and executes actions."""

    def __init__(
        self,
        context: ClusterContext,
        engine: ClusterEngine,
        ha_backend: HaBackend,
        restart_cooldown: RestartCooldown | None = None,
    ) -> None:
        self._context = context
        self._declared = context.declared
        self._engine = engine
        self._ha_backend = ha_backend
        self._restart_cooldown = restart_cooldown or RestartCooldown(context.clock)
        self._volumes = VolumeReconciler(context)

    async def observe_and_restore_labels(self) -> Snapshot:
        """Observe all objects. Objects in use that lost their labels, and so are not cached, get them back."""
        cached_pvcs = await self.observe()
        pvcs, store = (
            await self._volumes.restore_labels(cached_pvcs.state, cached_pvcs.pvcs),
            await self._restore_dcs_labels(cached_pvcs.pvcs),
        )
        return await self.observe(pvcs, store) if pvcs or store else cached_pvcs

    async def _restore_dcs_labels(self, pvcs: Sequence[PersistentVolumeClaim]) -> Sequence[ConfigMap]:
        """Restore labels of the members' store. Without it, the cluster would seem to have no leader."""
        found = list[ConfigMap]()
        for key in self._declared.dcs.all_keys if pvcs else ():
            present = await get_cached_or_live(self._context.client, ConfigMap, key)
            if present is None or belongs_to(present, self._declared) or not is_owned(present, pvcs):
                continue
            if present.metadata.deletion_timestamp is None:
                with suppress(NotFound):
                    found.append(await self._context.restore_labels(ConfigMap, present, data_labels(self._declared)))
        return found

    async def observe(
        self, uncached_pvcs: Sequence[PersistentVolumeClaim] = (), store: Sequence[ConfigMap] = ()
    ) -> Snapshot:
        """Observe all objects from the cache, with those that are missing there."""
        declared = self._declared
        statefulsets = [s for s in await self._list_owned(StatefulSet) if self._context.controls(s)]
        pods = await self._list_owned(Pod)
        pvcs = {c.key: c for c in (*await self._list_owned(PersistentVolumeClaim), *uncached_pvcs)}.values()
        store_objects = {
            c.key: c for c in (*await self._list_owned(ConfigMap), *store) if c.key in declared.dcs.all_keys
        }
        members = self._ha_backend.members_of(declared.key, pods, list(store_objects.values()))
        instance_pods = [c for c in pvcs if is_pvc_of(declared.names, c)]
        cached_state = build_state(
            statefulsets=statefulsets, pods=pods, pvcs=instance_pods, members=members, now=self._context.clock.now()
        )
        lost_nodes = {i.ordinal for i in cached_state.replicas() if await self._node_is_lost(i)}
        if lost_nodes:
            cached_state = build_state(
                statefulsets=statefulsets,
                pods=pods,
                pvcs=instance_pods,
                members=members,
                now=cached_state.now,
                lost_nodes=frozenset(lost_nodes),
            )
        return Snapshot(state=cached_state, pvcs=instance_pods)

    async def _list_owned(self, kind: type[T]) -> Sequence[T]:
        found = await self._context.client.list(kind, index=(CLUSTER_INDEX, str(self._declared.key)))
        return [obj for obj in found if belongs_to(obj, self._declared)]

    async def _node_is_lost(self, instance: Instance) -> bool:
        """Return True if the node of its volume is lost."""
        if instance.pod_ready or instance.data is None or not instance.data.spec.volume_name:
            return False
        key = ObjectKey("", instance.data.spec.volume_name)
        volume = await get_live(self._context.client, PersistentVolume, key)
        pinned_hosts = () if volume is None else _pinned_hosts(volume)
        for pinned_host in pinned_hosts:
            nodes = await self._context.client.live.list(Node, label_selector=f"{_HOSTNAME_LABEL}={pinned_host}")
            if not all(any(t.key == OUT_OF_SERVICE_TAINT for t in n.spec.taints) for n in nodes.items):
                return False
        return bool(pinned_hosts)

    async def ensure(self, state: ClusterState) -> None:
        """Apply the existing StatefulSets. With `OnDelete` this restarts nothing."""
        for instance in state.instances:
            if instance.statefulset is not None:
                await self._apply_statefulset(state, instance, replicas=0 if instance.stopped else 1)

    async def execute(self, action: Action, state: ClusterState) -> None:
        """Execute one action. Its effect is observed by the next reconcile."""
        match action:
            case CreateInstance(ordinal):
                await self._create(state, ordinal)
            case RetryBootstrap(ordinal):
                await self._ha_backend.clear_initialize(state.members)
                self._emit("Started", f"retried the bootstrap of instance {self._name(ordinal)}: it was interrupted")
            case StartInstance(ordinal):
                await self._apply_statefulset(state, self._instance(state, ordinal), replicas=1)
                self._emit("Started", f"started instance {self._name(ordinal)}")
            case StopInstance(ordinal):
                await self._apply_statefulset(state, self._instance(state, ordinal), replicas=0)
                self._emit("Stopped", f"stopped instance {self._name(ordinal)}")
            case RecreatePod(ordinal, reason):
                await self._recreate_pod(state, ordinal, reason)
            case RemoveInstance():
                await self._remove(state, action)
            case CancelRemoval(ordinal):
                await self._volumes.unmark_retired(self._instance(state, ordinal))
            case SwitchOver(to, reason):
                await self._ha_backend.request_switchover(state.members, to)
                self._emit("Switchover", f"requested a switchover to {self._name(to)}: {reason}")
            case RestartServer(ordinal, reason):
                member = state.members.member(ordinal)
                assert member is not None
                if not self._restart_cooldown.is_active(member.pod) and await self._is_restart_pending(member):
                    await self._ha_backend.restart_server(state.members, member)
                    self._restart_cooldown.start(member.pod)
                    self._emit("Restarted", f"restarted the server of {self._name(ordinal)}: {reason}")
            case _:
                raise AssertionError(action)

    async def _is_restart_pending(self, member: Member) -> bool:
        """Return True if the pod still reports a pending restart.

        The observation may predate a restart.
        """
        pod = await get_live(self._context.client, Pod, member.pod)
        found = self._ha_backend.members_of(self._declared.key, () if pod is None else (pod,), ())
        return any(one.pending_restart for one in found.members)

    async def _create(self, state: ClusterState, ordinal: int) -> None:
        # PVCs first: they own the supporting objects, which are declared before the pod starts.
        recovery = self._declared.needs_recovery and not state.instances
        copies = any(map(has_data, state.instances))
        created = await self._volumes.create(ordinal, for_recovery=recovery, for_copy=copies, lineage=state.lineage)
        if not created and (instance := state.instance(ordinal)) is not None:
            await self._apply_statefulset(state, instance, replicas=1)

    async def _apply_statefulset(self, state: ClusterState, instance: Instance, *, replicas: int) -> None:
        plan = InstanceSettings(
            ordinal=instance.ordinal,
            image=target_image(self._declared, state, instance),
            fenced=self._declared.requests.is_fenced(instance.ordinal),
            replicas=replicas,
        )
        parts = self._engine.pod_contribution(self._declared, instance.ordinal, fenced=plan.fenced)
        await self._context.apply(StatefulSet, instance_statefulset(self._declared, plan, parts))

    async def _recreate_pod(self, state: ClusterState, ordinal: int, reason: str) -> None:
        pod = self._instance(state, ordinal).pod
        if pod is not None:
            await self._context.delete(Pod, pod)
            self._emit("Restarted", f"restarted instance {self._name(ordinal)}: {reason}")

    async def _remove(self, state: ClusterState, action: RemoveInstance) -> None:
        instance = self._instance(state, action.instance)
        if (
            (await read_leader_live(self._context, self._ha_backend)).leader
            == action.instance
            != state.members.leader
        ):
            # It was just promoted, and may be the only one with all committed transactions.
            return
        # PVCs first: without a mark they would be adopted, and the instance recreated, if this were interrupted here.
        if instance.lineage < state.lineage:
            await LineageVolumes(self._context).retire_replaced(instance, state)
        else:
            await self._volumes.mark_retired(instance)
        if instance.statefulset is not None and instance.statefulset.metadata.deletion_timestamp is None:
            await self._context.delete(StatefulSet, instance.statefulset)
        name = self._name(action.instance)
        if action.has_failed:
            self._context.events.warning(
                self._context.cluster, "InstanceReplaced", f"replacing instance {name}: {action.reason}"
            )
        else:
            self._emit("ScaledDown", f"removed instance {name}: {action.reason}")

    def _instance(self, state: ClusterState, ordinal: int) -> Instance:
        found = state.instance(ordinal)
        assert found is not None
        return found

    def _name(self, ordinal: int) -> str:
        return self._declared.names.instance(ordinal)

    def _emit(self, reason: str, message: str) -> None:
        self._context.events.normal(self._context.cluster, reason, message)


async def read_leader_live(context: ClusterContext, ha_backend: HaBackend) -> Members:
    """Read the leader from the API server rather than from the cache."""
    lock = await get_live(context.client, ConfigMap, context.declared.dcs.leader)
    return ha_backend.members_of(context.declared.key, (), () if lock is None else (lock,))


def _pinned_hosts(volume: PersistentVolume) -> Sequence[str]:
    """Host names of the nodes of a volume, if it is pinned."""
    affinity = volume.spec.node_affinity
    terms = () if affinity is None or affinity.required is None else affinity.required.node_selector_terms
    hosts = [
        [v for e in t.match_expressions if (e.key, e.operator) == (_HOSTNAME_LABEL, "In") for v in e.values]
        for t in terms
    ]
    # Terms are alternatives: one without a host permits other nodes.
    return [host for term in hosts for host in term] if all(hosts) else ()
