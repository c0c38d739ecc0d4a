"""MySQL clusters in a simulation: what users do with them, beside the operator and the real agents."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from database_support.agent_pods import AgentPods, Agents
from database_support.cluster_kubelet import ClusterKubelet
from database_support.contents_in_memory import ContentsInMemory, ServerInMemory
from database_support.mysql_model import Mysqld, Servers
from database_support.patroni_model import Hosts
from steersman.api.core_v1 import ConfigMap, PersistentVolumeClaim, Pod, Secret
from steersman.api.discovery_v1 import EndpointSlice
from steersman.client import MergePatch
from steersman.controller import ReconcilerContext
from steersman.manager import Manager, ManagerOptions
from steersman.meta import ObjectKey, ObjectMeta
from steersman_databases.api import Database, DatabaseUser, MySQLCluster, MySQLClusterSpec, PostgreSQLCluster
from steersman_databases.clusters.observed import is_retired
from steersman_databases.controllers import ClusterParts, setup
from steersman_databases.engines import Credentials, Endpoint
from steersman_databases.engines.cluster_names import MEMBER_OF_LABEL, OPERATOR, ROLE_LABEL, ClusterNames
from steersman_databases.engines.errors import ServerUnreachable
from steersman_databases.engines.mysql.cluster import MySQLCluster as MySQLServers
from steersman_databases.engines.mysql.topology import ASKED, GROUP, MEMBER, GroupTopology
from steersman_databases.engines.topology import Member, Members
from steersman_databases.resources.slices import LEADERSHIP
from steersman_testing import World, fault_point, simulate
from steersman_testing.simulation import SimulationReport
from steersman_testing.virtual_clock import VirtualClock

KEY = ObjectKey("default", "orders")
NAMES = ClusterNames(KEY)
MISLED = 15.0  # seconds for which -rw may lead to another while somebody takes writes


@dataclass
class Outside:
    """What is no object: servers, agents, and what is inside of the primary."""

    agents: Agents
    servers: Servers = field(default_factory=lambda: Servers(asyncio.get_running_loop().time))
    sql: ServerInMemory = field(
        default_factory=lambda: ServerInMemory(engine="mysql", administrator=Credentials(OPERATOR, ""))
    )
    pods: AgentPods | None = None
    written: int = 0
    restarted: list[str] = field(default_factory=list[str])
    """By the operator, in this order."""

    @property
    def agent_pods(self) -> AgentPods:
        assert self.pods is not None
        return self.pods


Groups = World[Outside]


class ModelTopology(GroupTopology):
    """What is asked of a server by SQL is done with its model."""

    def __init__(self, client: Any, outside: Outside) -> None:
        super().__init__(client)
        self._outside, self._servers = outside, outside.servers

    async def restart_server(self, members: Members, member: Member) -> None:
        pod = await self._client.live.get(Pod, member.pod)
        endpoint = Endpoint(pod.status.pod_ip or "", 3306)
        async with fault_point("SQL: SHUTDOWN", ServerUnreachable(endpoint, "connection lost")):
            server = self._servers.at(str(endpoint))
            if server is None:
                raise ServerUnreachable(endpoint, "connection refused")
            self._servers.shut_down(server)
            self._outside.restarted.append(server.name)


def sweep(scenario: Any, crash: int = 0, **effort: Any) -> SimulationReport:
    """Plays ``scenario`` with the operator under every fault; with an agent killed before its call ``crash``."""
    return _play(scenario, Agents(crash), **effort)


def agent_calls(scenario: Any) -> int:
    """How many calls agents make until it has ended."""
    agents = Agents()
    _play(scenario, agents, random_runs=0, max_places=0)
    return agents.acted


def _play(scenario: Any, agents: Agents, **effort: Any) -> SimulationReport:
    def outside() -> Outside:
        agents.begin()
        return Outside(agents)

    async def story(world: Groups) -> None:
        await scenario(world)
        agents.acted = len(agents.calls)

    return simulate(
        _setup,
        story,
        outside=outside,
        observe=_contents,
        kinds=[Database, DatabaseUser, MySQLCluster, PostgreSQLCluster],
        actors=[surroundings, clients],
        invariants=[data_have_their_keys, one_history, nothing_wrong],
        adjust=_whoever_leads,
        options=ManagerOptions(name="steersman-databases"),
        **effort,
    )


def without_what_differs(obj: dict[str, Any]) -> dict[str, Any]:
    """Without versions of the store, who of equals is primary, and what was written: others in each run."""
    metadata: dict[str, Any] = obj["metadata"]
    left_out = (ASKED, GROUP, MEMBER, LEADERSHIP, "databases.steersman.dev/group-name")
    annotations: dict[str, str] = metadata.get("annotations") or {}
    kept = {k: v for k, v in annotations.items() if k not in left_out}
    return {**obj, "metadata": {**metadata, "annotations": kept}}


def _whoever_leads(obj: dict[str, Any]) -> dict[str, Any]:
    """The same whoever of equals is primary: that hangs on moments. ``clients`` sees to where -rw leads."""
    kept = without_what_differs(obj)
    match kept["kind"]:
        case "EndpointSlice":
            return {**kept, "endpoints": None}
        case "Pod":
            labels: dict[str, str] = kept["metadata"].get("labels") or {}
            others = {k: v for k, v in labels.items() if k != ROLE_LABEL}
            return {**kept, "metadata": {**kept["metadata"], "labels": others}}
        case "MySQLCluster" if kept.get("status"):
            return {**kept, "status": _status(kept["status"])}
        case _:
            return kept


def _status(told: dict[str, Any]) -> dict[str, Any]:
    members = [{k: m[k] for k in ("name", "ready", "fenced") if k in m} for m in told.get("members") or ()]
    conditions = [{**c, "message": ""} for c in told.get("conditions") or ()]
    left_out = ("primary", "lastPrimary", "lastSwitchover")
    kept = {k: v for k, v in told.items() if k not in left_out}
    return {**kept, "members": members, "conditions": conditions}


def _setup(manager: Manager, outside: Outside) -> None:
    def contents(engine: str) -> ContentsInMemory:
        return ContentsInMemory({Endpoint("orders-rw.default.svc", 3306): outside.sql}, engine)

    def parts(context: ReconcilerContext) -> ClusterParts:
        return ClusterParts(MySQLServers(), ModelTopology(context.client, outside))

    setup(manager, contents=contents, mysql=parts)


async def surroundings(world: Groups) -> None:
    """Volumes, pods, and an agent in each pod, which goes its own way."""
    async with _pods(world) as pods:
        await ClusterKubelet(world.server, world.client, Hosts(sql=world.outside.sql), pods).run(VirtualClock())


@asynccontextmanager
async def _pods(world: Groups) -> AsyncGenerator[AgentPods]:
    pods = AgentPods(world.server, world.client, world.outside.servers, world.outside.agents)
    world.outside.pods = pods
    with pods.in_virtual_time():
        try:
            yield pods
        finally:
            await pods.close()


async def clients(world: Groups) -> None:
    """They write where -rw leads, and are not led astray for long."""
    servers, since = world.outside.servers, world.now()
    while True:
        await world.sleep(1.0)
        found, primaries = _reached(world), servers.primaries()
        if found is not None and servers.write(found):
            world.outside.written += 1
        if not primaries or found in primaries or world.read(MySQLCluster, KEY) is None:
            since = world.now()
        assert world.now() <= since + MISLED, f"-rw does not lead to {primaries[0].name} for {MISLED:g} s"
        nothing_wrong(world)


def _reached(world: Groups) -> Mysqld | None:
    """The server that -rw leads to."""
    found = world.read(EndpointSlice, NAMES.slices(NAMES.service("rw").name)[0])
    if found is None or not found.endpoints:
        return None
    return world.outside.servers.at(f"{found.endpoints[0].addresses[0]}:3306")


def _contents(outside: Outside) -> dict[str, Any]:
    """What is compared: how often data were made, and how often a group was founded."""
    return {"initialised": outside.servers.initialised, "founded": len(outside.servers.founded)}


def nothing_wrong(world: Groups) -> None:
    """Never two that take writes, and nothing lost that clients were told is kept."""
    assert not world.outside.servers.wrong, world.outside.servers.wrong[0]


def data_have_their_keys(world: Groups) -> None:
    """As long as there are data in use, there are their authorities, the administrator's password, and the store."""
    for claim in world.read_all(PersistentVolumeClaim):
        server = world.outside.servers.all.get(claim.metadata.uid)
        if server is None or not server.has_data or claim.metadata.deletion_timestamp or is_retired(claim):
            continue
        for key in (NAMES.authorities, NAMES.administrator_secret):
            assert world.read(Secret, key) is not None, f"{claim.key} has lost {key.name}"
        assert world.read(ConfigMap, NAMES.group) is not None, f"{claim.key} has lost who led"


