"""MySQL's part in a cluster in memory: servers and their group are played, what members decide is the agent's own.

The server is held to what was measured with real ones: who joins has all that the group has; one primary, chosen by
the lowest UUID where it is gone; a group whose most members are gone at once does not go on; all transactions that a
primary acknowledged are at a majority. Beside that, to what the manual says of versions: a primary that is elected or
appointed is of the lowest in the group. Each tick of each agent is one look, one decision and its deed.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from database_support.fake_server.engine import InMemoryServer
from database_support.simulation.pod_resizes import conditions_with_ready
from database_support.unit.pulled_images import PulledImages
from steersman.api.core_v1 import ConfigMap, Pod
from steersman.api.discovery_v1 import EndpointSlice
from steersman.client import Client, MergePatch
from steersman.errors import Conflict, NotFound
from steersman.meta import ObjectKey, to_builtins
from steersman_databases.engines import SqlCredentials
from steersman_databases.engines.members import Member as Told
from steersman_databases.engines.members import Members
from steersman_databases.engines.mysql.ha.backend import GroupReplicationBackend
from steersman_databases.engines.naming import CLUSTER_LABEL, INSTANCE_LABEL, OPERATOR_ROLE, ROLE_LABEL, ClusterNames
from steersman_databases.features.services.endpoint_slices import LEADER_TERM_ANNOTATION, endpoints_of, points_to
from steersman_pod.rw_endpoints import ClusterIdentity
from steersman_testing import InMemoryApiServer

sys.path.insert(0, str(Path(__file__).parents[6] / "operators/databases/images/mysql"))
from steersman_agent.group import group_config
from steersman_agent.group.decision import GroupMember, GroupView, MemberDecision, decide
from steersman_agent.operations import next_group_name
from steersman_instance.gtids import GtidSet

RESTART_BOUND = ("innodb_log_buffer_size", "table_open_cache_instances")


@dataclass
class FakeMember:
    """One instance's: its data outlive its pods. `in_group` is the number of the group, 0 for none."""

    uuid: str = ""
    version: str = "9.7.4"
    gtids: GtidSet = field(default_factory=GtidSet)
    is_running: bool = False
    group_number: int = 0
    epoch: int = 0
    started_with: dict[str, str] = field(default_factory=dict[str, str])
    joining: bool = False
    restored: bool = False
    """True for data that a restore in place brought back, and copies of them."""
    diverged: bool = False
    """What the group has cannot be applied to its data."""


@dataclass
class FakeGroup:
    """What outlives pods: servers by the claim's UID, and who is in the group."""

    servers: dict[str, FakeMember] = field(default_factory=dict[str, FakeMember])
    pods: dict[str, str] = field(default_factory=dict[str, str])
    """The pod that each server runs in, by UIDs."""
    group: int = 0
    name: str = ""
    """The group's, by which its transactions are numbered."""
    primary: str = ""
    serving: list[bool] = field(default_factory=list[bool])
    """For each round with a primary, whether its data are restored."""
    founded: list[str] = field(default_factory=list[str])
    initialised: int = 0
    restarts: list[str] = field(default_factory=list[str])
    failing_start: set[tuple[str, str]] = field(default_factory=set[tuple[str, str]])
    rejecting: set[tuple[str, str]] = field(default_factory=set[tuple[str, str]])
    """What servers refuse as they run."""
    failing: dict[str, str] = field(default_factory=dict[str, str])
    write_errors: dict[str, str] = field(default_factory=dict[str, str])
    """Errors of writes by pod, reported while it is the primary."""
    """What pods try in vain."""
    restored: dict[str, Mapping[str, Any]] = field(default_factory=dict[str, Mapping[str, Any]])
    """What pods say that they have taken back."""
    rejects_switchover: set[str] = field(default_factory=set[str])
    switchover_requests: list[str] = field(default_factory=list[str])
    history: list[str] = field(default_factory=list[str])
    hanging: set[str] = field(default_factory=set[str])
    """Pods that do not end."""
    unreachable: set[str] = field(default_factory=set[str])
    """Pods that say nothing, nor start anything."""
    writes: bool = True
    sql: InMemoryServer = field(
        default_factory=lambda: InMemoryServer(engine="mysql", administrator=SqlCredentials(OPERATOR_ROLE, ""))
    )
    applied: list[str] = field(default_factory=list[str])
    unschedulable: set[str] = field(default_factory=set[str])
    images: PulledImages = field(default_factory=PulledImages)

    def online(self) -> list[FakeMember]:
        return [s for s in self.servers.values() if s.group_number and s.group_number == self.group]

    def lowest(self) -> list[FakeMember]:
        """Those of the lowest version in the group: the server makes no other one primary."""
        online = self.online()
        lowest = min((_parts(s.version) for s in online), default=())
        return [s for s in online if _parts(s.version) == lowest]

    def write(self, count: int = 1) -> None:
        """The primary acknowledges transactions, which all in the group have."""
        primary = next((s for s in self.online() if s.uuid == self.primary), None)
        if primary is None:
            return
        has = primary.gtids.intervals.get(self.name, ())
        last = has[-1][1] if has else 0
        new = GtidSet.parse(f"{self.name}:{last + 1}-{last + count}")
        for server in self.online():
            server.gtids = server.gtids | new


