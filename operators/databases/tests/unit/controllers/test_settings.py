"""Parameters of clusters that servers do not take, in virtual time."""

from __future__ import annotations

from typing import Any

import pytest

from database_support.cluster_world import NAMES, ClusterWorld
from steersman.api.core_v1 import Pod
from steersman.meta import FrozenDict
from steersman_databases.api.postgresql_cluster import PostgreSQLSettings
from steersman_testing import virtual_time

REFUSED = "False/ParameterRefused"


def told(world: ClusterWorld) -> dict[str, Any]:
    """What Patroni is told of PostgreSQL."""
    return world.shared()["postgresql"]


def rules(world: ClusterWorld) -> list[str]:
    """The rules of access that it is told."""
    return told(world)["pg_hba"]


@virtual_time
async def test_what_the_server_does_not_know_or_take_is_not_written_and_the_rest_is() -> None:
    world = ClusterWorld()
    async with world.operator():
        await world.create(instances=2)
        await world.ready(2)
        await world.declare(wrok_mem="4MB", work_mem="8MB", max_connections="0")
        await world.until("refused", lambda: world.condition("ParametersApplied") == REFUSED)
        await world.until("written", lambda: world.stored().get("work_mem") == "8MB")
        assert not {"wrok_mem", "max_connections"} & world.stored().keys()
        assert 'unrecognized configuration parameter "wrok_mem"' in world.message("ParametersApplied")
        said = world.message("ParametersApplied")
        assert '0 is outside the valid range for parameter "max_connections" (1 .. 262143)' in said
        assert world.message("ParametersApplied").endswith("correct the parameter")
        assert "ParameterRefused" in world.events()
        assert (world.status.phase, world.condition("Ready")) == ("Degraded", "False/Degraded")
        assert world.message("Ready").startswith("ParametersApplied: ") and "wrok_mem" in world.message("Ready")
        await world.declare(wrok_mem=None, max_connections=None)

        def applied() -> bool:
            said = world.condition("ParametersApplied")
            assert world.condition("Ready") == "False/Degraded" or said != REFUSED, "it says so until that is known"
            return said == "True/Applied"

        await world.until("applied", applied)
        await world.ready(2)


@virtual_time
async def test_rules_of_access_stay_as_they_were_while_one_cannot_be_read() -> None:
    """Without webhooks, which refuse them at once."""
    world = ClusterWorld()
    async with world.operator():
        rule = "hostssl all clerk all reject"
        await world.create(instances=1, postgresql=PostgreSQLSettings(pg_hba=(rule,)))
        await world.ready(1)
        await world.change(postgresql={"pgHba": ["hostssl all clerk all rejcet", "local all all peer"]})
        await world.until("refused", lambda: world.condition("ParametersApplied") == REFUSED)
        assert 'spec.postgresql.pgHba[0]: "rejcet" is no method' in world.message("ParametersApplied")
        await world.rest()
        assert rule in rules(world)
        await world.change(postgresql={"pgHba": ["local all all peer"]})
        await world.until("applied", lambda: world.condition("ParametersApplied") == "True/Applied")
        assert "local all all peer" in rules(world) and rule not in rules(world)


@virtual_time
async def test_the_superuser_is_shut_out_and_let_in_again_without_a_restart() -> None:
    world, taken = ClusterWorld(), "hostssl all postgres all scram-sha-256"
    async with world.operator():
        await world.create(instances=2)
        await world.ready(2)
        before, secret = world.uids(), world.secret("orders-admin")
        assert taken in rules(world)
        await world.change(postgresql={"enableSuperuserAccess": False})
        await world.until("shut out", lambda: taken not in rules(world), 30)
        assert "host all postgres all reject" in rules(world)
        await world.ready(2)
        assert world.secret("orders-admin") == secret, "it is the password that opens again when that is declared"
        await world.change(postgresql={"enableSuperuserAccess": None})
        await world.until("let in", lambda: taken in rules(world), 30)
        await world.ready(2)
        assert world.uids() == before


@virtual_time
async def test_parameters_of_a_new_cluster_are_judged_once_it_runs() -> None:
    world = ClusterWorld()
    async with world.operator():
        await world.create(instances=1, postgresql=PostgreSQLSettings(parameters=FrozenDict({"wrok_mem": "4MB"})))
        await world.until("refused", lambda: world.condition("ParametersApplied") == REFUSED)
        assert "wrok_mem" not in world.stored()
        await world.until("it serves", lambda: world.status.phase == "Degraded")
        assert world.condition("Ready") == "False/Degraded"


