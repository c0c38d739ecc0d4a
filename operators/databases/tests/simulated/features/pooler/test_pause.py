"""Clients of a pooler wait while the primary is handed over, restarted or upgraded, and go on as soon as they can."""

from __future__ import annotations

from database_support.unit.cluster_harness import KEY, ClusterHarness
from database_support.unit.pooler_harness import PoolerHarness
from steersman.api.core_v1 import Pod
from steersman.client import MergePatch
from steersman.meta import ObjectKey
from steersman_databases.api.cluster_common import PoolerSettings
from steersman_testing import virtual_time


@virtual_time
async def test_switchover_pauses_clients() -> None:
    world = PoolerHarness()
    async with world.operator():
        await world.start()
        # One that a former operator may have left waiting goes on, without what it had.
        await world.until("told", lambda: world.commands_sent == ["RECONNECT", "RESUME"])
        await world.annotate(switchover="any")
        await world.until("handed over", lambda: "RESUME" in world.commands_sent[2:])
        await world.runtime.clock.sleep(30)
        assert world.commands_sent[:3] == ["RECONNECT", "RESUME", "PAUSE"]
        # Its former primary may have taken connections again before all nodes knew who leads.
        assert set(world.commands_sent[3:]) == {"RESUME", "RECONNECT"} and world.pauses == [
            "RESUME",
            "PAUSE",
            "RESUME",
        ]


@virtual_time
async def test_clients_resume_once_rw_follows_leader() -> None:
    """Members say of themselves what they are with their next loop only."""
    world = PoolerHarness()
    async with world.operator():
        await world.start()
        await world.until("told", lambda: world.pauses == ["RESUME"])
        world.hosts.is_silent = True
        await world.annotate(switchover="orders-1")
        # Sooner than a switchover counts as failed.
        await world.until("told", lambda: world.pauses == ["RESUME", "PAUSE", "RESUME"], seconds=15)
        assert world.hosts.history == ["orders-0-0", "orders-1-0"]
        assert world.status.primary != "orders-1"


@virtual_time
async def test_rejected_switchover_is_sent_once_and_resumes() -> None:
    world = PoolerHarness()
    world.hosts.rejects_switchover |= {"orders-1-0"}
    async with world.operator():
        await world.start()
        await world.until("told", lambda: world.pauses == ["RESUME"])
        await world.change(shmSize="64Mi")
        await world.until("refused", lambda: world.condition("Ready") == "False/SwitchoverRejected")
        await world.wait(600)
        assert world.pauses == ["RESUME", "PAUSE", "RESUME"]
        assert world.status.last_switchover.outcome.startswith("rejected: ")
        assert "Read the logs of the primary" in world.message("Ready")
        assert "databases.steersman.dev/switchover" in world.message("Ready")
        await world.annotate(switchover="orders-1")
        await world.until("asked again", lambda: len(world.pauses) == 5)
        await world.until("told", lambda: "SwitchoverRejected" in world.events())
        await world.wait(600)
        assert len(world.pauses) == 5
        world.hosts.rejects_switchover.clear()
        await world.change(shmSize="128Mi")
        await world.ready(2)
        assert (world.status.primary, world.status.last_switchover.outcome) == ("orders-1", "Succeeded")


@virtual_time
async def test_rejected_requested_switchover_leaves_no_request() -> None:
    world = PoolerHarness()
    world.hosts.rejects_switchover |= {"orders-1-0"}
    async with world.operator():
        await world.start()
        await world.until("told", lambda: world.pauses == ["RESUME"])
        for times in (1, 2):
            await world.annotate(switchover="orders-1")
            await world.until("refused", lambda: "SwitchoverRejected" in world.events() and not asked(world))
            await world.wait(120)
            assert len(world.pauses) == 1 + 2 * times
        await world.ready(2)


@virtual_time
async def test_major_upgrade_pauses_clients() -> None:
    world = PoolerHarness()
    world.hosts.upgrade_hangs = True
    async with world.operator():
        await world.create_ready(instances=1, version="15", pooler=PoolerSettings())
        await world.start_pooler()
        await world.until("told", lambda: world.pauses == ["RESUME"])
        await world.change(version="17")
        await world.until("stopped", lambda: world.condition("Available") == "False/Upgrading" and not world.pods())
        await world.wait(300)
        assert world.pauses == ["RESUME", "PAUSE"]
        world.hosts.upgrade_hangs = False
        await world.ready(1)
        await world.until("told", lambda: world.pauses == ["RESUME", "PAUSE", "RESUME"])


