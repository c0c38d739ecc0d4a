"""Parameters are reverted if servers crash repeatedly soon after their change."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest

from database_support.unit.cluster_harness import ClusterHarness
from database_support.unit.planned_cluster import DECLARED, NOW, cluster_state, instance, member, primary
from steersman.api.core_v1 import Pod
from steersman.client import MergePatch
from steersman.meta import FrozenDict
from steersman_databases.api.autopilot.healing import CrashLoopSettings, PostgreSQLHealingSettings
from steersman_databases.api.postgresql_cluster import PostgreSQLSettings
from steersman_databases.cluster.state import ClusterState
from steersman_databases.engines.cluster_engine import SizedParameter
from steersman_databases.engines.members import MAX_CRASHES
from steersman_databases.features.parameters.changes import RECORD_KEY
from steersman_databases.features.parameters.crash_loops import (
    find_crash_loop,
    last_change,
    record_changes,
    recorded_changes,
    suspects,
)
from steersman_databases.features.parameters.model import ParameterTrials
from steersman_testing import virtual_time

LARGE = replace(DECLARED, parameters={"work_mem": "4GB"})


def ago(*minutes: float) -> Sequence[datetime]:
    """Times before `NOW`, the oldest first."""
    return sorted(NOW - timedelta(minutes=each) for each in minutes)


def changed(minutes: float, name: str = "work_mem", value: str = "4GB") -> dict[str, Any]:
    """Settings with a recorded change."""
    entry = {"value": value, "former": "4MB", "at": ago(minutes)[0].isoformat()}
    return {"postgresql": {"parameters": {name: value}}, RECORD_KEY: {"changed": {name: entry}}}


def crashed(*crashes: Sequence[datetime], settings: Mapping[str, Any] | None = None) -> ClusterState:
    """A cluster whose members report these crashes."""
    members = [member(n, crashes=times) for n, times in enumerate(crashes, start=1)]
    state = cluster_state([instance(n) for n in range(len(crashes) + 1)], primary(0), *members)
    return replace(state, members=replace(state.members, settings=settings or {}))


@pytest.mark.parametrize(
    ("crashes", "number"),
    [
        ([ago(1, 2, 3)], 3),
        ([ago(1, 14), ago(5)], 3),  # a failover follows each crash
        ([ago(1), ago(1.2), ago(3)], 0),  # all nodes restarted once
        ([ago(1, 2)], 0),
        ([ago(1, 2, 13)], 0),
        ([ago(11, 12, 13)], 0),
        ([ago(-5, 1, 2)], 0),  # no clock is that wrong
    ],
)
def test_crash_loop_close_repeated_crashes_are_one(crashes: list[Sequence[datetime]], number: int) -> None:
    found = find_crash_loop(DECLARED, crashed(*crashes))
    assert (0 if found is None else len(found.times)) == number


@pytest.mark.parametrize(
    ("crashes", "settings", "names"),
    [
        (ago(1, 2, 3), changed(4), ["work_mem"]),
        (ago(1, 2, 3), changed(32), ["work_mem"]),
        (ago(1, 2, 3), changed(34), []),
        (ago(1, 2, 3), changed(2.5), []),  # an attempt to end the crashes
        (ago(1, 2, 3), changed(4, value="1GB"), []),  # corrected meanwhile
        (ago(*[each / 4 for each in range(1, MAX_CRASHES + 1)]), changed(6), []),  # earlier crashes are unknown
        (ago(1, 2, 3), {RECORD_KEY: {"changed": {"work_mem": {"value": 1}, "jit": "on"}}}, []),
    ],
)
def test_suspects_are_changes_shortly_before(
    crashes: Sequence[datetime], settings: dict[str, Any], names: list[str]
) -> None:
    state = crashed(crashes, settings=settings)
    assert [one.name for one in suspects(LARGE, state, find_crash_loop(LARGE, state))] == names


def test_record_keeps_earlier_changes_for_a_day() -> None:
    stored = changed(20)
    desired = {"postgresql": {"parameters": {"work_mem": "4GB", "jit": "on"}}}
    declared = replace(DECLARED, parameters={"work_mem": "4GB", "jit": "on"})
    written = record_changes(declared, stored, desired, ParameterTrials(), NOW)
    assert [(one.name, one.previous, one.at) for one in recorded_changes(written)] == [
        ("work_mem", "4MB", ago(20)[0]),
        ("jit", "", NOW),
    ]
    assert record_changes(declared, written, desired, ParameterTrials(), NOW + timedelta(hours=23)) == written
    assert record_changes(declared, written, desired, ParameterTrials(), NOW + timedelta(days=2)) == desired


def test_sized_parameters_are_not_recorded() -> None:
    """Their previous values may not fit into the present memory."""
    sized = SizedParameter("shared_buffers", "128MB", "1/4 of the memory limit")
    declared = replace(DECLARED, parameters={"work_mem": "4GB"}, sized=[sized])
    stored = {"postgresql": {"parameters": {"work_mem": "4MB", "shared_buffers": "1GB"}}}
    desired = {"postgresql": {"parameters": {"work_mem": "4GB", "shared_buffers": "128MB"}}}
    written = record_changes(declared, stored, desired, ParameterTrials(), NOW)
    assert [one.name for one in recorded_changes(written)] == ["work_mem"]


def test_last_change_is_the_newest_before_the_crashes() -> None:
    state = crashed(ago(0.2, 0.3, 0.4), settings=changed(0.5))
    loop = find_crash_loop(LARGE, state)
    assert loop is not None and "work_mem at 2026-11-21 23:59:30 UTC" in last_change(state, loop)
    recreated = crashed(ago(0.2, 0.3, 0.4), settings=changed(5))
    assert "was created with image" in last_change(recreated, loop)


async def crash(world: ClusterHarness, name: str = "orders-0") -> None:
    """The server of an instance crashes now, as its pod reports it."""
    pod = world.pods()[name]
    times = json.loads(pod.metadata.annotations.get("databases.steersman.dev/crashes", "[]"))
    value = json.dumps([*times, int(world.runtime.clock.now().timestamp())])
    annotations = {"databases.steersman.dev/crashes": value}
    await world.client.patch(Pod, pod.key, MergePatch({"metadata": {"annotations": annotations}}))


async def crash_three_times(world: ClusterHarness) -> None:
    for _ in range(3):
        await world.wait(20)
        await crash(world)


@virtual_time
async def test_parameter_before_crash_loop_is_reverted() -> None:
    world = ClusterHarness()
    async with world.operator():
        await world.create_ready(
            2, instances=2, postgresql=PostgreSQLSettings(parameters=FrozenDict({"work_mem": "8MB"}))
        )
        pods = world.uids()
        await world.set_parameters(work_mem="4096MB")
        await world.until("written", lambda: world.stored_parameters()["work_mem"] == "4096MB")
        await crash_three_times(world)
        await world.until("reverted", lambda: world.stored_parameters()["work_mem"] == "8MB")
        await world.until("reported", lambda: world.condition("ServersStable") == "False/ParameterReverted")
        assert "work_mem at " in world.message("ServersStable")
        words = 'servers crashed 3 times after parameter "work_mem" was set to 4096MB; keeping 8MB'
        await world.until("named", lambda: words in world.message("ParametersApplied"))
        assert "ParameterReverted" in world.events()
    # Another process of the operator, after the crashes.
    async with world.operator():
        await world.wait(900)
        assert world.stored_parameters()["work_mem"] == "8MB" and world.uids() == pods
        assert world.condition("ServersStable") == ""
        (entry,) = world.status.automation
        assert (entry.name, entry.mode, entry.decision) == ("CrashLoops", "Automatic", "ParameterReverted")
        await world.set_parameters(work_mem="16MB")
        await world.until("corrected", lambda: world.stored_parameters()["work_mem"] == "16MB")
        await world.until("applied", lambda: world.condition("ParametersApplied") == "True/Applied")
        assert world.status.automation == ()


@pytest.mark.parametrize(
    ("mode", "condition"), [("Recommend", "False/RevertRecommended"), ("Disabled", "")], ids=["recommend", "disabled"]
)
@virtual_time
async def test_crash_loop_without_automatic_mode_changes_nothing(mode: Any, condition: str) -> None:
    world = ClusterHarness()
    async with world.operator():
        settings = PostgreSQLHealingSettings(crash_loops=CrashLoopSettings(mode=mode))
        await world.create_ready(1, instances=1, healing=settings)
        await world.set_parameters(work_mem="4096MB")
        await world.until("written", lambda: world.stored_parameters().get("work_mem") == "4096MB")
        await crash_three_times(world)
        await world.wait(60)
        assert world.condition("ServersStable") == condition
        assert world.stored_parameters()["work_mem"] == "4096MB"
