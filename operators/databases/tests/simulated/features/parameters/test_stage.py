"""Parameters of clusters that servers do not take, in virtual time."""

from __future__ import annotations

from typing import Any

import pytest

from database_support.unit.cluster_harness import NAMES, ClusterHarness
from steersman.api.core_v1 import Pod
from steersman.meta import FrozenDict
from steersman_databases.api.postgresql_cluster import PostgreSQLSettings
from steersman_testing import virtual_time

REFUSED = "False/ParameterRejected"


def told(world: ClusterHarness) -> dict[str, Any]:
    """What Patroni is told of PostgreSQL."""
    return world.shared_configuration()["postgresql"]


def rules(world: ClusterHarness) -> list[str]:
    """The rules of access that it is told."""
    return told(world)["pg_hba"]


@virtual_time
async def test_rejected_parameters_are_skipped_and_rest_written() -> None:
    world = ClusterHarness()
    async with world.operator():
        await world.create_ready(2, instances=2)
        await world.set_parameters(wrok_mem="4MB", work_mem="8MB", max_connections="0")
        await world.until("refused", lambda: world.condition("ParametersApplied") == REFUSED)
        await world.until("written", lambda: world.stored_parameters().get("work_mem") == "8MB")
        assert not {"wrok_mem", "max_connections"} & world.stored_parameters().keys()
        assert 'unrecognized configuration parameter "wrok_mem"' in world.message("ParametersApplied")
        said = world.message("ParametersApplied")
        assert '0 is outside the valid range for parameter "max_connections" (1 .. 262143)' in said
        assert world.message("ParametersApplied").endswith("Correct the parameter")
        assert "ParameterRejected" in world.events()
        assert (world.status.phase, world.condition("Ready")) == ("Degraded", "False/Degraded")
        assert world.message("Ready").startswith("ParametersApplied: ") and "wrok_mem" in world.message("Ready")
        await world.set_parameters(wrok_mem=None, max_connections=None)

        def applied() -> bool:
            said = world.condition("ParametersApplied")
            assert world.condition("Ready") == "False/Degraded" or said != REFUSED, "it says so until that is known"
            return said == "True/Applied"

        await world.until("applied", applied)
        await world.ready(2)


@virtual_time
async def test_invalid_hba_line_keeps_previous_rules() -> None:
    """Without webhooks, which refuse them at once."""
    world = ClusterHarness()
    async with world.operator():
        rule = "hostssl all clerk all reject"
        await world.create_ready(1, instances=1, postgresql=PostgreSQLSettings(pg_hba=(rule,)))
        await world.change(postgresql={"pgHba": ["hostssl all clerk all rejcet", "local all all peer"]})
        await world.until("refused", lambda: world.condition("ParametersApplied") == REFUSED)
        assert 'spec.postgresql.pgHba[0]: "rejcet" is not a method' in world.message("ParametersApplied")
        await world.wait()
        assert rule in rules(world)
        await world.change(postgresql={"pgHba": ["local all all peer"]})
        await world.until("applied", lambda: world.condition("ParametersApplied") == "True/Applied")
        assert "local all all peer" in rules(world) and rule not in rules(world)


@virtual_time
async def test_superuser_access_toggles_without_restart() -> None:
    world, taken = ClusterHarness(), "hostssl all postgres all scram-sha-256"
    async with world.operator():
        await world.create_ready(2, instances=2)
        before, secret = world.uids(), world.secret("orders-admin")
        assert taken not in rules(world) and "host all postgres all reject" in rules(world)
        await world.change(postgresql={"enableSuperuserAccess": True})
        await world.until("the superuser may log in", lambda: taken in rules(world), 30)
        await world.ready(2)
        assert world.secret("orders-admin") == secret
        await world.change(postgresql={"enableSuperuserAccess": None})
        await world.until("the superuser is rejected", lambda: taken not in rules(world), 30)
        await world.ready(2)
        assert world.uids() == before


@virtual_time
async def test_new_cluster_validates_parameters_once_running() -> None:
    world = ClusterHarness()
    async with world.operator():
        await world.create(instances=1, postgresql=PostgreSQLSettings(parameters=FrozenDict({"wrok_mem": "4MB"})))
        await world.until("refused", lambda: world.condition("ParametersApplied") == REFUSED)
        assert "wrok_mem" not in world.stored_parameters()
        await world.until("it serves", lambda: world.status.phase == "Degraded")
        assert world.condition("Ready") == "False/Degraded"