@virtual_time
async def test_servers_that_run_with_something_else_are_told_with_both_values() -> None:
    world = ClusterWorld(stubborn={"wal_log_hints": "on"})
    async with world.operator():
        await world.create(instances=1)
        await world.ready(1)
        await world.declare(wal_log_hints="off")
        await world.until("refused", lambda: world.condition("ParametersApplied") == REFUSED)
        said = world.message("ParametersApplied")
        assert 'parameter "wal_log_hints" is declared as off, and orders-0 runs with on' in said
        world.stubborn.clear()
        await world.until("applied", lambda: world.condition("ParametersApplied") == "True/Applied")


@virtual_time
@pytest.mark.parametrize("pod", ["orders-0-0", "orders-1-0"])
async def test_what_somebody_sets_at_a_server_is_taken_back_within_30_s(pod: str) -> None:
    world = ClusterWorld()
    async with world.operator():
        parameters = FrozenDict({"work_mem": "8MB"})
        await world.create(version="15", postgresql=PostgreSQLSettings(parameters=parameters))
        await world.ready(3)
        await world.rest()
        asked, uids = world.asked, world.uids()
        await world.rest(120)
        assert world.asked - asked <= 3 * 120 / 15, "not with each reconcile"
        for values in ({"work_mem": "5MB", "enable_seqscan": "off"}, {"fsync": "off", "synchronous_commit": "off"}):
            kept = {name: value for name, value in values.items() if name != "enable_seqscan"}
            world.hosts.alter(pod, **values)
            await world.until("healed", lambda kept=kept: not kept.keys() & world.hosts.loaded[pod].keys(), 30)
            what = f"took back what ALTER SYSTEM had set: {', '.join(sorted(kept))} at {pod.removesuffix('-0')}"
            await world.until("told", lambda what=what: what in world.messages("DriftRepaired"), 5)
        assert world.hosts.altered[pod] == {"enable_seqscan": "off"}, "nobody else says anything about it"
        await world.ready(3)
        assert world.uids() == uids and world.condition("ParametersApplied") == "True/Applied"


@virtual_time
@pytest.mark.parametrize("in_effect", [False, True])
async def test_what_takes_a_restart_is_taken_back_before_and_after_it(in_effect: bool) -> None:
    """It may be in effect already, or may be so with the next restart."""
    world = ClusterWorld()
    async with world.operator():
        parameters = FrozenDict({"shared_buffers": "64MB"})
        await world.create(version="15", postgresql=PostgreSQLSettings(parameters=parameters))
        await world.ready(3)
        world.hosts.alter("orders-1-0", shared_buffers="128MB")
        if in_effect:
            world.hosts.running[world.uids()["orders-1"]]["shared_buffers"] = "128MB"
        await world.until("healed", lambda: not world.hosts.loaded["orders-1-0"], 30)
        await world.until("as declared", lambda: buffers(world, "orders-1") == "64MB")
        await world.until("applied", lambda: world.condition("ParametersApplied") == "True/Applied")
        assert world.hosts.history == ["orders-0-0"], "the primary was not touched"


def buffers(world: ClusterWorld, instance: str) -> str:
    """What its server runs with."""
    return world.hosts.running[world.uids()[instance]]["shared_buffers"]


@virtual_time
async def test_what_an_upgrade_brought_along_is_taken_back_once_it_is_declared() -> None:
    """ALTER SYSTEM is refused by then, and is let in for a moment."""
    world = ClusterWorld()
    async with world.operator():
        await world.create(instances=2)
        await world.ready(2)
        world.hosts.alter("orders-0-0", work_mem="5MB")
        await world.rest()
        assert world.stored()["allow_alter_system"] == "off" and world.hosts.loaded["orders-0-0"]
        await world.declare(work_mem="8MB")
        await world.until("healed", lambda: not world.hosts.loaded["orders-0-0"], 30)
        await world.until("closed", lambda: world.stored()["allow_alter_system"] == "off", 30)
        await world.until("applied", lambda: world.condition("ParametersApplied") == "True/Applied")