@virtual_time
async def test_in_place_restart_pauses_clients() -> None:
    """Whoever asks PgBouncer for something meanwhile would be ended, since nobody takes connections."""
    world = PoolerHarness()
    async with world.operator():
        await world.start()
        await world.until("told", lambda: world.pauses == ["RESUME"])
        await world.change(postgresql={"parameters": {"max_connections": "200"}})
        await world.until("pending", lambda: world.condition("ParametersApplied") == "False/RestartPending")
        await world.until("raised", lambda: world.condition("ParametersApplied") == "True/Applied")
        await world.ready(2)
        assert world.pauses == ["RESUME", "PAUSE", "RESUME"], "for the switchover, and not for a replica's restart"

        world.hosts.restarting = True
        await world.change(postgresql={"parameters": {"max_connections": "100"}})
        await world.until("held", lambda: len(world.pauses) == 4)
        assert world.hosts.restarts == [f"{world.status.primary}-0"]
        await world.wait(12)
        assert world.pauses[3:] == ["PAUSE"], "until it serves"
        world.hosts.restarting = False
        await world.until("told", lambda: world.pauses[3:] == ["PAUSE", "RESUME"], seconds=15)
        await world.ready(2)
        assert world.pauses[3:] == ["PAUSE", "RESUME"]


@virtual_time
async def test_restart_pause_is_bounded() -> None:
    world = PoolerHarness()
    async with world.operator():
        await world.create_ready(instances=1, pooler=PoolerSettings(read_only=False))
        await world.start_pooler()
        await world.until("told", lambda: world.pauses == ["RESUME"])
        world.hosts.restarting = True
        await world.change(postgresql={"parameters": {"max_connections": "200"}})
        await world.until("held", lambda: world.pauses[1:] == ["PAUSE"])
        await world.until("given up", lambda: world.pauses[1:] == ["PAUSE", "RESUME"], seconds=40)


def asked(world: ClusterHarness) -> str | None:
    assert world.cluster is not None
    return world.cluster.metadata.annotations.get("databases.steersman.dev/switchover")


@virtual_time
async def test_failover_reconnects_poolers() -> None:
    """A connection to a former primary, now a replica, would stay in the pool for as long as an hour."""
    world = PoolerHarness()
    async with world.operator():
        await world.start()
        await world.until("told", lambda: world.commands_sent == ["RECONNECT", "RESUME"])
        await world.wait(120)
        # Once more when every node leads to who serves.
        assert world.commands_sent == ["RECONNECT", "RESUME", "RECONNECT"]
        await world.client.delete(Pod, world.pods()[world.status.primary].key)
        await world.until("another leads", lambda: world.commands_sent.count("RECONNECT") >= 3)
        await world.ready(2)
        assert world.pauses == ["RESUME"]


@virtual_time
async def test_replica_change_keeps_rw_pooler_connections() -> None:
    """Whoever asks for something while they are made anew may be ended."""
    world = PoolerHarness()
    async with world.operator():
        await world.start()
        await world.wait(120)
        before = world.commands_sent
        (replica,) = world.pods().keys() - {world.status.primary}
        await world.client.delete(Pod, world.pods()[replica].key)
        await world.until("it is missed", lambda: world.condition("Ready").startswith("False"))
        await world.ready(2)
        await world.wait(120)
        assert world.commands_sent == before


@virtual_time
async def test_terminating_pooler_is_resumed_too() -> None:
    """Its clients wait like all others."""
    world = PoolerHarness()
    async with world.operator():
        await world.start()
        await world.until("told", lambda: world.pauses == ["RESUME"])
        key = ObjectKey(KEY.namespace, "pooler")
        await world.client.patch(Pod, key, MergePatch({"metadata": {"finalizers": ["kubelet.test/ends"]}}))
        await world.annotate(switchover="any")
        await world.until("held", lambda: "PAUSE" in world.commands_sent)
        await world.client.delete(Pod, key)
        await world.until("told", lambda: world.pauses == ["RESUME", "PAUSE", "RESUME"])


@virtual_time
async def test_paused_cluster_resumes_poolers() -> None:
    world = PoolerHarness()
    world.hosts.upgrade_hangs = True
    async with world.operator():
        await world.create_ready(instances=1, version="15", pooler=PoolerSettings())
        await world.start_pooler()
        await world.until("told", lambda: world.pauses == ["RESUME"])
        await world.change(version="17")
        await world.until("stopped", lambda: world.condition("Available") == "False/Upgrading" and not world.pods())
        assert world.pauses == ["RESUME", "PAUSE"]
        await world.annotate(paused="true")
        await world.until("told", lambda: world.pauses == ["RESUME", "PAUSE", "RESUME"])
        await world.annotate(paused=None)
        await world.until("held again", lambda: world.pauses[3:] == ["PAUSE"])
        world.hosts.upgrade_hangs = False
        await world.ready(1)
        await world.until("told", lambda: world.pauses[4:] == ["RESUME"])