def one_history(world: Groups) -> None:
    """Nobody makes other data while there are data."""
    assert world.outside.servers.initialised <= 1


async def create(world: Groups, **spec: Any) -> None:
    """Creates the cluster and waits until it is of use."""
    metadata = ObjectMeta(name=KEY.name, namespace=KEY.namespace)
    await world.client.create(MySQLCluster(metadata=metadata, spec=MySQLClusterSpec(**spec)))
    await ready(world)


async def ready(world: Groups) -> None:
    """Waits until the cluster is as declared."""

    def is_ready() -> bool:
        found = world.read(MySQLCluster, KEY)
        if found is None or found.status.phase != "Ready":
            return False
        generations = found.status.observed_generation, found.metadata.generation
        return generations[0] == generations[1] and found.status.ready_instances == found.spec.instances

    await world.wait_until("Ready", is_ready)
    await world.settle()


async def change(world: Groups, **spec: Any) -> None:
    """Patches its spec, by the wire's names."""
    await world.client.patch(MySQLCluster, KEY, MergePatch({"spec": spec}))


async def annotate(world: Groups, **notes: str | None) -> None:
    """Patches our annotations of it."""
    annotations = {f"databases.steersman.dev/{key}": value for key, value in notes.items()}
    await world.client.patch(MySQLCluster, KEY, MergePatch({"metadata": {"annotations": annotations}}))


