"""MySQL clusters in a simulation: what users do with them, beside the operator and the real agents."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from database_support.fake_server.engine import InMemoryServer, InMemorySqlEngine
from database_support.simulation.agent_pods import AgentFaults, AgentPods
from database_support.simulation.cluster_kubelet import ClusterKubelet
from database_support.simulation.cluster_scenarios import KEY
from database_support.simulation.mysql_group import SimulatedMysqld, SimulatedServers
from database_support.unit.fake_patroni import FakeHosts
from database_support.unit.fake_programs import FakePrograms
from steersman.api.core_v1 import ConfigMap, PersistentVolumeClaim, Pod, Secret
from steersman.api.discovery_v1 import EndpointSlice
from steersman.controller import ReconcilerContext
from steersman.manager import Manager, ManagerOptions
from steersman_databases.api import (
    Backup,
    BackupStore,
    Database,
    DatabaseUser,
    MySQLCluster,
    PostgreSQLCluster,
    Restore,
)
from steersman_databases.api.backups.backup_common import ARCHIVE_PATH_ANNOTATION
from steersman_databases.cluster.parts.engine_parts import EngineParts
from steersman_databases.cluster.state import is_retired
from steersman_databases.engines import ServerEndpoint, SqlCredentials
from steersman_databases.engines.errors import ServerUnreachable
from steersman_databases.engines.members import Member, Members
from steersman_databases.engines.mysql.cluster_engine import MySQLEngine as MySQLServers
from steersman_databases.engines.mysql.ha.backend import (
    GROUP,
    MEMBER,
    SWITCHOVER_VERSION_ANNOTATION,
    GroupReplicationBackend,
)
from steersman_databases.engines.naming import OPERATOR_ROLE, ROLE_LABEL, ClusterNames
from steersman_databases.features.backup.archive_objects import ARCHIVE_UID_ANNOTATION
from steersman_databases.features.services.endpoint_slices import LEADER_TERM_ANNOTATION
from steersman_databases.setup import setup
from steersman_databases.specs.data_secrets import DATA_IDENTITY_ANNOTATION
from steersman_testing import World, fault_point, simulate
from steersman_testing.simulation import SimulationReport
from steersman_testing.virtual_clock import VirtualClock

NAMES = ClusterNames(KEY)
MISROUTED_SECONDS = 15.0  # seconds for which -rw may lead to another while somebody takes writes


@dataclass
class SimulatedEnvironment:
    """What is no object: servers, agents, and what is inside of the primary."""

    agents: AgentFaults
    servers: SimulatedServers = field(default_factory=lambda: SimulatedServers(asyncio.get_running_loop().time))
    sql: InMemoryServer = field(
        default_factory=lambda: InMemoryServer(engine="mysql", administrator=SqlCredentials(OPERATOR_ROLE, ""))
    )
    programs: FakePrograms = field(default_factory=FakePrograms)
    pods: AgentPods | None = None
    written: int = 0
    restarted: list[str] = field(default_factory=list[str])
    """By the operator, in this order."""

    @property
    def agent_pods(self) -> AgentPods:
        assert self.pods is not None
        return self.pods


Groups = World[SimulatedEnvironment]


class SimulatedGroupBackend(GroupReplicationBackend):
    """What is asked of a server by SQL is done with its model."""

    def __init__(self, client: Any, outside: SimulatedEnvironment) -> None:
        super().__init__(client)
        self._outside, self._servers = outside, outside.servers

    async def restart_server(self, members: Members, member: Member) -> None:
        pod = await self._client.live.get(Pod, member.pod)
        endpoint = ServerEndpoint(pod.status.pod_ip or "", 3306)
        async with fault_point("SQL: SHUTDOWN", ServerUnreachable(endpoint, "connection lost")):
            server = self._servers.server_at(str(endpoint))
            if server is None:
                raise ServerUnreachable(endpoint, "connection refused")
            self._servers.shut_down(server)
            self._outside.restarted.append(server.name)


def sweep(scenario: Any, crash: int = 0, **effort: Any) -> SimulationReport:
    """Plays ``scenario`` with the operator under every fault; with an agent killed before its call ``crash``."""
    return _play(scenario, AgentFaults(crash), **effort)


def agent_calls(scenario: Any) -> int:
    """How many calls agents make until it has ended."""
    agents = AgentFaults()
    _play(scenario, agents, random_runs=0, max_places=0)
    return agents.acted


def _play(scenario: Any, agents: AgentFaults, **effort: Any) -> SimulationReport:
    def outside() -> SimulatedEnvironment:
        agents.begin()
        return SimulatedEnvironment(agents)

    async def story(world: Groups) -> None:
        await scenario(world)
        agents.acted = len(agents.calls)

    return simulate(
        _setup,
        story,
        outside=outside,
        observe=_contents,
        kinds=[Backup, BackupStore, Database, DatabaseUser, MySQLCluster, PostgreSQLCluster, Restore],
        actors=[simulated_kubernetes, clients],
        invariants=[data_has_its_secrets, one_history, holds_invariants, final_backup_precedes_deletion],
        adjust=_whoever_leads,
        options=ManagerOptions(name="steersman-databases"),
        **effort,
    )


def without_nondeterminism(obj: dict[str, Any]) -> dict[str, Any]:
    """Without versions of the store, who of equals is primary, and what was written: others in each run."""
    metadata: dict[str, Any] = obj["metadata"]
    left_out = (
        SWITCHOVER_VERSION_ANNOTATION,
        GROUP,
        MEMBER,
        LEADER_TERM_ANNOTATION,
        ARCHIVE_PATH_ANNOTATION,
        ARCHIVE_UID_ANNOTATION,
        "databases.steersman.dev/group-name",
        DATA_IDENTITY_ANNOTATION,
    )
    annotations: dict[str, str] = metadata.get("annotations") or {}
    kept = {k: v for k, v in annotations.items() if k not in left_out}
    return {**obj, "metadata": {**metadata, "annotations": kept}}


def _whoever_leads(obj: dict[str, Any]) -> dict[str, Any] | None:
    """The same whoever of equals is primary: that hangs on moments. ``clients`` sees to where -rw leads."""
    if obj["kind"] == "Backup":
        return None
    kept = without_nondeterminism(obj)
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
    left_out = ("primary", "lastPrimary", "lastSwitchover", "backup", "dataIdentity")
    kept = {k: v for k, v in told.items() if k not in left_out}
    return {**kept, "members": members, "conditions": conditions}


def _setup(manager: Manager, outside: SimulatedEnvironment) -> None:
    def contents(engine: str) -> InMemorySqlEngine:
        return InMemorySqlEngine({ServerEndpoint("orders-rw.default.svc", 3306): outside.sql}, engine)

    def parts(context: ReconcilerContext) -> EngineParts:
        return EngineParts(MySQLServers(), SimulatedGroupBackend(context.client, outside))

    setup(manager, sql_engine_for=contents, mysql_factory=parts)


async def simulated_kubernetes(world: Groups) -> None:
    """Volumes, pods, and an agent in each pod, which goes its own way."""
    async with _pods(world) as pods:
        hosts = FakeHosts(sql=world.outside.sql, programs=world.outside.programs)
        await ClusterKubelet(world.server, world.client, hosts, pods).run(VirtualClock())


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
        assert world.now() <= since + MISROUTED_SECONDS, (
            f"-rw does not lead to {primaries[0].name} for {MISROUTED_SECONDS:g} s"
        )
        holds_invariants(world)


def _reached(world: Groups) -> SimulatedMysqld | None:
    """The server that -rw leads to."""
    found = world.read(EndpointSlice, NAMES.endpoint_slices(NAMES.service("rw").name)[0])
    if found is None or not found.endpoints:
        return None
    return world.outside.servers.server_at(f"{found.endpoints[0].addresses[0]}:3306")


def _contents(outside: SimulatedEnvironment) -> dict[str, Any]:
    """Return what runs must have in common: initialisations, foundations of the group, and the final backup."""
    servers, backed_up = outside.servers, bool(outside.programs.final_backups)
    return {"initialised": servers.initialised, "founded": len(servers.founded), "backed_up": backed_up}


def holds_invariants(world: Groups) -> None:
    """Never two that take writes, and nothing lost that clients were told is kept."""
    assert not world.outside.servers.violations, world.outside.servers.violations[0]


def data_has_its_secrets(world: Groups) -> None:
    """As long as there are data in use, there are their authorities, the administrator's password, and the store."""
    for claim in world.read_all(PersistentVolumeClaim):
        server = world.outside.servers.all.get(claim.metadata.uid)
        if server is None or not server.has_data or claim.metadata.deletion_timestamp or is_retired(claim):
            continue
        for key in (NAMES.ca_secret, NAMES.administrator_secret):
            assert world.read(Secret, key) is not None, f"{claim.key} has lost {key.name}"
        assert world.read(ConfigMap, NAMES.group_config) is not None, f"{claim.key} has lost who led"


def one_history(world: Groups) -> None:
    """Nobody makes other data while there are data."""
    assert world.outside.servers.initialised <= 1


def final_backup_precedes_deletion(world: Groups) -> None:
    """No volume with data is deleted before the final backup of its cluster is complete."""
    completed = any(backup.status.phase == "Completed" for backup in world.read_all(Backup))
    if completed or not world.outside.programs.needs_final_backup:
        return
    present = {p.metadata.uid for p in world.read_all(PersistentVolumeClaim) if p.metadata.deletion_timestamp is None}
    for uid, server in world.outside.servers.all.items():
        assert uid in present or not server.has_data, f"PVC {uid} is deleted before the final backup"