class FakeGroupBackend(GroupReplicationBackend):
    """What is asked of a server by SQL is told to the farm; the rest goes through Kubernetes anyway."""

    def __init__(self, client: Any, farm: FakeGroup) -> None:
        super().__init__(client)
        self._farm = farm

    async def restart_server(self, members: Members, member: Told) -> None:
        self._farm.restarts.append(member.pod.name)


class FakeAgents:
    """The agents of all clusters of MySQL's, one tick each in a round."""

    def __init__(self, server: InMemoryApiServer, client: Client, farm: FakeGroup) -> None:
        self._api = server
        self._client = client
        self._farm = farm

    def state(self) -> object:
        """What is asked of servers, and what tests do to them."""
        return (
            len(self._farm.restarts),
            len(self._farm.unreachable),
            len(self._farm.hanging),
            self._farm.writes,
            len(self._farm.failing_start),
            len(self._farm.write_errors),
        )

    def restore(self, pvc_uid: str) -> None:
        """Implements ``PodProcesses``. Only the first transaction of the group is restored."""
        number = len(self._farm.servers)
        self._farm.servers[pvc_uid] = FakeMember(
            uuid=f"{number:08d}-3333-0000-0000-000000000000",
            gtids=GtidSet.parse(f"{self._farm.name}:1"),
            restored=True,
        )

    def is_stopped(self, pod: Pod) -> bool:
        """At once, unless it hangs."""
        return pod.metadata.name not in self._farm.hanging

    async def sync(self) -> None:
        """One tick of each."""
        pods = [p for p in self._api.read_all(Pod) if CLUSTER_LABEL in p.metadata.labels and p.status.pod_ip]
        self._end_servers({p.metadata.uid for p in pods})
        for pod in sorted(pods, key=lambda p: p.metadata.name):
            if pod.metadata.name not in self._farm.unreachable:
                try:
                    await self._tick(
                        pod, ClusterNames(ObjectKey(pod.key.namespace, pod.metadata.labels[CLUSTER_LABEL]))
                    )
                except (Conflict, NotFound):
                    continue

    def _end_servers(self, running: set[str]) -> None:
        """Servers whose pods are gone left the group as they stopped, or were put out of it."""
        farm = self._farm
        before = farm.online()
        gone = {s.uuid for uid, s in farm.servers.items() if s.is_running and farm.pods.get(uid) not in running}
        for server in farm.servers.values():
            if server.uuid in gone:
                server.is_running, server.group_number = False, 0
        if not farm.online() and before:
            farm.primary = ""
        self._choose()

    def _choose(self) -> None:
        farm = self._farm
        if farm.primary not in {s.uuid for s in farm.online()}:
            farm.primary = min((s.uuid for s in farm.lowest()), default="")
            if farm.primary:
                farm.history.append(farm.primary)

    async def _tick(self, pod: Pod, names: ClusterNames) -> None:
        farm = self._farm
        found = self._api.read(ConfigMap, names.group_config)
        if found is None:
            return
        agreed = group_config.read_group_config(to_builtins(found))
        if not agreed.state.known_instances:
            return
        claim = pod.metadata.annotations["volume"]
        server = farm.servers.setdefault(claim, FakeMember())
        if farm.pods.get(claim) != pod.metadata.uid:
            server.is_running, server.group_number = False, 0
            server.version = farm.images.version(pod, _version_in(pod))
            farm.pods[claim] = pod.metadata.uid
        if pod.metadata.name in farm.restarts:
            farm.restarts.remove(pod.metadata.name)
            server.is_running, server.group_number = False, 0
            self._choose()
        view = self._view(pod, server, agreed)
        decision = decide(view)
        await self._carry_out(decision, view, agreed, server, names)
        await self._publish(pod, server, agreed, view, decision)
        if server.group_number and server.uuid == farm.primary:
            farm.serving.append(server.restored)
            await self._publish_leader(pod, server, agreed, names)

    def _view(self, pod: Pod, server: FakeMember, agreed: group_config.GroupConfig) -> GroupView:
        farm = self._farm
        pods = [
            to_builtins(p)
            for p in self._api.read_all(Pod)
            if p.metadata.labels.get(CLUSTER_LABEL) == pod.metadata.labels[CLUSTER_LABEL]
        ]
        me = self._own_member(pod, server)
        others = [m for m in group_config.members(pods) if m.instance != me.instance]
        group = None
        for one in farm.online():
            group = one.gtids if group is None else group | one.gtids
        return GroupView(
            own=me,
            store=agreed.state,
            others=others,
            has_majority=bool(server.group_number),
            group_executed=group if me.state == "Offline" else None,
        )

    def _own_member(self, pod: Pod, server: FakeMember) -> GroupMember:
        farm = self._farm
        if server.group_number and server.group_number == farm.group:
            state = "Online"
        elif server.is_running:
            state = "Offline"
        else:
            state = "Stopped" if server.uuid else "Empty"
        return GroupMember(
            instance=int(pod.metadata.labels[INSTANCE_LABEL]),
            state=state,  # type: ignore[arg-type]
            primary=state == "Online" and server.uuid == farm.primary,
            uuid=server.uuid if server.is_running else "",
            address=f"{pod.status.pod_ip}:3306",
            gtids=server.gtids if server.is_running else GtidSet(),
            epoch=server.epoch,
        )

    async def _carry_out(
        self,
        decision: MemberDecision,
        view: GroupView,
        agreed: group_config.GroupConfig,
        server: FakeMember,
        names: ClusterNames,
    ) -> None:
        farm, me = self._farm, view.own
        match decision.operation:
            case "Initialise":
                farm.initialised += 1
                server.uuid = f"{farm.initialised:08d}-1111-0000-0000-{me.instance:012d}"
            case "Clone":
                donor = farm.online()[0]
                number = len(farm.servers)
                server.uuid, server.gtids = f"{number:08d}-2222-0000-0000-{me.instance:012d}", donor.gtids
                server.restored = donor.restored
            case "Start":
                if not farm.failing_start & set(agreed.parameters.items()):
                    server.is_running, server.started_with = True, dict(agreed.parameters)
            case "Found":
                to = replace(
                    view.store.with_member(me.instance),
                    epoch=view.epoch + 1,
                    leader=me.instance,
                    leader_uuid=me.uuid,
                    leader_view="",
                    forced_recovery_instance=None,
                )
                name = next_group_name(view, agreed.name)
                words = dict(group_config.group_patch(to, agreed.version, name))
                await self._client.patch(ConfigMap, names.group_config, MergePatch(words))
                assert not farm.online(), "a second group is founded while there is one"
                farm.group, farm.name = to.epoch, name
                server.group_number = server.epoch = to.epoch
                farm.primary = server.uuid
                farm.founded.append(names.instance(me.instance))
                farm.history.append(server.uuid)
            case "Join":
                joined = view.store.with_member(me.instance)
                if joined != view.store:
                    words = dict(group_config.group_patch(joined, agreed.version))
                    await self._client.patch(ConfigMap, names.group_config, MergePatch(words))
                if not server.diverged and not me.gtids - (view.group_executed or GtidSet()):
                    server.group_number = server.epoch = farm.group
                    for one in farm.online():
                        server.gtids = server.gtids | one.gtids
            case "HandOver":
                await self._switch_over(decision, names)
            case _:
                pass

    async def _switch_over(self, decision: MemberDecision, names: ClusterNames) -> None:
        farm = self._farm
        heir = "" if decision.target is None else names.instance(decision.target)
        farm.switchover_requests.append(heir)
        for server in farm.lowest():
            if (
                server.uuid.endswith(f"-{decision.target:012d}" if decision.target is not None else "?")
                and heir not in farm.rejects_switchover
            ):
                farm.primary = server.uuid
                farm.history.append(server.uuid)
        note = MergePatch({"metadata": {"annotations": {group_config.SWITCHOVER: None}}})
        await self._client.patch(ConfigMap, names.group_config, note)

    async def _publish_leader(
        self, pod: Pod, server: FakeMember, agreed: group_config.GroupConfig, names: ClusterNames
    ) -> None:
        me, known = (
            int(pod.metadata.labels[INSTANCE_LABEL]),
            group_config.read_group_config(to_builtins(self._api.read(ConfigMap, names.group_config))),
        )
        view = f"{self._farm.group + 1000}:{len(self._farm.history)}"
        leads = replace(known.state.with_member(me), leader=me, leader_uuid=server.uuid, leader_view=view)
        leads = replace(leads, epoch=max(leads.epoch, self._farm.group))
        if leads != known.state or known.name != self._farm.name:
            words = dict(group_config.group_patch(leads, known.version, self._farm.name))
            await self._client.patch(ConfigMap, names.group_config, MergePatch(words))
        if self._farm.writes:
            self._farm.write()
            self._farm.writes = False
        owner = ClusterIdentity("MySQLCluster", "mysql", names.key.name)
        for key in names.endpoint_slices(names.service("rw").name):
            found = self._api.read(EndpointSlice, key)
            if found is None or not owner.owns(to_builtins(found.metadata)):
                continue
            if not points_to(found, endpoints_of(pod, found.address_type)):
                words = f"{leads.epoch} {me} {server.uuid}"
                body = {
                    "metadata": {"annotations": {LEADER_TERM_ANNOTATION: words}},
                    "endpoints": endpoints_of(pod, found.address_type),
                }
                await self._client.patch(EndpointSlice, key, MergePatch(body))

    async def _publish(
        self,
        pod: Pod,
        server: FakeMember,
        agreed: group_config.GroupConfig,
        view: GroupView,
        decision: MemberDecision,
    ) -> None:
        farm, me = self._farm, self._own_member(pod, server)
        online = me.state == "Online"
        more: dict[str, Any] = {"reason": decision.reason, "version": server.version, "diverged": server.diverged}
        more |= farm.images.reported_contract(pod)
        more |= self._settings(server, agreed.parameters)
        if not server.is_running and farm.failing_start & set(agreed.parameters.items()):
            more["startError"] = "[ERROR] unknown variable"
        if pod.metadata.name in farm.failing:
            more["failingOperation"] = farm.failing[pod.metadata.name]
        more["writeError"] = farm.write_errors.get(pod.metadata.name, "") if me.primary else ""
        more["restoredParameters"] = farm.restored.get(pod.metadata.name)
        if online:
            more |= {"majority": True, "applyQueue": 0}
        elif view.group_executed is not None:
            more["errantGtids"] = str(me.gtids - view.group_executed)
        elif view.in_outage:
            more |= {"missingGtids": str(view.missing_gtids), "unseenInstances": view.unseen_instances}
        words = group_config.member_annotation(replace(me, gtids=GtidSet()) if online else me, **more)
        role = "primary" if online and me.primary else "replica"
        if pod.metadata.annotations.get(group_config.MEMBER) != words or pod.metadata.labels.get(ROLE_LABEL) != role:
            body = {"metadata": {"annotations": {group_config.MEMBER: words}, "labels": {ROLE_LABEL: role}}}
            await self._client.patch(Pod, pod.key, MergePatch(body))
        if [c.status for c in pod.status.conditions if c.type == "Ready"] != ["True" if online else "False"]:
            body = {"status": {"phase": "Running", "conditions": conditions_with_ready(pod, ready=online)}}
            await self._client.patch(Pod, pod.key, MergePatch(body), subresource="status")

    def _settings(self, server: FakeMember, wanted: Mapping[str, str]) -> dict[str, Any]:
        if not server.is_running:
            return {}
        pending: dict[str, list[str]] = {}
        refused: dict[str, str] = {}
        for name in sorted({*wanted, *server.started_with}):
            if wanted.get(name) == server.started_with.get(name):
                continue
            if name in RESTART_BOUND:
                pending[name] = [server.started_with.get(name, ""), wanted.get(name, "")]
            elif (name, wanted.get(name, "")) in self._farm.rejecting:
                refused[name] = f"Variable '{name}' can't be set to the value of '{wanted[name]}'"
            elif name in wanted:
                server.started_with[name] = wanted[name]
            else:
                server.started_with.pop(name)
        return {k: v for k, v in (("pendingRestart", pending), ("rejectedParameters", refused)) if v}


def _version_in(pod: Pod) -> str:
    """What the image of a pod runs: its tag, where that is a whole version."""
    tag = (pod.spec.containers[0].image or "").rpartition(":")[2]
    return tag if tag.count(".") == 2 else "9.7.4"


def _parts(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")))


def pods_of(pods: Sequence[Pod]) -> list[Pod]:
    """Those with members."""
    return [pod for pod in pods if CLUSTER_LABEL in pod.metadata.labels]
