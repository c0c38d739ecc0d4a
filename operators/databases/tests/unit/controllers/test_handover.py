"""Handing the primary over where some refuse: each is asked once, whatever is cut in between."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Literal

import pytest

from database_support.cluster_world import ClusterWorld
from database_support.group_world import GroupWorld
from database_support.planned_cluster import THREE, VIEW, member, observed, primary
from steersman.api.core_v1 import Pod
from steersman.errors import ConnectionFailed
from steersman.meta import ObjectMeta
from steersman_databases.api import PostgreSQLCluster, PostgreSQLClusterStatus
from steersman_databases.api.cluster_parts import LastSwitchover
from steersman_databases.api.postgresql_cluster import PostgreSQLClusterSpec
from steersman_databases.clusters.view import view_of
from steersman_databases.controllers.cluster_status import News, advanced
from steersman_databases.controllers.postgresql import OfPostgreSQL
from steersman_databases.controllers.switchovers import attempt_of, ended
from steersman_databases.engines.topology import Members
from steersman_testing import matching, virtual_time


def asked(world: ClusterWorld) -> bool:
    """Whether somebody's request for a switchover is still there."""
    assert world.cluster is not None
    return "databases.steersman.dev/switchover" in world.cluster.metadata.annotations


@virtual_time
async def test_who_refused_is_not_asked_again_before_all_others_were() -> None:
    world = ClusterWorld()
    world.hosts.refuses |= {"orders-1-0", "orders-2-0"}
    async with world.operator():
        await world.create()
        await world.ready(3)
        await world.change(shmSize="64Mi")
        await world.until("refused", lambda: world.condition("Ready") == "False/SwitchoverRefused")
        await world.rest(600)
        assert sorted(world.hosts.asked) == ["orders-1-0", "orders-2-0"]
        assert "orders-1, orders-2" in world.message("Ready")
    async with world.operator():
        await world.rest(600)
        assert len(world.hosts.asked) == 2, "another process knows"
        world.hosts.refuses -= {"orders-2-0"}
        await world.annotate(restart="2026-11-22T00:00:00Z")
        await world.ready(3)
        assert world.status.primary == "orders-2" and world.status.last_switchover.outcome == "Succeeded"


@virtual_time
async def test_the_next_one_takes_over_where_the_first_refuses() -> None:
    world = ClusterWorld()
    world.hosts.refuses |= {"orders-1-0"}
    async with world.operator():
        await world.create()
        await world.ready(3)
        await world.change(shmSize="64Mi")
        await world.ready(3)
        assert world.hosts.asked == ["orders-1-0", "orders-2-0"] and world.status.primary == "orders-2"


@virtual_time
@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("path", ["/postgresqlclusters/orders/status", "/configmaps/orders-failover"])
async def test_cut_at_any_write_it_is_asked_for_once(path: str, when: Literal["before", "after"]) -> None:
    world = ClusterWorld()
    world.hosts.refuses |= {"orders-1-0"}
    async with world.operator():
        await world.create(instances=2)
        await world.ready(2)
        await world.annotate(switchover="orders-1")

        world.server.fail_next(matching("PATCH", path), ConnectionFailed("cut"), when=when)
        await world.until("ended", lambda: not asked(world) and "SwitchoverRefused" in world.events())
        await world.rest(60)
        assert world.hosts.asked == ["orders-1-0"]


@virtual_time
async def test_who_refused_is_remembered_where_somebody_asks_for_another() -> None:
    world = ClusterWorld()
    world.hosts.refuses |= {"orders-1-0", "orders-2-0"}
    async with world.operator():
        await world.create()
        await world.ready(3)
        await world.change(shmSize="64Mi")
        await world.until("refused", lambda: world.condition("Ready") == "False/SwitchoverRefused")
        await world.annotate(switchover="orders-9")
        await world.until("ended", lambda: not asked(world))
        await world.rest(600)
        assert sorted(world.hosts.asked) == ["orders-1-0", "orders-2-0"]


@pytest.mark.parametrize(("bears", "sent"), [("", False), ("6", False), ("7", True)])
def test_what_else_is_written_beside_a_request_asks_nobody(bears: str, sent: bool) -> None:
    cluster = PostgreSQLCluster(metadata=ObjectMeta(name="orders", namespace="shop"), spec=PostgreSQLClusterSpec())
    last = LastSwitchover(time=datetime(2026, 11, 22, tzinfo=UTC), to="orders-1", store_version="7")
    members = Members(cluster=cluster.key, asked=bears, store_versions={"orders-failover": "9"})
    attempt = attempt_of(view_of(cluster, ""), PostgreSQLClusterStatus(last_switchover=last), members)
    assert attempt is not None and attempt.sent is sent


@virtual_time
@pytest.mark.parametrize("world_of", [ClusterWorld, GroupWorld])
@pytest.mark.parametrize("annotation", [{"switchover": "orders-1"}, {"restart": "2026-11-22T00:00:00Z"}])
async def test_a_switchover_is_no_failover_and_the_next_to_the_same_instance_is(
    world_of: type[ClusterWorld], annotation: dict[str, str]
) -> None:
    world = world_of()
    async with world.operator():
        await world.create()
        await world.ready(3)
        await world.annotate(**annotation)
        await world.until("switched", lambda: world.status.primary not in (None, "orders-0"))
        await world.ready(3)
        await world.rest()
        wanted, last = world.status.primary, world.status.last_switchover
        assert (last.to, last.outcome) == (wanted, "Succeeded") and "Failover" not in world.events()
        followed: list[str] = []
        while wanted not in followed:
            former = world.status.primary
            await world.client.delete(Pod, world.pods()[former].key)
            await world.until("failed over", lambda former=former: world.status.primary not in (None, former))
            await world.ready(3)
            followed.append(world.status.primary)
            assert any(m.startswith(f"{followed[-1]} took over") for m in world.messages("Failover")), followed


def test_a_primary_whose_timeline_is_seen_later_was_still_asked_for() -> None:
    own, at = OfPostgreSQL(), datetime(2026, 11, 22, tzinfo=UTC)
    last = LastSwitchover(time=at, former="orders-0", to="orders-1", outcome="Requested", store_version="7")
    status = PostgreSQLClusterStatus(primary="orders-0", timeline=1, last_switchover=last)
    told: list[Sequence[News]] = []
    for leader, timeline in ((1, 1), (1, 2), (0, 3), (1, 4)):
        seen = observed(THREE, primary(leader, timeline=timeline), member(2))
        former, status = status, advanced(status, 1, "Ready", (VIEW, seen))
        status = ended(own.completed(status, VIEW, seen), at)
        told.append(own.news(former, status))
    first, second = "orders-0 took over: timeline 3 follows 2", "orders-1 took over: timeline 4 follows 3"
    assert told == [(), (), [("Failover", first)], [("Failover", second)]]


def test_a_primary_that_tells_no_timeline_for_a_while_hides_no_failover() -> None:
    """As one whose server is stopped, for want of room for its log, and holds the lock."""
    own, status = OfPostgreSQL(), PostgreSQLClusterStatus(primary="orders-0", timeline=1)
    told: list[Sequence[News]] = []
    for leader, timeline in ((0, None), (1, 2)):
        seen = observed(THREE, primary(leader, timeline=timeline), member(2))
        former, status = status, advanced(status, 1, "Ready", (VIEW, seen))
        status = own.completed(status, VIEW, seen)
        told.append(own.news(former, status))
    assert told == [(), [("Failover", "orders-1 took over: timeline 2 follows 1")]]
