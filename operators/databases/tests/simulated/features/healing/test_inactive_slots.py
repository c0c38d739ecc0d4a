"""Replication slots without a client: reported by name, dropped only where that is allowed."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

import pytest

from database_support.unit.cluster_harness import ClusterHarness
from database_support.unit.healing_queries import healing_queries
from database_support.unit.planned_cluster import DECLARED, NOW, cluster_state, instance, primary
from steersman.api.core_v1 import Pod
from steersman.client import MergePatch
from steersman.controller import ReconcilerContext
from steersman.meta import decode_builtins, to_builtins
from steersman_databases.api.autopilot.automation import AutomationMode
from steersman_databases.api.autopilot.healing import InactiveSlotSettings, PostgreSQLHealingSettings
from steersman_databases.api.postgresql_cluster import PostgreSQLSettings, ReplicationSlot
from steersman_databases.cluster.parts.engine_parts import EngineParts
from steersman_databases.cluster.state import ClusterState
from steersman_databases.engines.cluster_engine import DeclaredSlot
from steersman_databases.engines.errors import ServerUnreachable
from steersman_databases.engines.naming import SUPERUSER_ROLE
from steersman_databases.engines.server import DatabaseServer
from steersman_databases.features.healing.inactive_slots import find_inactive_slots
from steersman_databases.features.storage.usage import USAGE
from steersman_testing import virtual_time

GIB = 1 << 30


def report(percent: int, since: datetime, name: str = "audit", **more: Any) -> str:
    """The report of a volume of 10 GiB."""
    slot = {"name": name, "size": 3 * GIB, "since": int(since.timestamp())}
    available = 10 * GIB * (100 - percent) // 100
    return json.dumps({"data": {"size": 10 * GIB, "available": available, "inactiveSlot": slot, **more}})


def reported(annotation: str) -> ClusterState:
    """A cluster whose primary reports this."""
    found = instance(0)
    content: Any = to_builtins(found.pod)
    content["metadata"]["annotations"][USAGE] = annotation
    return cluster_state([replace(found, pod=decode_builtins(content, Pod)), instance(1)], primary(0))


OLD = NOW - timedelta(hours=2)


@pytest.mark.parametrize(
    ("annotation", "due"),
    [
        (report(91, OLD), True),
        (report(70, OLD), False),
        (report(70, OLD, fillRate=1e6), True),  # full within an hour
        (report(91, NOW - timedelta(minutes=9)), False),
    ],
)
def test_slot_is_due_if_unused_on_a_filling_volume(annotation: str, due: bool) -> None:
    (found,) = find_inactive_slots(DECLARED, reported(annotation))
    assert found.due is due
    assert "replication slot audit has no client since" in found.message
    assert "retains 3.0 GiB WAL of orders-0, whose volume data is" in found.message


def test_declared_slot_is_never_due() -> None:
    declared = replace(DECLARED, replication_slots=[DeclaredSlot("audit")])
    (found,) = find_inactive_slots(declared, reported(report(99, OLD)))
    assert not found.due and "It is declared" in found.message


@pytest.mark.parametrize(
    "annotation",
    [
        report(99, OLD, "orders_1_0"),  # of an instance
        report(99, OLD, "steersman_read_3"),
        '{"data": {"size": 100, "available": 1, "inactiveSlot": {"name": "audit"}}}',
        '{"data": {"size": 100, "available": 1, "inactiveSlot": {"name": "a", "size": "x", "since": []}}}',
        '{"data": {"size": 100, "available": 1, "inactiveSlot": 1}}',
    ],
)
def test_other_slots_and_bad_reports_are_ignored(annotation: str) -> None:
    assert not [*find_inactive_slots(DECLARED, reported(annotation))]


@dataclass
class SlotServer(ClusterHarness):
    """Servers with a slot."""

    dropped: list[tuple[str, str, int]] = field(default_factory=list[tuple[str, str, int]])
    is_used: bool = False

    def engine_parts(self, context: ReconcilerContext) -> EngineParts:
        return replace(super().engine_parts(context), healing=healing_queries(drop_inactive_slot=self.drop))

    async def drop(self, server: DatabaseServer, name: str, least_bytes: int) -> bool:
        assert server.login.username == SUPERUSER_ROLE
        if self.unreachable:
            raise ServerUnreachable(server.endpoint, "no response")
        if self.is_used:
            return False
        pod = self.pod_of(server)
        self.dropped.append((pod.metadata.name, name, least_bytes))
        await self.report(None, pod)
        return True

    async def report(self, value: str | None, pod: Pod | None = None) -> None:
        key = (self.pods()["orders-0"] if pod is None else pod).key
        await self.client.patch(Pod, key, MergePatch({"metadata": {"annotations": {USAGE: value}}}))

    async def start(self, mode: AutomationMode, slots: Sequence[ReplicationSlot] = ()) -> None:
        healing = PostgreSQLHealingSettings(inactive_slots=InactiveSlotSettings(mode=mode))
        settings = PostgreSQLSettings(replication_slots=tuple(slots))
        await self.create(instances=1, healing=healing, postgresql=settings)
        await self.ready(1)


@virtual_time
async def test_due_slot_is_dropped_and_reported() -> None:
    world = SlotServer()
    async with world.operator():
        await world.start("Automatic")
        since = world.runtime.clock.now()
        await world.report(report(93, since))
        await world.until("named", lambda: world.condition("ReplicationSlotsReady") == "False/SlotInactive")
        (entry,) = world.status.automation
        assert (entry.name, entry.decision) == ("InactiveSlots", "SlotInactive")
        assert entry.next_action_time == since.replace(microsecond=0) + timedelta(minutes=10)
        await world.wait(500)
        assert world.dropped == []
        await world.until("dropped", lambda: world.dropped == [("orders-0-0", "audit", 3 * GIB)], 150)
        await world.until("solved", lambda: world.condition("ReplicationSlotsReady") == "")
        (entry,) = world.status.automation
        assert entry.decision == "Idle" and "dropped the slot: replication slot audit" in (entry.last_action or "")
        assert world.warnings("ReplicationSlotDropped")
        assert world.condition("Ready") == "True/AllInstancesReady"


@pytest.mark.parametrize("mode", ["Recommend", "Disabled"])
@virtual_time
async def test_slot_is_not_dropped_without_permission(mode: AutomationMode) -> None:
    world = SlotServer()
    async with world.operator():
        await world.start(mode)
        await world.report(report(99, world.runtime.clock.now()))
        await world.wait(1800)
        assert world.dropped == []
        entries = [entry.decision for entry in world.status.automation]
        assert entries == (["DropRecommended"] if mode == "Recommend" else [])


@virtual_time
async def test_slot_that_is_used_again_is_kept() -> None:
    world = SlotServer(is_used=True)
    async with world.operator():
        await world.start("Automatic")
        await world.report(report(99, world.runtime.clock.now()))
        await world.wait(1800)
        assert world.dropped == [] and not world.warnings("ReplicationSlotDropped")
