"""Handing the primary over where some refuse: each is asked once, whatever is cut in between."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Literal

import pytest

from database_support.unit.cluster_harness import ClusterHarness
from database_support.unit.group_harness import GroupHarness
from database_support.unit.planned_cluster import DECLARED, THREE, cluster_state, member, primary
from steersman.api.core_v1 import Pod
from steersman.errors import ConnectionFailed
from steersman.meta import ObjectMeta
from steersman_databases.api import PostgreSQLCluster, PostgreSQLClusterStatus
from steersman_databases.api.cluster_common import LastSwitchover
from steersman_databases.api.postgresql_cluster import PostgreSQLClusterSpec
from steersman_databases.cluster.declared import declare
from steersman_databases.cluster.status.conditions import ConditionEvent, with_observed_fields
from steersman_databases.cluster.status.postgresql import PostgreSQLAdapter
from steersman_databases.cluster.switchover_record import pending_attempt, with_result
from steersman_databases.engines.members import Members
from steersman_testing import matching, virtual_time


def asked(world: ClusterHarness) -> bool:
    """Whether somebody's request for a switchover is still there."""
    assert world.cluster is not None
    return "databases.steersman.dev/switchover" in world.cluster.metadata.annotations


@virtual_time
async def test_rejecting_instance_is_retried_after_all_others() -> None:
    world = ClusterHarness()
    world.hosts.rejects_switchover |= {"orders-1-0", "orders-2-0"}
    async with world.operator():
        await world.create_ready(3)
        await world.change(shmSize="64Mi")
        await world.until("refused", lambda: world.condition("Ready") == "False/SwitchoverRejected")
        await world.wait(300)
        assert sorted(world.hosts.switchover_requests) == ["orders-1-0", "orders-2-0"]
        assert "orders-1, orders-2" in world.message("Ready")
    async with world.operator():
        await world.wait(300)
        assert len(world.hosts.switchover_requests) == 2, "another process knows"
        world.hosts.rejects_switchover -= {"orders-2-0"}
        await world.annotate(restarted_at="2026-11-22T00:00:00Z")
        await world.ready(3)
        assert world.status.primary == "orders-2" and world.status.last_switchover.outcome == "Succeeded"


@virtual_time
async def test_rejected_switchover_tries_next_instance() -> None:
    world = ClusterHarness()
    world.hosts.rejects_switchover |= {"orders-1-0"}
    async with world.operator():
        await world.create_ready(3)
        await world.change(shmSize="64Mi")
        await world.ready(3)
        assert world.hosts.switchover_requests == ["orders-1-0", "orders-2-0"] and world.status.primary == "orders-2"


@virtual_time
@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("path", ["/postgresqlclusters/orders/status", "/configmaps/orders-failover"])
async def test_switchover_interrupted_at_any_write_is_sent_once(path: str, when: Literal["before", "after"]) -> None:
    world = ClusterHarness()
    world.hosts.rejects_switchover |= {"orders-1-0"}
    async with world.operator():
        await world.create_ready(2, instances=2)
        await world.annotate(switchover="orders-1")

        world.server.fail_next(matching("PATCH", path), ConnectionFailed("cut"), when=when)
        await world.until("ended", lambda: not asked(world) and "SwitchoverRejected" in world.events())
        await world.wait(60)
        assert world.hosts.switchover_requests == ["orders-1-0"]


@virtual_time
async def test_rejection_is_remembered_across_requests() -> None:
    world = ClusterHarness()
    world.hosts.rejects_switchover |= {"orders-1-0", "orders-2-0"}
    async with world.operator():
        await world.create_ready(3)
        await world.change(shmSize="64Mi")
        await world.until("refused", lambda: world.condition("Ready") == "False/SwitchoverRejected")
        await world.annotate(switchover="orders-9")
        await world.until("ended", lambda: not asked(world))
        await world.wait(300)
        assert sorted(world.hosts.switchover_requests) == ["orders-1-0", "orders-2-0"]


@pytest.mark.parametrize(("bears", "sent"), [("", False), ("6", False), ("7", True)])
def test_other_writes_do_not_repeat_the_request(bears: str, sent: bool) -> None:
    cluster = PostgreSQLCluster(metadata=ObjectMeta(name="orders", namespace="shop"), spec=PostgreSQLClusterSpec())
    last = LastSwitchover(time=datetime(2026, 11, 22, tzinfo=UTC), to="orders-1", store_version="7")
    members = Members(cluster=cluster.key, switchover_version=bears, dcs_versions={"orders-failover": "9"})
    attempt = pending_attempt(declare(cluster, ""), PostgreSQLClusterStatus(last_switchover=last), members)
    assert attempt is not None and attempt.sent is sent


@virtual_time
@pytest.mark.parametrize("world_of", [ClusterHarness, GroupHarness])
@pytest.mark.parametrize("annotation", [{"switchover": "orders-1"}, {"restarted_at": "2026-11-22T00:00:00Z"}])
async def test_switchover_is_not_reported_as_failover(
    world_of: type[ClusterHarness], annotation: dict[str, str]
) -> None:
    world = world_of()
    async with world.operator():
        await world.create_ready(3)
        await world.annotate(**annotation)
        await world.until("switched", lambda: world.status.primary not in (None, "orders-0"))
        await world.ready(3)
        await world.wait()
        wanted, last = world.status.primary, world.status.last_switchover
        assert (last.to, last.outcome) == (wanted, "Succeeded") and "Failover" not in world.events()
        followed: list[str] = []
        while wanted not in followed:
            former = world.status.primary
            await world.client.delete(Pod, world.pods()[former].key)
            await world.until("failed over", lambda former=former: world.status.primary not in (None, former))
            await world.ready(3)
            followed.append(world.status.primary)
            assert any(f" to {followed[-1]}" in m for m in world.messages("Failover")), followed


def test_late_timeline_still_counts_as_planned() -> None:
    own, at = PostgreSQLAdapter(), datetime(2026, 11, 22, tzinfo=UTC)
    last = LastSwitchover(time=at, former="orders-0", to="orders-1", outcome="Requested", store_version="7")
    status = PostgreSQLClusterStatus(primary="orders-0", timeline=1, last_switchover=last)
    told: list[Sequence[ConditionEvent]] = []
    for leader, timeline in ((1, 1), (1, 2), (0, 3), (1, 4)):
        seen = cluster_state(THREE, primary(leader, timeline=timeline), member(2))
        former, status = status, with_observed_fields(status, 1, "Ready", (DECLARED, seen))
        status = with_result(own.complete_status(status, DECLARED, seen), at)
        told.append(own.failover_events(former, status))
    first = "failover to orders-0: timeline 2 ended, timeline 3 started"
    second = "failover to orders-1: timeline 3 ended, timeline 4 started"
    assert told == [(), (), [("Failover", first)], [("Failover", second)]]


def test_missing_timeline_does_not_hide_failover() -> None:
    """As one whose server is stopped, for want of room for its log, and holds the lock."""
    own, status = PostgreSQLAdapter(), PostgreSQLClusterStatus(primary="orders-0", timeline=1)
    told: list[Sequence[ConditionEvent]] = []
    for leader, timeline in ((0, None), (1, 2)):
        seen = cluster_state(THREE, primary(leader, timeline=timeline), member(2))
        former, status = status, with_observed_fields(status, 1, "Ready", (DECLARED, seen))
        status = own.complete_status(status, DECLARED, seen)
        told.append(own.failover_events(former, status))
    assert told == [(), [("Failover", "failover to orders-1: timeline 1 ended, timeline 2 started")]]
