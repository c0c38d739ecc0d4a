"""Clients of a pooler wait while the primary is handed over, restarted or upgraded, and go on as soon as they can."""

from __future__ import annotations

from database_support.cluster_world import KEY, ClusterWorld
from database_support.pooled_world import PooledWorld
from steersman.api.core_v1 import Pod
from steersman.client import MergePatch
from steersman.meta import ObjectKey
from steersman_databases.api.cluster_parts import Pooler
from steersman_testing import virtual_time


@virtual_time
async def test_clients_wait_while_the_primary_is_handed_over() -> None:
    world = PooledWorld()
    async with world.operator():
        await world.begin()
        # One that a former operator may have left waiting goes on, without what it had.
        await world.until("told", lambda: world.told == ["RECONNECT", "RESUME"])
        await world.annotate(switchover="any")
        await world.until("handed over", lambda: "RESUME" in world.told[2:])
        await world.runtime.clock.sleep(30)
        assert world.told[:3] == ["RECONNECT", "RESUME", "PAUSE"]
        # Its former primary may have taken connections again before all nodes knew who leads.
        assert set(world.told[3:]) == {"RESUME", "RECONNECT"} and world.waits == ["RESUME", "PAUSE", "RESUME"]


@virtual_time
async def test_clients_go_on_as_soon_as_they_are_led_to_who_leads() -> None:
    """Members say of themselves what they are with their next loop only."""
    world = PooledWorld()
    async with world.operator():
        await world.begin()
        await world.until("told", lambda: world.waits == ["RESUME"])
        world.hosts.silent = True
        await world.annotate(switchover="orders-1")
        # Sooner than a switchover counts as failed.
        await world.until("told", lambda: world.waits == ["RESUME", "PAUSE", "RESUME"], seconds=15)
        assert world.hosts.history == ["orders-0-0", "orders-1-0"]
        assert world.status.primary != "orders-1"


@virtual_time
async def test_a_refused_switchover_is_asked_for_once_and_clients_go_on() -> None:
    world = PooledWorld()
    world.hosts.refuses |= {"orders-1-0"}
    async with world.operator():
        await world.begin()
        await world.until("told", lambda: world.waits == ["RESUME"])
        await world.change(shmSize="64Mi")
        await world.until("refused", lambda: world.condition("Ready") == "False/SwitchoverRefused")
        await world.rest(600)
        assert world.waits == ["RESUME", "PAUSE", "RESUME"]
        assert world.status.last_switchover.outcome.startswith("refused: ")
        assert "its log says why" in world.message("Ready")
        assert "databases.steersman.dev/switchover" in world.message("Ready")
        await world.annotate(switchover="orders-1")
        await world.until("asked again", lambda: len(world.waits) == 5)
        await world.until("told", lambda: "SwitchoverRefused" in world.events())
        await world.rest(600)
        assert len(world.waits) == 5
        world.hosts.refuses.clear()
        await world.change(shmSize="128Mi")
        await world.ready(2)
        assert (world.status.primary, world.status.last_switchover.outcome) == ("orders-1", "Succeeded")


@virtual_time
async def test_a_switchover_that_somebody_asked_for_and_was_refused_leaves_no_request_behind() -> None:
    world = PooledWorld()
    world.hosts.refuses |= {"orders-1-0"}
    async with world.operator():
        await world.begin()
        await world.until("told", lambda: world.waits == ["RESUME"])
        for times in (1, 2):
            await world.annotate(switchover="orders-1")
            await world.until("refused", lambda: "SwitchoverRefused" in world.events() and not asked(world))
            await world.rest(120)
            assert len(world.waits) == 1 + 2 * times
        await world.ready(2)


@virtual_time
async def test_clients_wait_while_the_data_are_upgraded() -> None:
    world = PooledWorld()
    world.hosts.upgrade_hangs = True
    async with world.operator():
        await world.create(instances=1, version="15", pooler=Pooler())
        await world.ready()
        await world.start_pooler()
        await world.until("told", lambda: world.waits == ["RESUME"])
        await world.change(version="17")
        await world.until("stopped", lambda: world.condition("Available") == "False/Upgrading" and not world.pods())
        await world.rest(300)
        assert world.waits == ["RESUME", "PAUSE"]
        world.hosts.upgrade_hangs = False
        await world.ready(1)
        await world.until("told", lambda: world.waits == ["RESUME", "PAUSE", "RESUME"])


