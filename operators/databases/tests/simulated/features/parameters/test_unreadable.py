"""What no server would start with, by what those say that run, and by the file that they read."""

from __future__ import annotations

from contextlib import AsyncExitStack

import pytest

from database_support.unit.cluster_harness import NAMES, ClusterHarness
from steersman.api.core_v1 import Pod
from steersman.meta import FrozenDict
from steersman_databases.api.postgresql_cluster import PostgreSQLSettings, SynchronousSettings
from steersman_databases.engines.postgresql.config.logging import LINE_PREFIX
from steersman_testing import virtual_time

REFUSED = "False/ParameterRejected"


def broken(world: ClusterHarness) -> set[str]:
    """Instances whose server does not start."""
    return {
        name for name, pod in world.pods().items() if "start failed" in pod.metadata.annotations.get("status", "")
    }


@virtual_time
@pytest.mark.parametrize("instances", [1, 3])
async def test_parameter_blocking_start_is_rejected_before_write(instances: int) -> None:
    world = ClusterHarness()
    world.hosts.unreadable_values.add(("timezone", "Europe/Berln"))
    async with world.operator():
        parameters = FrozenDict({"timezone": "UTC", "work_mem": "8MB"})
        await world.create_ready(instances, instances=instances, postgresql=PostgreSQLSettings(parameters=parameters))
        await world.set_parameters(timezone="Europe/Berln", work_mem="16MB")
        await world.until("refused", lambda: world.condition("ParametersApplied") == REFUSED)
        assert (
            world.message("ParametersApplied")
            == 'invalid value for parameter "timezone": "Europe/Berln". Correct the parameter'
        )
        await world.until("the rest", lambda: world.stored_parameters()["work_mem"] == "16MB", 10)
        assert world.stored_parameters()["timezone"] == "UTC", "the former value stays"
        for pod in list(world.pods()):
            await world.client.delete(Pod, NAMES.pod(int(pod.removeprefix("orders-"))))
            await world.wait(60)
        assert world.stored_parameters()["timezone"] == "UTC" and not broken(world)
        await world.degraded(instances)
        await world.set_parameters(timezone="Europe/Berlin")
        await world.until("applied", lambda: world.condition("ParametersApplied") == "True/Applied")
        assert world.stored_parameters()["timezone"] == "Europe/Berlin"


@virtual_time
async def test_written_unreadable_parameter_is_removed() -> None:
    """No session can try it, so it is seen only when it is written."""
    world, value = ClusterHarness(), "%wrong"
    world.hosts.unreadable_values.add(("log_line_prefix", value))
    async with world.operator():
        await world.create_ready(3, instances=3)
        await world.set_parameters(log_line_prefix=value, work_mem="8MB")
        await world.until(
            "written", lambda: "parameters.log_line_prefix" in "".join(world.messages("ParametersWritten"))
        )
        await world.until("left out", lambda: world.stored_parameters()["log_line_prefix"] == LINE_PREFIX, 15)
        words = "no instance could start with it: line 7: log_line_prefix = %wrong: it was not applied; ignoring it"
        await world.until("told", lambda: words in world.message("ParametersApplied"), 15)
        assert world.stored_parameters()["work_mem"] == "8MB" and "ParameterRejected" in world.events()
        await world.client.delete(Pod, NAMES.pod(2))
        await world.wait(60)
        assert not broken(world)
    async with world.operator():
        await world.wait(600)
        assert world.stored_parameters()["log_line_prefix"] == LINE_PREFIX, "another process does not try it again"
        assert world.condition("ParametersApplied") == REFUSED
        assert "InstanceReplaced" not in world.events()
        await world.set_parameters(log_line_prefix="%m")
        await world.until("applied", lambda: world.condition("ParametersApplied") == "True/Applied")
        assert world.stored_parameters()["log_line_prefix"] == "%m" and not world.parameter_trials()


@virtual_time
async def test_unreadable_parameter_of_older_release_is_removed() -> None:
    """It stands in the file, the servers run without, and one was stopped since."""
    world = ClusterHarness()
    async with world.operator():
        await world.create_ready(
            3, instances=3, postgresql=PostgreSQLSettings(parameters=FrozenDict({"search_path": "a b"}))
        )
    world.hosts.unreadable_values.add(("search_path", "a b"))
    await world.client.delete(Pod, NAMES.pod(2))
    async with world.operator():
        await world.until("taken out", lambda: "search_path" not in world.stored_parameters(), 60)
        await world.degraded(3)
        assert 'invalid value for parameter "search_path": "a b"' in world.message("ParametersApplied")
        assert "InstanceReplaced" not in world.events() and not broken(world)