async def delete(world: Groups) -> None:
    """Deletes it and waits until it is gone."""
    await world.client.delete(MySQLCluster, KEY)
    await world.wait_until("gone", lambda: world.read(MySQLCluster, KEY) is None)
    await world.wait_until(
        "stopped", lambda: not [p for p in world.read_all(Pod) if MEMBER_OF_LABEL in p.metadata.labels]
    )
    await world.settle()


async def life(world: Groups) -> None:
    """Created, made larger and smaller, deleted with its data."""
    await create(world, instances=1, deletion_policy="Delete")
    await change(world, instances=2)
    await ready(world)
    await change(world, instances=1)
    await ready(world)
    await delete(world)


async def retained(world: Groups) -> None:
    """Deleted, its data kept, and found again by the next of the same name."""
    await create(world, instances=2)
    await delete(world)
    await create(world, instances=2)


async def operated(world: Groups) -> None:
    """Switched over, hibernated and woken, an instance made anew."""
    await create(world, instances=2)
    await annotate(world, switchover="orders-1")
    await world.wait_until("switched", lambda: _asked(world, "switchover") is None)
    await ready(world)
    await change(world, hibernated=True)
    await world.wait_until("asleep", lambda: not list(world.read_all(Pod)))
    await change(world, hibernated=False)
    await ready(world)
    await annotate(world, replace="orders-0")
    await world.wait_until("made anew", lambda: _asked(world, "replace") is None)
    await ready(world)


async def configured(world: Groups) -> None:
    """With parameters that servers take as they run, and with such as they take when they start."""
    await create(world, instances=3)
    await change(world, mysql={"parameters": {"max_connections": "200"}})
    await ready(world)
    await world.wait_until("taken", lambda: _run_with(world, "max_connections") == {"200"})
    _online(world)[0].variables["max_connections"] = "7"
    await world.wait_until("taken back", lambda: _run_with(world, "max_connections") == {"200"})
    declared = {"innodb_log_buffer_size": "33554432", "max_connections": None}
    await change(world, mysql={"parameters": declared})
    await ready(world)
    await world.wait_until("restarted", lambda: _run_with(world, "innodb_log_buffer_size") == {"33554432"})
    assert "200" not in _run_with(world, "max_connections")
    restarted = world.outside.restarted
    assert len(restarted) == len({*restarted}), f"some are restarted again and again: {restarted}"
    _founded(world, 1)


async def replaced(world: Groups) -> None:
    """Made larger, and then a replica loses its volume."""
    await create(world, instances=2)
    await change(world, instances=3)
    await ready(world)
    await world.client.delete(PersistentVolumeClaim, NAMES.data_claim(_replica(world)))
    await world.wait_until("replaced", lambda: world.read(Pod, NAMES.pod(3)) is not None)
    await ready(world)


async def failover(world: Groups) -> None:
    """The primary is killed, twice."""
    await create(world, instances=3)
    for _ in range(2):
        former = await _writing(world)
        _kill(world, former)
        await _succeeded(world, former)
        await _writing(world)
        await ready(world)
    _founded(world, 1)