@virtual_time
async def test_what_cannot_be_taken_back_is_told() -> None:
    world = ClusterWorld(kept_by_hand={"work_mem"})
    async with world.operator():
        parameters = FrozenDict({"work_mem": "8MB"})
        await world.create(version="15", instances=1, postgresql=PostgreSQLSettings(parameters=parameters))
        await world.ready(1)
        world.hosts.alter("orders-0-0", work_mem="5MB")
        await world.until("refused", lambda: world.condition("ParametersApplied") == REFUSED)
        words = "work_mem at orders-0 is set by ALTER SYSTEM, and stays so: resetting it: it is kept"
        assert words in world.message("ParametersApplied")
        world.kept_by_hand.clear()
        await world.until("applied", lambda: world.condition("ParametersApplied") == "True/Applied")


@virtual_time
async def test_servers_are_not_asked_again_when_all_is_as_declared() -> None:
    """From version 17 on, nobody can set anything past what is declared."""
    world = ClusterWorld()
    async with world.operator():
        await world.create(instances=2, postgresql=PostgreSQLSettings(parameters=FrozenDict({"work_mem": "8MB"})))
        await world.ready(2)
        await world.rest()
        asked = world.asked
        await world.rest(600)
        assert world.asked == asked > 0


@virtual_time
async def test_a_replica_that_does_not_start_stops_the_roll_and_the_former_value_is_written_back() -> None:
    world = ClusterWorld()
    world.hosts.unstartable.add(("shared_buffers", "700MB"))
    async with world.operator():
        await world.create(postgresql=PostgreSQLSettings(parameters=FrozenDict({"shared_buffers": "64MB"})))
        await world.ready(3)
        await world.declare(shared_buffers="700MB", work_mem="8MB")
        await world.until("refused", lambda: world.condition("ParametersApplied") == REFUSED)
        await world.degraded(3)
        assert (world.stored()["shared_buffers"], world.stored()["work_mem"]) == ("64MB", "8MB")
        assert world.hosts.history == ["orders-0-0"], "the primary was not touched"
        words = 'an instance did not start with parameter "shared_buffers" = 700MB; 64MB is kept'
        assert words in world.message("ParametersApplied")
    async with world.operator():
        await world.rest()
        assert world.stored()["shared_buffers"] == "64MB", "another process does not try it again"
        assert world.condition("ParametersApplied") == REFUSED
        await world.declare(shared_buffers="128MB")
        await world.until("applied", lambda: world.condition("ParametersApplied") == "True/Applied")
        assert world.stored()["shared_buffers"] == "128MB"


@virtual_time
@pytest.mark.parametrize("cut", [False, True])
async def test_the_only_instance_gets_the_former_value_back_where_it_does_not_start(cut: bool) -> None:
    world = ClusterWorld()
    world.hosts.unstartable.add(("shared_buffers", "700MB"))
    async with world.operator():
        await world.create(
            instances=1, postgresql=PostgreSQLSettings(parameters=FrozenDict({"shared_buffers": "64MB"}))
        )
        await world.ready(1)
        await world.declare(shared_buffers="700MB", work_mem="8MB")
        await world.until("it fails", lambda: world.condition("Available") != "True/PrimaryAccepts")
        if not cut:
            await comes_back(world)
    async with world.operator():
        await comes_back(world)
        await world.rest()
        assert world.stored()["shared_buffers"] == "64MB", "another process does not try it again"
        await world.declare(shared_buffers="128MB")
        await world.until("applied", lambda: world.condition("ParametersApplied") == "True/Applied")
        assert (world.stored()["shared_buffers"], world.stored()["work_mem"]) == ("128MB", "8MB")
        await world.until("nothing waits", lambda: "steersman" not in world.shared())


@virtual_time
@pytest.mark.parametrize("instances", [1, 3])
@pytest.mark.parametrize("fenced", [False, True])
async def test_what_is_declared_while_no_server_runs_is_tried_when_one_does(instances: int, *, fenced: bool) -> None:
    world = ClusterWorld()
    world.hosts.unstartable.add(("shared_buffers", "700MB"))
    async with world.operator():
        await world.create(
            instances=instances, postgresql=PostgreSQLSettings(parameters=FrozenDict({"shared_buffers": "64MB"}))
        )
        await world.ready(instances)
        await (world.annotate(fenced="*") if fenced else world.change(hibernated=True))
        await world.until("nobody serves", lambda: world.condition("Available").startswith("False/"))
        await world.rest(60)
        await world.declare(shared_buffers="700MB", work_mem="8MB")
        await world.until("told", lambda: world.condition("ParametersApplied") == "False/ServerUnreachable")
        await world.rest(600)
        assert world.stored()["shared_buffers"] == "64MB"
        await (world.annotate(fenced=None) if fenced else world.change(hibernated=False))
        await comes_back(world)
        await world.degraded(instances)