@virtual_time
async def test_differing_values_are_reported() -> None:
    world = ClusterHarness(not_resettable={"wal_log_hints": "on"})
    async with world.operator():
        await world.create_ready(1, instances=1)
        await world.set_parameters(wal_log_hints="off")
        await world.until("refused", lambda: world.condition("ParametersApplied") == REFUSED)
        said = world.message("ParametersApplied")
        assert 'parameter "wal_log_hints" is declared as off, and orders-0 uses on' in said
        world.not_resettable.clear()
        await world.until("applied", lambda: world.condition("ParametersApplied") == "True/Applied")


@virtual_time
@pytest.mark.parametrize("pod", ["orders-0-0", "orders-1-0"])
async def test_alter_system_is_reset_in_30s(pod: str) -> None:
    world = ClusterHarness()
    async with world.operator():
        parameters = FrozenDict({"work_mem": "8MB"})
        await world.create_ready(3, version="15", postgresql=PostgreSQLSettings(parameters=parameters))
        await world.wait()
        asked, uids = world.settings_queries, world.uids()
        await world.wait(120)
        assert world.settings_queries - asked <= 3 * 120 / 15, "not with each reconcile"
        for values in ({"work_mem": "5MB", "enable_seqscan": "off"}, {"fsync": "off", "synchronous_commit": "off"}):
            kept = {name: value for name, value in values.items() if name != "enable_seqscan"}
            world.hosts.alter(pod, **values)
            await world.until("healed", lambda kept=kept: not kept.keys() & world.hosts.loaded[pod].keys(), 30)
            what = (
                f"reverted parameters that were changed by ALTER SYSTEM: {', '.join(sorted(kept))} at "
                f"{pod.removesuffix('-0')}"
            )
            await world.until("told", lambda what=what: what in world.messages("DriftReverted"), 5)
        assert world.hosts.altered[pod] == {"enable_seqscan": "off"}, "nobody else says anything about it"
        await world.ready(3)
        assert world.uids() == uids and world.condition("ParametersApplied") == "True/Applied"


@virtual_time
@pytest.mark.parametrize("in_effect", [False, True])
async def test_restart_parameter_in_alter_system_is_reset(in_effect: bool) -> None:
    """It may be in effect already, or may be so with the next restart."""
    world = ClusterHarness()
    async with world.operator():
        parameters = FrozenDict({"shared_buffers": "64MB"})
        await world.create_ready(3, version="15", postgresql=PostgreSQLSettings(parameters=parameters))
        world.hosts.alter("orders-1-0", shared_buffers="128MB")
        if in_effect:
            world.hosts.running[world.uids()["orders-1"]]["shared_buffers"] = "128MB"
        await world.until("healed", lambda: not world.hosts.loaded["orders-1-0"], 30)
        await world.until("as declared", lambda: buffers(world, "orders-1") == "64MB")
        await world.until("applied", lambda: world.condition("ParametersApplied") == "True/Applied")
        assert world.hosts.history == ["orders-0-0"], "the primary was not touched"


def buffers(world: ClusterHarness, instance: str) -> str:
    """What its server runs with."""
    return world.hosts.running[world.uids()[instance]]["shared_buffers"]


@virtual_time
async def test_upgraded_alter_system_is_reset_once_declared() -> None:
    """ALTER SYSTEM is refused by then, and is let in for a moment."""
    world = ClusterHarness()
    async with world.operator():
        await world.create_ready(2, instances=2)
        world.hosts.alter("orders-0-0", temp_buffers="5MB")
        await world.wait()
        assert world.stored_parameters()["allow_alter_system"] == "off" and world.hosts.loaded["orders-0-0"]
        await world.set_parameters(temp_buffers="8MB")
        await world.until("healed", lambda: not world.hosts.loaded["orders-0-0"], 30)
        await world.until("closed", lambda: world.stored_parameters()["allow_alter_system"] == "off", 30)
        await world.until("applied", lambda: world.condition("ParametersApplied") == "True/Applied")