@virtual_time
async def test_clients_wait_while_the_primary_restarts_where_it_is() -> None:
    """Whoever asks PgBouncer for something meanwhile would be ended, since nobody takes connections."""
    world = PooledWorld()
    async with world.operator():
        await world.begin()
        await world.until("told", lambda: world.waits == ["RESUME"])
        await world.change(postgresql={"parameters": {"max_connections": "200"}})
        await world.until("pending", lambda: world.condition("ParametersApplied") == "False/RestartPending")
        await world.until("raised", lambda: world.condition("ParametersApplied") == "True/Applied")
        await world.ready(2)
        assert world.waits == ["RESUME", "PAUSE", "RESUME"], "for the switchover, and not for a replica's restart"

        world.hosts.restarting = True
        await world.change(postgresql={"parameters": {"max_connections": "100"}})
        await world.until("held", lambda: len(world.waits) == 4)
        assert world.hosts.restarts == [f"{world.status.primary}-0"]
        await world.rest(12)
        assert world.waits[3:] == ["PAUSE"], "until it serves"
        world.hosts.restarting = False
        await world.until("told", lambda: world.waits[3:] == ["PAUSE", "RESUME"], seconds=15)
        await world.ready(2)
        assert world.waits[3:] == ["PAUSE", "RESUME"]


@virtual_time
async def test_clients_do_not_wait_for_ever_for_a_restart() -> None:
    world = PooledWorld()
    async with world.operator():
        await world.create(instances=1, pooler=Pooler(read_only=False))
        await world.ready()
        await world.start_pooler()
        await world.until("told", lambda: world.waits == ["RESUME"])
        world.hosts.restarting = True
        await world.change(postgresql={"parameters": {"max_connections": "200"}})
        await world.until("held", lambda: world.waits[1:] == ["PAUSE"])
        await world.until("given up", lambda: world.waits[1:] == ["PAUSE", "RESUME"], seconds=40)


def asked(world: ClusterWorld) -> str | None:
    assert world.cluster is not None
    return world.cluster.metadata.annotations.get("databases.steersman.dev/switchover")


@virtual_time
async def test_whoever_takes_over_poolers_connect_anew() -> None:
    """A connection to a former primary, now a replica, would stay in the pool for as long as an hour."""
    world = PooledWorld()
    async with world.operator():
        await world.begin()
        await world.until("told", lambda: world.told == ["RECONNECT", "RESUME"])
        await world.rest(120)
        # Once more when every node leads to who serves.
        assert world.told == ["RECONNECT", "RESUME", "RECONNECT"]
        await world.client.delete(Pod, world.pods()[world.status.primary].key)
        await world.until("another leads", lambda: world.told.count("RECONNECT") >= 3)
        await world.ready(2)
        assert world.waits == ["RESUME"]


@virtual_time
async def test_a_pooler_of_the_primary_keeps_its_connections_when_a_replica_goes_and_comes() -> None:
    """Whoever asks for something while they are made anew may be ended."""
    world = PooledWorld()
    async with world.operator():
        await world.begin()
        await world.rest(120)
        before = world.told
        (replica,) = world.pods().keys() - {world.status.primary}
        await world.client.delete(Pod, world.pods()[replica].key)
        await world.until("it is missed", lambda: world.condition("Ready").startswith("False"))
        await world.ready(2)
        await world.rest(120)
        assert world.told == before


@virtual_time
async def test_a_pooler_that_ends_is_told_to_go_on_too() -> None:
    """Its clients wait like all others."""
    world = PooledWorld()
    async with world.operator():
        await world.begin()
        await world.until("told", lambda: world.waits == ["RESUME"])
        key = ObjectKey(KEY.namespace, "pooler")
        await world.client.patch(Pod, key, MergePatch({"metadata": {"finalizers": ["kubelet.test/ends"]}}))
        await world.annotate(switchover="any")
        await world.until("held", lambda: "PAUSE" in world.told)
        await world.client.delete(Pod, key)
        await world.until("told", lambda: world.waits == ["RESUME", "PAUSE", "RESUME"])


@virtual_time
async def test_poolers_do_not_wait_while_the_operator_keeps_its_hands_off() -> None:
    world = PooledWorld()
    world.hosts.upgrade_hangs = True
    async with world.operator():
        await world.create(instances=1, version="15", pooler=Pooler())
        await world.ready()
        await world.start_pooler()
        await world.until("told", lambda: world.waits == ["RESUME"])
        await world.change(version="17")
        await world.until("stopped", lambda: world.condition("Available") == "False/Upgrading" and not world.pods())
        assert world.waits == ["RESUME", "PAUSE"]
        await world.annotate(paused="true")
        await world.until("told", lambda: world.waits == ["RESUME", "PAUSE", "RESUME"])
        await world.annotate(paused=None)
        await world.until("held again", lambda: world.waits[3:] == ["PAUSE"])
        world.hosts.upgrade_hangs = False
        await world.ready(1)
        await world.until("told", lambda: world.waits[4:] == ["RESUME"])