@virtual_time
async def test_unreadable_file_blocks_replacement() -> None:
    """A copy would not start, either."""
    world = ClusterHarness()
    async with world.operator():
        await world.create(
            instances=3, postgresql=PostgreSQLSettings(synchronous=SynchronousSettings(mode="Disabled"))
        )
        await world.ready(3)
        world.hosts.broken_line = "postgresql.conf, line 7: syntax error"
        await world.client.delete(Pod, NAMES.pod(2))
        await world.until("told", lambda: world.condition("ParametersApplied") == REFUSED)
        assert world.message("ParametersApplied").startswith(
            "no instance could start: postgresql.conf, line 7: syntax error"
        )
        await world.wait(600)
        assert broken(world) == {"orders-2"} and "InstanceReplaced" not in world.events()
        world.hosts.broken_line = ""
        await world.ready(3)
        assert world.condition("ParametersApplied") == "True/Applied"


async def with_a_file_that_nobody_reads(world: ClusterHarness) -> None:
    """A replica does not start with it, for long, and the operator knows why."""
    await world.create_ready(
        3, instances=3, postgresql=PostgreSQLSettings(synchronous=SynchronousSettings(mode="Disabled"))
    )
    world.hosts.broken_line = "postgresql.conf, line 7: syntax error"
    await world.client.delete(Pod, NAMES.pod(2))
    await world.wait(420)
    assert broken(world) == {"orders-2"} and "InstanceReplaced" not in world.events()


@pytest.mark.parametrize(("seconds", "anew"), [(12, False), (1, True), (600, True)])
@virtual_time
async def test_unknown_file_state_blocks_replacement(seconds: int, *, anew: bool) -> None:
    """Nobody knows then that a copy would start; ``anew``: nor has this process ever asked."""
    world = ClusterHarness()
    async with AsyncExitStack() as stack:
        former = await stack.enter_async_context(AsyncExitStack())
        await former.enter_async_context(world.operator())
        await with_a_file_that_nobody_reads(world)
        world.unreachable = True
        if anew:
            await former.aclose()
            await stack.enter_async_context(world.operator())
        await world.wait(seconds)
        world.unreachable = False
        await world.wait(120)
        assert broken(world) == {"orders-2"} and "InstanceReplaced" not in world.events()


@virtual_time
async def test_file_broken_later_is_checked_before_replacement() -> None:
    world = ClusterHarness()
    async with world.operator():
        await world.create(
            instances=3, postgresql=PostgreSQLSettings(synchronous=SynchronousSettings(mode="Disabled"))
        )
        await world.ready(3)
        await world.wait(600)
        world.hosts.broken_line = "postgresql.conf, line 7: syntax error"
        await world.client.delete(Pod, NAMES.pod(2))
        await world.wait(420)
        assert broken(world) == {"orders-2"} and "InstanceReplaced" not in world.events()
        assert world.condition("ParametersApplied") == REFUSED


@virtual_time
async def test_sized_parameter_is_rejected_before_write() -> None:
    world = ClusterHarness()
    world.hosts.unreadable_values.add(("wal_compression", "lz4"))
    async with world.operator():
        await world.create_ready(2, instances=2, postgresql=PostgreSQLSettings(sizing="Defaults"))
        await world.change(postgresql={"sizing": "FromResources"})
        await world.until("rejected", lambda: world.condition("ParametersApplied") == REFUSED)
        assert 'parameter "wal_compression": "lz4"' in world.message("ParametersApplied")
        await world.until("sized", lambda: "shared_buffers" in world.stored_parameters(), 10)
        await world.client.delete(Pod, NAMES.pod(1))
        await world.wait(60)
        assert "wal_compression" not in world.stored_parameters() and not broken(world)
        await world.change(hibernated=True)
        await world.until("stopped", lambda: not world.pods(), 120)
        await world.change(hibernated=False)
        await world.degraded(2)
        assert "wal_compression" not in world.stored_parameters() and not broken(world)
        await world.set_parameters(wal_compression="on")
        await world.until("applied", lambda: world.condition("ParametersApplied") == "True/Applied")
        assert world.stored_parameters()["wal_compression"] == "on"