async def outage(world: Groups) -> None:
    """All are killed at one moment, just when something was written."""
    await create(world, instances=3)
    former = await _writing(world)
    assert world.outside.servers.write(former)
    _kill(world, *_online(world))
    await _writing(world)
    await ready(world)
    _founded(world, 2)


async def fenced(world: Groups) -> None:
    """The primary is fenced, and is not any more."""
    await create(world, instances=3)
    former = await _writing(world)
    async with _person(world):
        await annotate(world, fenced=former.name.removesuffix("-0"))
        await world.wait_until("it has ended", lambda: not former.runs)
        await _writing(world)
        await world.wait_until_quiet()
        assert not former.runs
        await annotate(world, fenced=None)
        await ready(world)


async def consented(world: Groups) -> None:
    """All are killed, the last primary for long: a person goes on without it, and has it made anew later."""
    await create(world, instances=3)
    former = await _writing(world)
    assert world.outside.servers.write(former)
    pods = world.outside.agent_pods
    pods.away.add(former.name)
    _kill(world, *_online(world))
    await world.wait_until("told", lambda: _told(world, "Recoverable") == "ConsentNeeded")
    async with _person(world):
        await _writing(world)
        pods.away.clear()
        await world.wait_until("all are online", lambda: len(_online(world)) == 3)
        await ready(world)
    _founded(world, 2)


@asynccontextmanager
async def _person(world: Groups) -> AsyncGenerator[None]:
    """Is there meanwhile: without one, who is killed beside what the story does may be an outage for good."""
    acting = asyncio.create_task(_act(world), name="person")
    try:
        yield
    finally:
        acting.cancel()


async def _act(world: Groups) -> None:
    """Reads now and then what would be lost, and takes the first; has made anew who has what was lost."""
    while True:
        await world.sleep(10.0)
        found = world.read(MySQLCluster, KEY)
        if found is None:
            continue
        outage, errant = found.status.outage, [m.name for m in found.status.members if m.errant]
        if outage is not None and outage.choices and _told(world, "Recoverable").startswith("Consent"):
            world.outside.servers.given_up = world.outside.servers.acknowledged
            chosen = outage.choices[0]
            loss = {"transactions": chosen.loss.transactions, "instances": [*chosen.loss.instances]}
            await change(world, recovery={"epoch": outage.epoch, "instance": chosen.instance, "loss": loss})
        elif errant and _asked(world, "replace") is None:
            await annotate(world, replace=errant[0])


async def _succeeded(world: Groups, former: Mysqld) -> None:
    """Another takes writes, and soon. If somebody else was killed as well, all may wait for the former."""
    if not world.outside.agents.crash:
        await world.wait_until("another takes writes", lambda: _primary(world) not in (None, former), 60)


async def _writing(world: Groups) -> Mysqld:
    """Waits until clients have written something more; the primary."""
    before = world.outside.written
    await world.wait_until("writes are taken", lambda: world.outside.written > before and _primary(world))
    [primary] = world.outside.servers.primaries()
    return primary


def _founded(world: Groups, times: int) -> None:
    """A group that loses its only member to a fault is founded once more."""
    assert len(world.outside.servers.founded) == times or world.outside.agents.crash


def _primary(world: Groups) -> Mysqld | None:
    return next(iter(world.outside.servers.primaries()), None)


def _online(world: Groups) -> list[Mysqld]:
    return [s for s in world.outside.servers.all.values() if s.state == "ONLINE"]


def _run_with(world: Groups, parameter: str) -> set[str]:
    return {s.variables.get(parameter, "") for s in _online(world)}


def _replica(world: Groups) -> int:
    """The number of one."""
    name = next(s.name for s in _online(world) if s is not _primary(world))
    number = NAMES.number(name.removesuffix("-0"))
    assert number is not None
    return number


def _kill(world: Groups, *servers: Mysqld) -> None:
    for server in servers:
        world.outside.agent_pods.kill(server.name)


def _told(world: Groups, type_: str) -> str:
    found = world.read(MySQLCluster, KEY)
    conditions = found.status.conditions if found is not None else ()
    return next((c.reason for c in conditions if c.type == type_), "")


def _asked(world: Groups, what: str) -> str | None:
    found = world.read(MySQLCluster, KEY)
    return found.metadata.annotations.get(f"databases.steersman.dev/{what}") if found else None


_STORIES = (life, retained, operated, configured, replaced, failover, outage, fenced, consented)
SCENARIOS = {scenario.__name__: scenario for scenario in _STORIES}