@virtual_time
async def test_failed_reset_is_reported() -> None:
    world = ClusterHarness(manual_settings={"work_mem"})
    async with world.operator():
        parameters = FrozenDict({"work_mem": "8MB"})
        await world.create_ready(1, version="15", instances=1, postgresql=PostgreSQLSettings(parameters=parameters))
        world.hosts.alter("orders-0-0", work_mem="5MB")
        await world.until("refused", lambda: world.condition("ParametersApplied") == REFUSED)
        words = "work_mem on orders-0 is set by ALTER SYSTEM and cannot be reset: resetting it: it is kept"
        assert words in world.message("ParametersApplied")
        world.manual_settings.clear()
        await world.until("applied", lambda: world.condition("ParametersApplied") == "True/Applied")


@virtual_time
async def test_matching_servers_are_not_queried_again() -> None:
    """From version 17 on, nobody can set anything past what is declared."""
    world = ClusterHarness()
    async with world.operator():
        await world.create_ready(
            2, instances=2, postgresql=PostgreSQLSettings(parameters=FrozenDict({"work_mem": "8MB"}))
        )
        await world.wait()
        asked = world.settings_queries
        await world.wait(600)
        assert world.settings_queries == asked > 0


@virtual_time
async def test_failing_replica_stops_rollout_and_reverts() -> None:
    world = ClusterHarness()
    world.hosts.failing_start.add(("shared_buffers", "700MB"))
    async with world.operator():
        await world.create_ready(3, postgresql=PostgreSQLSettings(parameters=FrozenDict({"shared_buffers": "64MB"})))
        await world.set_parameters(shared_buffers="700MB", work_mem="8MB")
        await world.until("refused", lambda: world.condition("ParametersApplied") == REFUSED)
        await world.degraded(3)
        assert (world.stored_parameters()["shared_buffers"], world.stored_parameters()["work_mem"]) == ("64MB", "8MB")
        assert world.hosts.history == ["orders-0-0"], "the primary was not touched"
        words = 'an instance could not start with parameter "shared_buffers" = 700MB; keeping 64MB'
        assert words in world.message("ParametersApplied")
    async with world.operator():
        await world.wait()
        assert world.stored_parameters()["shared_buffers"] == "64MB", "another process does not try it again"
        assert world.condition("ParametersApplied") == REFUSED
        await world.set_parameters(shared_buffers="128MB")
        await world.until("applied", lambda: world.condition("ParametersApplied") == "True/Applied")
        assert world.stored_parameters()["shared_buffers"] == "128MB"


@virtual_time
@pytest.mark.parametrize("cut", [False, True])
async def test_failing_single_instance_is_reverted(cut: bool) -> None:
    world = ClusterHarness()
    world.hosts.failing_start.add(("shared_buffers", "700MB"))
    async with world.operator():
        await world.create(
            instances=1, postgresql=PostgreSQLSettings(parameters=FrozenDict({"shared_buffers": "64MB"}))
        )
        await world.ready(1)
        await world.set_parameters(shared_buffers="700MB", work_mem="8MB")
        await world.until("it fails", lambda: world.condition("Available") != "True/PrimaryAvailable")
        if not cut:
            await comes_back(world)
    async with world.operator():
        await comes_back(world)
        await world.wait()
        assert world.stored_parameters()["shared_buffers"] == "64MB", "another process does not try it again"
        await world.set_parameters(shared_buffers="128MB")
        await world.until("applied", lambda: world.condition("ParametersApplied") == "True/Applied")
        assert (world.stored_parameters()["shared_buffers"], world.stored_parameters()["work_mem"]) == (
            "128MB",
            "8MB",
        )
        await world.until("nothing waits", lambda: not world.parameter_trials())


@virtual_time
@pytest.mark.parametrize("instances", [1, 3])
@pytest.mark.parametrize("fenced", [False, True])
async def test_parameters_declared_while_down_are_tried_later(instances: int, *, fenced: bool) -> None:
    world = ClusterHarness()
    world.hosts.failing_start.add(("shared_buffers", "700MB"))
    async with world.operator():
        await world.create(
            instances=instances, postgresql=PostgreSQLSettings(parameters=FrozenDict({"shared_buffers": "64MB"}))
        )
        await world.ready(instances)
        await (world.annotate(fenced_instances="*") if fenced else world.change(hibernated=True))
        await world.until("nobody serves", lambda: world.condition("Available").startswith("False/"))
        await world.wait(60)
        await world.set_parameters(shared_buffers="700MB", work_mem="8MB")
        await world.until("told", lambda: world.condition("ParametersApplied") == "False/ServerUnreachable")
        await world.wait(300)
        assert world.stored_parameters()["shared_buffers"] == "64MB"
        await (world.annotate(fenced_instances=None) if fenced else world.change(hibernated=False))
        await comes_back(world)
        await world.degraded(instances)


