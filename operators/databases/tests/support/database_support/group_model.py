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

from database_support.contents_in_memory import ServerInMemory
from database_support.pulled_images import PulledImages
from steersman.api.core_v1 import ConfigMap, Pod
from steersman.api.discovery_v1 import EndpointSlice
from steersman.client import Client, MergePatch
from steersman.errors import Conflict, NotFound
from steersman.meta import ObjectKey, to_builtins
from steersman_databases.engines import Credentials
from steersman_databases.engines.cluster_names import (
    INSTANCE_LABEL,
    MEMBER_OF_LABEL,
    OPERATOR,
    ROLE_LABEL,
    ClusterNames,
)
from steersman_databases.engines.mysql.topology import GroupTopology
from steersman_databases.engines.topology import Member as Told
from steersman_databases.engines.topology import Members
from steersman_databases.resources.slices import LEADERSHIP, endpoints_of, leads_to
from steersman_pod.leading import Owner
from steersman_testing import InMemoryApiServer

sys.path.insert(0, str(Path(__file__).parents[5] / "operators/databases/images/mysql"))
from steersman_agent import store
from steersman_agent.decision import Decision, Member, View, decide
from steersman_agent.deeds import founded_as
from steersman_agent.gtids import GtidSet

RESTART_BOUND = ("innodb_log_buffer_size", "table_open_cache_instances")


@dataclass
class Server:
    """One instance's: its data outlive its pods. `in_group` is the number of the group, 0 for none."""

    uuid: str = ""
    version: str = "9.7.4"
    gtids: GtidSet = field(default_factory=GtidSet)
    runs: bool = False
    in_group: int = 0
    epoch: int = 0
    with_: dict[str, str] = field(default_factory=dict[str, str])
    joining: bool = False
    diverged: bool = False
    """What the group has cannot be applied to its data."""


@dataclass
class Farm:
    """What outlives pods: servers by the claim's UID, and who is in the group."""

    servers: dict[str, Server] = field(default_factory=dict[str, Server])
    pods: dict[str, str] = field(default_factory=dict[str, str])
    """The pod that each server runs in, by UIDs."""
    group: int = 0
    name: str = ""
    """The group's, by which its transactions are numbered."""
    primary: str = ""
    founded: list[str] = field(default_factory=list[str])
    initialised: int = 0
    restarts: list[str] = field(default_factory=list[str])
    unstartable: set[tuple[str, str]] = field(default_factory=set[tuple[str, str]])
    unwilling: set[tuple[str, str]] = field(default_factory=set[tuple[str, str]])
    """What servers refuse as they run."""
    failing: dict[str, str] = field(default_factory=dict[str, str])
    """What pods try in vain."""
    restored: dict[str, Mapping[str, Any]] = field(default_factory=dict[str, Mapping[str, Any]])
    """What pods say that they have taken back."""
    refuses: set[str] = field(default_factory=set[str])
    asked: list[str] = field(default_factory=list[str])
    history: list[str] = field(default_factory=list[str])
    away: set[str] = field(default_factory=set[str])
    """Pods that say nothing, nor start anything."""
    writes: bool = True
    sql: ServerInMemory = field(
        default_factory=lambda: ServerInMemory(engine="mysql", administrator=Credentials(OPERATOR, ""))
    )
    applied: list[str] = field(default_factory=list[str])
    unschedulable: set[str] = field(default_factory=set[str])
    images: PulledImages = field(default_factory=PulledImages)

    def online(self) -> list[Server]:
        return [s for s in self.servers.values() if s.in_group and s.in_group == self.group]

    def lowest(self) -> list[Server]:
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


class ModelTopology(GroupTopology):
    """What is asked of a server by SQL is told to the farm; the rest goes through Kubernetes anyway."""

    def __init__(self, client: Any, farm: Farm) -> None:
        super().__init__(client)
        self._farm = farm

    async def restart_server(self, members: Members, member: Told) -> None:
        self._farm.restarts.append(member.pod.name)


