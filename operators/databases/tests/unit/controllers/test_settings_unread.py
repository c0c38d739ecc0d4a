"""What no server would start with, by what those say that run, and by the file that they read."""

from __future__ import annotations

from contextlib import AsyncExitStack

import pytest

from database_support.cluster_world import NAMES, ClusterWorld
from steersman.api.core_v1 import Pod
from steersman.meta import FrozenDict
from steersman_databases.api.postgresql_cluster import PostgreSQLSettings, Synchronous
from steersman_testing import virtual_time

REFUSED = "False/ParameterRefused"


def broken(world: ClusterWorld) -> set[str]:
    """Instances whose server does not start."""
    return {
        name for name, pod in world.pods().items() if "start failed" in pod.metadata.annotations.get("status", "")
    }


@virtual_time
@pytest.mark.parametrize("instances", [1, 3])
async def test_what_no_server_would_start_with_is_refused_in_its_words_before_it_is_written(instances: int) -> None:
    world = ClusterWorld()
    world.hosts.unreadable_values.add(("timezone", "Europe/Berln"))
    async with world.operator():
        parameters = FrozenDict({"timezone": "UTC", "work_mem": "8MB"})
        await world.create(instances=instances, postgresql=PostgreSQLSettings(parameters=parameters))
        await world.ready(instances)
        await world.declare(timezone="Europe/Berln", work_mem="16MB")
        await world.until("refused", lambda: world.condition("ParametersApplied") == REFUSED)
        assert (
            world.message("ParametersApplied")
            == 'invalid value for parameter "timezone": "Europe/Berln": correct the parameter'
        )
        await world.until("the rest", lambda: world.stored()["work_mem"] == "16MB", 10)
        assert world.stored()["timezone"] == "UTC", "the former value stays"
        for pod in list(world.pods()):
            await world.client.delete(Pod, NAMES.pod(int(pod.removeprefix("orders-"))))
            await world.rest(60)
        assert world.stored()["timezone"] == "UTC" and not broken(world)
        await world.degraded(instances)
        await world.declare(timezone="Europe/Berlin")
        await world.until("applied", lambda: world.condition("ParametersApplied") == "True/Applied")
        assert world.stored()["timezone"] == "Europe/Berlin"


@virtual_time
async def test_what_was_written_and_not_read_is_left_out_before_anybody_starts_with_it() -> None:
    """No session can try it, so it is seen only when it is written."""
    world, value = ClusterWorld(), "%wrong"
    world.hosts.unreadable_values.add(("log_line_prefix", value))
    async with world.operator():
        await world.create(instances=3)
        await world.ready(3)
        await world.declare(log_line_prefix=value, work_mem="8MB")
        await world.until("written", lambda: "parameters.log_line_prefix" in "".join(world.messages("Configured")))
        await world.until("left out", lambda: "log_line_prefix" not in world.stored(), 15)
        words = "no instance would start: line 7: log_line_prefix = %wrong: it was not applied; it is left out"
        await world.until("told", lambda: words in world.message("ParametersApplied"), 15)
        assert world.stored()["work_mem"] == "8MB" and "ParameterRefused" in world.events()
        await world.client.delete(Pod, NAMES.pod(2))
        await world.rest(60)
        assert not broken(world)
    async with world.operator():
        await world.rest(600)
        assert "log_line_prefix" not in world.stored(), "another process does not try it again"
        assert world.condition("ParametersApplied") == REFUSED
        assert "InstanceReplaced" not in world.events()
        await world.declare(log_line_prefix="%m")
        await world.until("applied", lambda: world.condition("ParametersApplied") == "True/Applied")
        assert world.stored()["log_line_prefix"] == "%m" and "steersman" not in world.shared()


@virtual_time
async def test_what_a_former_release_let_through_is_taken_out_and_the_replica_starts() -> None:
    """It stands in the file, the servers run without, and one was stopped since."""
    world = ClusterWorld()
    async with world.operator():
        await world.create(instances=3, postgresql=PostgreSQLSettings(parameters=FrozenDict({"search_path": "a b"})))
        await world.ready(3)
    world.hosts.unreadable_values.add(("search_path", "a b"))
    await world.client.delete(Pod, NAMES.pod(2))
    async with world.operator():
        await world.until("taken out", lambda: "search_path" not in world.stored(), 60)
        await world.degraded(3)
        assert 'invalid value for parameter "search_path": "a b"' in world.message("ParametersApplied")
        assert "InstanceReplaced" not in world.events() and not broken(world)


@virtual_time
async def test_nobody_is_replaced_while_servers_have_a_file_that_none_could_read() -> None:
    """A copy would not start, either."""
    world = ClusterWorld()
    async with world.operator():
        await world.create(instances=3, postgresql=PostgreSQLSettings(synchronous=Synchronous(mode="Off")))
        await world.ready(3)
        world.hosts.broken_line = "postgresql.conf, line 7: syntax error"
        await world.client.delete(Pod, NAMES.pod(2))
        await world.until("told", lambda: world.condition("ParametersApplied") == REFUSED)
        assert world.message("ParametersApplied").startswith(
            "no instance would start: postgresql.conf, line 7: syntax error"
        )
        await world.rest(600)
        assert broken(world) == {"orders-2"} and "InstanceReplaced" not in world.events()
        world.hosts.broken_line = ""
        await world.ready(3)
        assert world.condition("ParametersApplied") == "True/Applied"


async def with_a_file_that_nobody_reads(world: ClusterWorld) -> None:
    """A replica does not start with it, for long, and the operator knows why."""
    await world.create(instances=3, postgresql=PostgreSQLSettings(synchronous=Synchronous(mode="Off")))
    await world.ready(3)
    world.hosts.broken_line = "postgresql.conf, line 7: syntax error"
    await world.client.delete(Pod, NAMES.pod(2))
    await world.rest(420)
    assert broken(world) == {"orders-2"} and "InstanceReplaced" not in world.events()


@pytest.mark.parametrize(("seconds", "anew"), [(12, False), (1, True), (600, True)])
@virtual_time
async def test_nobody_is_replaced_where_servers_do_not_answer_whether_they_read_their_file(
    seconds: int, *, anew: bool
) -> None:
    """Nobody knows then that a copy would start; ``anew``: nor has this process ever asked."""
    world = ClusterWorld()
    async with AsyncExitStack() as stack:
        former = await stack.enter_async_context(AsyncExitStack())
        await former.enter_async_context(world.operator())
        await with_a_file_that_nobody_reads(world)
        world.unreachable = True
        if anew:
            await former.aclose()
            await stack.enter_async_context(world.operator())
        await world.rest(seconds)
        world.unreachable = False
        await world.rest(120)
        assert broken(world) == {"orders-2"} and "InstanceReplaced" not in world.events()


@virtual_time
async def test_a_file_that_breaks_after_servers_read_it_is_looked_at_before_anybody_is_replaced() -> None:
    world = ClusterWorld()
    async with world.operator():
        await world.create(instances=3, postgresql=PostgreSQLSettings(synchronous=Synchronous(mode="Off")))
        await world.ready(3)
        await world.rest(600)
        world.hosts.broken_line = "postgresql.conf, line 7: syntax error"
        await world.client.delete(Pod, NAMES.pod(2))
        await world.rest(420)
        assert broken(world) == {"orders-2"} and "InstanceReplaced" not in world.events()
        assert world.condition("ParametersApplied") == REFUSED