@virtual_time
async def test_a_pod_that_waits_for_a_node_has_tried_nothing() -> None:
    world = ClusterWorld()
    world.hosts.unstartable.add(("shared_buffers", "700MB"))
    async with world.operator():
        parameters = PostgreSQLSettings(parameters=FrozenDict({"shared_buffers": "64MB"}))
        await world.create(instances=1, postgresql=parameters, node_selector=FrozenDict({"disk": "fast"}))
        await world.ready(1)
        await world.change(hibernated=True)
        await world.until("asleep", lambda: world.condition("Available").startswith("False/"))
        await world.declare(shared_buffers="700MB", work_mem="8MB")
        world.hosts.unschedulable.add("fast")
        await world.change(hibernated=False)
        await world.rest(600)
        assert world.stored()["shared_buffers"] == "64MB"
        world.hosts.unschedulable.clear()
        await world.client.delete(Pod, NAMES.pod(0))
        await comes_back(world)
        await world.degraded(1)


@virtual_time
async def test_servers_that_do_not_start_get_what_is_declared() -> None:
    world = ClusterWorld()
    async with world.operator():
        await world.create(instances=1)
        await world.ready(1)
        for volume in world.hosts.volumes.values():
            volume.broken = True
        await world.client.delete(Pod, NAMES.pod(0))
        await world.until("down", lambda: world.condition("Available").startswith("False/"))
        await world.declare(work_mem="16MB")
        await world.until("written", lambda: world.stored().get("work_mem") == "16MB")


async def comes_back(world: ClusterWorld) -> None:
    """Until it serves with what it had."""
    await world.until("refused", lambda: world.condition("ParametersApplied") == REFUSED)
    await world.until("serves", lambda: world.condition("Available") == "True/PrimaryAccepts")
    assert (world.stored()["shared_buffers"], world.stored()["work_mem"]) == ("64MB", "8MB")
    words = 'an instance did not start with parameter "shared_buffers" = 700MB; 64MB is kept'
    assert words in world.message("ParametersApplied")


@virtual_time
async def test_nothing_is_written_that_no_server_could_judge() -> None:
    world = ClusterWorld()
    async with world.operator():
        await world.create(instances=1, postgresql=PostgreSQLSettings(parameters=FrozenDict({"work_mem": "8MB"})))
        await world.ready(1)
        world.unreachable = True
        await world.declare(work_mem="16MB")
        await world.until("unreachable", lambda: world.condition("ParametersApplied") == "False/ServerUnreachable")
        assert world.stored()["work_mem"] == "8MB"
        world.unreachable = False
        await world.until("written", lambda: world.stored()["work_mem"] == "16MB")
        await world.until("applied", lambda: world.condition("ParametersApplied") == "True/Applied")


@virtual_time
@pytest.mark.parametrize(
    ("refusal", "named"),
    [
        ("FATAL:  no memory HINT:  reduce shared_buffers", '"shared_buffers"'),
        ('FATAL:  could not access file "x"', '"shared_buffers", "work_mem"'),
    ],
)
async def test_a_new_cluster_whose_first_server_does_not_start_says_for_what_and_goes_on_when_it_is_corrected(
    refusal: str, named: str
) -> None:
    world = ClusterWorld()
    world.hosts.unstartable.add(("shared_buffers", "700MB"))
    world.hosts.refusal = refusal
    async with world.operator():
        parameters = FrozenDict({"shared_buffers": "700MB", "work_mem": "8MB"})
        await world.create(instances=1, postgresql=PostgreSQLSettings(parameters=parameters))
        await world.until("refused", lambda: world.condition("ParametersApplied") == REFUSED)
        words = f"no server starts, which parameter {named} may be for: {refusal}: correct the parameter"
        assert world.message("ParametersApplied") == words
        await world.declare(shared_buffers="64MB")
        await world.ready(1)
        assert world.condition("ParametersApplied") == "True/Applied"