@virtual_time
async def test_unscheduled_pod_has_tried_nothing() -> None:
    world = ClusterHarness()
    world.hosts.failing_start.add(("shared_buffers", "700MB"))
    async with world.operator():
        parameters = PostgreSQLSettings(parameters=FrozenDict({"shared_buffers": "64MB"}))
        await world.create_ready(1, instances=1, postgresql=parameters, node_selector=FrozenDict({"disk": "fast"}))
        await world.change(hibernated=True)
        await world.until("asleep", lambda: world.condition("Available").startswith("False/"))
        await world.set_parameters(shared_buffers="700MB", work_mem="8MB")
        world.hosts.unschedulable.add("fast")
        await world.change(hibernated=False)
        await world.wait(600)
        assert world.stored_parameters()["shared_buffers"] == "64MB"
        world.hosts.unschedulable.clear()
        await world.client.delete(Pod, NAMES.pod(0))
        await comes_back(world)
        await world.degraded(1)


@virtual_time
async def test_unstarted_servers_get_declared_parameters() -> None:
    world = ClusterHarness()
    async with world.operator():
        await world.create_ready(1, instances=1)
        for volume in world.hosts.volumes.values():
            volume.broken = True
        await world.client.delete(Pod, NAMES.pod(0))
        await world.until("down", lambda: world.condition("Available").startswith("False/"))
        await world.set_parameters(work_mem="16MB")
        await world.until("written", lambda: world.stored_parameters().get("work_mem") == "16MB")


async def comes_back(world: ClusterHarness) -> None:
    """Until it serves with what it had."""
    await world.until("refused", lambda: world.condition("ParametersApplied") == REFUSED)
    await world.until("serves", lambda: world.condition("Available") == "True/PrimaryAvailable")
    assert (world.stored_parameters()["shared_buffers"], world.stored_parameters()["work_mem"]) == ("64MB", "8MB")
    words = 'an instance could not start with parameter "shared_buffers" = 700MB; keeping 64MB'
    assert words in world.message("ParametersApplied")


@virtual_time
async def test_unvalidated_parameters_are_not_written() -> None:
    world = ClusterHarness()
    async with world.operator():
        await world.create_ready(
            1, instances=1, postgresql=PostgreSQLSettings(parameters=FrozenDict({"work_mem": "8MB"}))
        )
        world.unreachable = True
        await world.set_parameters(work_mem="16MB")
        await world.until("unreachable", lambda: world.condition("ParametersApplied") == "False/ServerUnreachable")
        assert world.stored_parameters()["work_mem"] == "8MB"
        world.unreachable = False
        await world.until("written", lambda: world.stored_parameters()["work_mem"] == "16MB")
        await world.until("applied", lambda: world.condition("ParametersApplied") == "True/Applied")


@virtual_time
@pytest.mark.parametrize(
    ("refusal", "named"),
    [
        ("FATAL:  no memory HINT:  reduce shared_buffers", '"shared_buffers"'),
        ('FATAL:  could not access file "x"', '"shared_buffers", "work_mem"'),
    ],
)
async def test_failing_bootstrap_reports_parameter_and_recovers(refusal: str, named: str) -> None:
    world = ClusterHarness()
    world.hosts.failing_start.add(("shared_buffers", "700MB"))
    world.hosts.server_error = refusal
    async with world.operator():
        parameters = FrozenDict({"shared_buffers": "700MB", "work_mem": "8MB"})
        await world.create(instances=1, postgresql=PostgreSQLSettings(parameters=parameters))
        await world.until("refused", lambda: world.condition("ParametersApplied") == REFUSED)
        words = f"no server can start, possibly because of parameter {named}: {refusal}. Correct the parameter"
        assert world.message("ParametersApplied") == words
        await world.set_parameters(shared_buffers="64MB")
        await world.ready(1)
        assert world.condition("ParametersApplied") == "True/Applied"
