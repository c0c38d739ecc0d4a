"""Replicas that stream and receive nothing: their receiver is ended, then their server is restarted."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any

import pytest

from database_support.unit.cluster_harness import ClusterHarness
from database_support.unit.fake_patroni import DIVERGED_POSITION, PRIMARY_POSITION
from database_support.unit.healing_queries import healing_queries
from database_support.unit.planned_cluster import NOW, member
from steersman.controller import ReconcilerContext
from steersman_databases.api.autopilot.automation import AutomationMode
from steersman_databases.api.autopilot.healing import PostgreSQLHealingSettings, StuckReplicaSettings
from steersman_databases.cluster.parts.engine_parts import EngineParts
from steersman_databases.engines.errors import ServerUnreachable
from steersman_databases.engines.naming import SUPERUSER_ROLE
from steersman_databases.engines.server import DatabaseServer
from steersman_databases.features.healing.stuck_replicas import Stall, cure, observe
from steersman_testing import virtual_time


@pytest.mark.parametrize(
    ("fields", "since"),
    [
        ({"wal_position": 100}, NOW - timedelta(minutes=3)),
        ({"wal_position": 101}, NOW),
        ({"wal_position": None}, None),  # it has all WAL
        ({"wal_position": 100, "state": "Running"}, None),  # it does not stream
    ],
)
def test_stall_lasts_while_position_stays(fields: dict[str, Any], since: object) -> None:
    previous = Stall(position=100, since=NOW - timedelta(minutes=3))
    found = observe(previous, member(1, **fields), NOW)
    assert (None if found is None else found.since) == since


@pytest.mark.parametrize(
    ("minutes", "cured", "restarted", "expected"),
    [
        (1, None, False, None),
        (2, None, False, "EndReceiver"),
        (2.5, 0.5, False, None),
        (3, 1, False, "EndReceiver"),
        (5, 0.1, False, "RestartServer"),
        (6, 1, True, None),
        (11, None, False, None),
    ],
)
def test_cure_is_gentle_first(minutes: float, cured: float | None, restarted: bool, expected: str | None) -> None:
    at = None if cured is None else NOW - timedelta(minutes=cured)
    stall = Stall(position=1, since=NOW - timedelta(minutes=minutes), cured_at=at, restarted=restarted)
    assert cure(stall, NOW) == expected


@dataclass
class StuckServer(ClusterHarness):
    """Instances whose replicas get stuck."""

    ended: list[str] = field(default_factory=list[str])
    recovers: bool = True
    received: int = DIVERGED_POSITION

    def engine_parts(self, context: ReconcilerContext) -> EngineParts:
        healing = healing_queries(received_wal=self.received_wal, end_wal_receiver=self.end)
        return replace(super().engine_parts(context), healing=healing)

    async def received_wal(self, server: DatabaseServer) -> int | None:
        if self.unreachable:
            raise ServerUnreachable(server.endpoint, "no response")
        return self.received

    async def end(self, server: DatabaseServer) -> bool:
        assert server.login.username == SUPERUSER_ROLE
        if self.unreachable:
            raise ServerUnreachable(server.endpoint, "no response")
        name = self.pod_of(server).metadata.name
        self.ended.append(name)
        if self.recovers:
            self.hosts.stuck.discard(name)
        return True

    async def start(self, mode: AutomationMode = "Automatic") -> str:
        """Create the cluster, and return the pod of its replica, which is stuck from now on."""
        healing = PostgreSQLHealingSettings(stuck_replicas=StuckReplicaSettings(mode=mode))
        await self.create(instances=2, healing=healing)
        await self.ready(2)
        (replica,) = {f"{name}-0" for name in self.pods()} - {f"{self.status.primary}-0"}
        self.hosts.stuck.add(replica)
        return replica


@virtual_time
async def test_receiver_of_stuck_replica_is_ended() -> None:
    world = StuckServer()
    async with world.operator():
        replica = await world.start()
        await world.until("named", lambda: world.condition("ReplicationAdvancing") == "False/ReceiverStuck", 200)
        await world.until("advances", lambda: world.condition("ReplicationAdvancing") == "", 60)
        assert (world.ended, world.hosts.restarts) == ([replica], [])
        (entry,) = world.status.automation
        assert (entry.name, entry.decision) == ("StuckReplicas", "Idle")
        assert entry.last_action == f"ended the WAL receiver of {replica.removesuffix('-0')}"
        assert world.messages("ReceiverEnded") and world.condition("Ready") == "True/AllInstancesReady"


@virtual_time
async def test_server_is_restarted_if_receiver_stays_stuck() -> None:
    world = StuckServer(recovers=False)
    async with world.operator():
        replica = await world.start()
        world.hosts.restarting = True
        await world.until("restarted", lambda: world.hosts.restarts == [replica], 400)
        assert 2 <= len(world.ended) <= 4
        world.hosts.restarting = False
        world.hosts.stuck.clear()
        await world.until("advances", lambda: world.condition("ReplicationAdvancing") == "", 120)
        await world.wait(900)
        assert world.hosts.restarts == []


@virtual_time
async def test_unreachable_stuck_replica_is_restarted_once() -> None:
    world = StuckServer(unreachable=True)
    async with world.operator():
        world.unreachable = False
        replica = await world.start()
        world.unreachable = world.hosts.restarting = True
        await world.until("restarted", lambda: replica in world.hosts.restarts, 400)


@virtual_time
async def test_replica_with_outdated_report_is_left_alone() -> None:
    """Its pod cannot reach the Kubernetes API, so its position there is an old one."""
    world = StuckServer(received=PRIMARY_POSITION)
    async with world.operator():
        await world.start()
        await world.wait(900)
        assert (world.ended, world.hosts.restarts) == ([], [])


@virtual_time
async def test_stuck_replicas_are_restarted_one_at_a_time() -> None:
    world = StuckServer(recovers=False)
    async with world.operator():
        await world.create_ready(3, instances=3)
        world.hosts.stuck |= {f"{name}-0" for name in world.pods()} - {f"{world.status.primary}-0"}
        world.hosts.restarting = True
        await world.until("restarted", lambda: len(world.hosts.restarts) == 1, 400)
        (first,) = world.hosts.restarts
        await world.wait(60)
        assert world.hosts.restarts == [first]
        world.hosts.stuck.discard(first)
        world.hosts.restarting = False
        await world.until("the first one has restarted", lambda: first not in world.hosts.restarts)
        world.hosts.restarting = True
        await world.until("the other one is next", lambda: len(world.hosts.restarts) == 1, 200)
        assert world.hosts.restarts != [first]


@pytest.mark.parametrize(("mode", "condition"), [("Recommend", "False/ReceiverStuck"), ("Disabled", "")])
@virtual_time
async def test_stuck_replica_is_left_alone_without_permission(mode: AutomationMode, condition: str) -> None:
    world = StuckServer()
    async with world.operator():
        await world.start(mode)
        await world.wait(900)
        assert (world.ended, world.hosts.restarts) == ([], [])
        assert world.condition("ReplicationAdvancing") == condition