class Agents:
    """The agents of all clusters of MySQL's, one tick each in a round."""

    def __init__(self, server: InMemoryApiServer, client: Client, farm: Farm) -> None:
        self._api = server
        self._client = client
        self._farm = farm

    def news(self) -> object:
        """What is asked of servers, and what tests do to them."""
        return len(self._farm.restarts), len(self._farm.away), self._farm.writes, len(self._farm.unstartable)

    def ended(self, pod: Pod) -> bool:
        """At once."""
        return True

    async def look(self) -> None:
        """One tick of each."""
        pods = [p for p in self._api.read_all(Pod) if MEMBER_OF_LABEL in p.metadata.labels and p.status.pod_ip]
        self._end_servers({p.metadata.uid for p in pods})
        for pod in sorted(pods, key=lambda p: p.metadata.name):
            if pod.metadata.name not in self._farm.away:
                try:
                    await self._tick(
                        pod, ClusterNames(ObjectKey(pod.key.namespace, pod.metadata.labels[MEMBER_OF_LABEL]))
                    )
                except (Conflict, NotFound):
                    continue

    def _end_servers(self, running: set[str]) -> None:
        """Servers whose pods are gone left the group as they stopped, or were put out of it."""
        farm = self._farm
        before = farm.online()
        gone = {s.uuid for uid, s in farm.servers.items() if s.runs and farm.pods.get(uid) not in running}
        for server in farm.servers.values():
            if server.uuid in gone:
                server.runs, server.in_group = False, 0
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
        found = self._api.read(ConfigMap, names.group)
        if found is None:
            return
        agreed = store.agreed(to_builtins(found))
        if not agreed.store.instances:
            return
        claim = pod.metadata.annotations["volume"]
        server = farm.servers.setdefault(claim, Server())
        if farm.pods.get(claim) != pod.metadata.uid:
            server.runs, server.in_group = False, 0
            server.version = farm.images.version(pod, _version_in(pod))
            farm.pods[claim] = pod.metadata.uid
        if pod.metadata.name in farm.restarts:
            farm.restarts.remove(pod.metadata.name)
            server.runs, server.in_group = False, 0
            self._choose()
        view = self._view(pod, server, agreed)
        decision = decide(view)
        await self._do(decision, view, agreed, server, names)
        await self._say(pod, server, agreed, view, decision)
        if server.in_group and server.uuid == farm.primary:
            await self._lead(pod, server, agreed, names)

    def _view(self, pod: Pod, server: Server, agreed: store.Agreed) -> View:
        farm = self._farm
        pods = [
            to_builtins(p)
            for p in self._api.read_all(Pod)
            if p.metadata.labels.get(MEMBER_OF_LABEL) == pod.metadata.labels[MEMBER_OF_LABEL]
        ]
        me = self._me(pod, server)
        others = [m for m in store.members(pods) if m.instance != me.instance]
        group = None
        for one in farm.online():
            group = one.gtids if group is None else group | one.gtids
        return View(
            me=me,
            store=agreed.store,
            members=others,
            majority=bool(server.in_group),
            group=group if me.state == "Offline" else None,
        )

    def _me(self, pod: Pod, server: Server) -> Member:
        farm = self._farm
        if server.in_group and server.in_group == farm.group:
            state = "Online"
        elif server.runs:
            state = "Offline"
        else:
            state = "Stopped" if server.uuid else "Empty"
        return Member(
            instance=int(pod.metadata.labels[INSTANCE_LABEL]),
            state=state,  # type: ignore[arg-type]
            primary=state == "Online" and server.uuid == farm.primary,
            uuid=server.uuid if server.runs else "",
            address=f"{pod.status.pod_ip}:3306",
            gtids=server.gtids if server.runs else GtidSet(),
            epoch=server.epoch,
        )

    async def _do(
        self, decision: Decision, view: View, agreed: store.Agreed, server: Server, names: ClusterNames
    ) -> None:
        farm, me = self._farm, view.me
        match decision.deed:
            case "Initialise":
                farm.initialised += 1
                server.uuid = f"{farm.initialised:08d}-1111-0000-0000-{me.instance:012d}"
            case "Clone":
                donor = farm.online()[0]
                number = len(farm.servers)
                server.uuid, server.gtids = f"{number:08d}-2222-0000-0000-{me.instance:012d}", donor.gtids
            case "Start":
                if not farm.unstartable & set(agreed.parameters.items()):
                    server.runs, server.with_ = True, dict(agreed.parameters)
            case "Found":
                to = replace(
                    view.store.with_member(me.instance),
                    epoch=view.epoch + 1,
                    leader=me.instance,
                    leader_uuid=me.uuid,
                    leader_view="",
                    consent=None,
                )
                name = founded_as(view, agreed.name)
                words = dict(store.written(to, agreed.version, name))
                await self._client.patch(ConfigMap, names.group, MergePatch(words))
                assert not farm.online(), "a second group is founded while there is one"
                farm.group, farm.name = to.epoch, name
                server.in_group = server.epoch = to.epoch
                farm.primary = server.uuid
                farm.founded.append(names.instance(me.instance))
                farm.history.append(server.uuid)
            case "Join":
                joined = view.store.with_member(me.instance)
                if joined != view.store:
                    words = dict(store.written(joined, agreed.version))
                    await self._client.patch(ConfigMap, names.group, MergePatch(words))
                if not server.diverged and not me.gtids - (view.group or GtidSet()):
                    server.in_group = server.epoch = farm.group
                    for one in farm.online():
                        server.gtids = server.gtids | one.gtids
            case "HandOver":
                await self._hand_over(decision, names)
            case _:
                pass

    async def _hand_over(self, decision: Decision, names: ClusterNames) -> None:
        farm = self._farm
        heir = "" if decision.to is None else names.instance(decision.to)
        farm.asked.append(heir)
        for server in farm.lowest():
            if (
                server.uuid.endswith(f"-{decision.to:012d}" if decision.to is not None else "?")
                and heir not in farm.refuses
            ):
                farm.primary = server.uuid
                farm.history.append(server.uuid)
        note = MergePatch({"metadata": {"annotations": {store.SWITCHOVER: None}}})
        await self._client.patch(ConfigMap, names.group, note)

    async def _lead(self, pod: Pod, server: Server, agreed: store.Agreed, names: ClusterNames) -> None:
        me, known = (
            int(pod.metadata.labels[INSTANCE_LABEL]),
            store.agreed(to_builtins(self._api.read(ConfigMap, names.group))),
        )
        view = f"{self._farm.group + 1000}:{len(self._farm.history)}"
        leads = replace(known.store.with_member(me), leader=me, leader_uuid=server.uuid, leader_view=view)
        leads = replace(leads, epoch=max(leads.epoch, self._farm.group))
        if leads != known.store or known.name != self._farm.name:
            words = dict(store.written(leads, known.version, self._farm.name))
            await self._client.patch(ConfigMap, names.group, MergePatch(words))
        if self._farm.writes:
            self._farm.write()
            self._farm.writes = False
        owner = Owner("MySQLCluster", "mysql", names.key.name)
        for key in names.slices(names.service("rw").name):
            found = self._api.read(EndpointSlice, key)
            if found is None or not owner.has(to_builtins(found.metadata)):
                continue
            if not leads_to(found, endpoints_of(pod, found.address_type)):
                words = f"{leads.epoch} {me} {server.uuid}"
                body = {
                    "metadata": {"annotations": {LEADERSHIP: words}},
                    "endpoints": endpoints_of(pod, found.address_type),
                }
                await self._client.patch(EndpointSlice, key, MergePatch(body))

    async def _say(self, pod: Pod, server: Server, agreed: store.Agreed, view: View, decision: Decision) -> None:
        farm, me = self._farm, self._me(pod, server)
        online = me.state == "Online"
        more: dict[str, Any] = {"because": decision.because, "version": server.version, "diverged": server.diverged}
        more |= self._settings(server, agreed.parameters)
        if not server.runs and farm.unstartable & set(agreed.parameters.items()):
            more["unstarted"] = "[ERROR] unknown variable"
        if pod.metadata.name in farm.failing:
            more["failing"] = farm.failing[pod.metadata.name]
        more["restored"] = farm.restored.get(pod.metadata.name)
        if online:
            more |= {"majority": True, "queued": 0}
        elif view.group is not None:
            more["errant"] = str(me.gtids - view.group)
        elif view.outage:
            more |= {"lacks": str(view.lacks), "unseen": view.unseen}
        words = store.member_words(replace(me, gtids=GtidSet()) if online else me, **more)
        role = "primary" if online and me.primary else "replica"
        if pod.metadata.annotations.get(store.MEMBER) != words or pod.metadata.labels.get(ROLE_LABEL) != role:
            body = {"metadata": {"annotations": {store.MEMBER: words}, "labels": {ROLE_LABEL: role}}}
            await self._client.patch(Pod, pod.key, MergePatch(body))
        conditions = [{"type": "Ready", "status": "True" if online else "False"}]
        if [(c.type, c.status) for c in pod.status.conditions] != [(c["type"], c["status"]) for c in conditions]:
            body = {"status": {"phase": "Running", "conditions": conditions}}
            await self._client.patch(Pod, pod.key, MergePatch(body), subresource="status")

    def _settings(self, server: Server, wanted: Mapping[str, str]) -> dict[str, Any]:
        if not server.runs:
            return {}
        pending: dict[str, list[str]] = {}
        refused: dict[str, str] = {}
        for name in sorted({*wanted, *server.with_}):
            if wanted.get(name) == server.with_.get(name):
                continue
            if name in RESTART_BOUND:
                pending[name] = [server.with_.get(name, ""), wanted.get(name, "")]
            elif (name, wanted.get(name, "")) in self._farm.unwilling:
                refused[name] = f"Variable '{name}' can't be set to the value of '{wanted[name]}'"
            elif name in wanted:
                server.with_[name] = wanted[name]
            else:
                server.with_.pop(name)
        return {k: v for k, v in (("pending", pending), ("refused", refused)) if v}


def _version_in(pod: Pod) -> str:
    """What the image of a pod runs: its tag, where that is a whole version."""
    tag = (pod.spec.containers[0].image or "").rpartition(":")[2]
    return tag if tag.count(".") == 2 else "9.7.4"


def _parts(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")))


def pods_of(pods: Sequence[Pod]) -> list[Pod]:
    """Those with members."""
    return [pod for pod in pods if MEMBER_OF_LABEL in pod.metadata.labels]
