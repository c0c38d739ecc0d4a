"""Most or all of a MySQL cluster is away, in memory: who comes back by itself, and what somebody consents to."""

from __future__ import annotations

import json

import pytest

from database_support.unit.fake_group import GtidSet
from database_support.unit.group_harness import NAMES, GroupHarness
from steersman.api.core_v1 import ConfigMap, Pod
from steersman.api.discovery_v1 import EndpointSlice
from steersman.client import MergePatch
from steersman_databases.engines.mysql.ha.backend import MEMBER
from steersman_testing import virtual_time


@virtual_time
async def test_complete_outage_recovers_automatically() -> None:
    world = GroupHarness()
    async with world.operator():
        await world.create_ready(3)
        await world.kill("orders-0", "orders-1", "orders-2")
        await world.until("founded", lambda: world.fake_group.founded == ["orders-0", "orders-0"])
        await world.ready(3)
        assert world.status.outage is None


@virtual_time
async def test_never_started_instance_does_not_block_recovery() -> None:
    world = GroupHarness()
    async with world.operator():
        await world.create_ready(1, instances=1)
        world.fake_group.unreachable.add("orders-1-0")
        await world.change(instances=2)
        await world.until("it should run", lambda: world.group["instances"] == "0,1" and "orders-1" in world.pods())
        await world.kill("orders-0")
        await world.until("founded", lambda: world.fake_group.founded == ["orders-0", "orders-0"])
        await world.until("serves", lambda: world.status.primary == "orders-0")
        world.fake_group.unreachable.clear()
        await world.ready(2)


@virtual_time
@pytest.mark.parametrize("unseen", [False, True])
async def test_lost_group_config_in_outage_bootstraps_nothing(unseen: bool) -> None:
    world = GroupHarness()
    async with world.operator():
        await world.create_ready(3)
        if unseen:
            world.fake_group.unreachable.add("orders-0-0")
        await world.client.delete(ConfigMap, NAMES.group_config)
        await world.kill("orders-0", "orders-1", "orders-2")
        if unseen:
            await world.until(
                "reported", lambda: world.condition("OutageRecoverable") == "False/ConsentRequired", 900
            )
            assert len(world.fake_group.founded) == 1
            loss = {"instances": ["orders-0"]}
            choice = next(c for c in world.status.outage.choices if c.instance == "orders-1")
            assert [*choice.loss.instances] == loss["instances"]
            recovery = {"epoch": world.status.outage.epoch, "instance": "orders-1", "loss": loss}
            await world.change(forceRecovery=recovery)
            await world.until("founded", lambda: world.fake_group.founded == ["orders-0", "orders-1"])
        else:
            await world.until("founded", lambda: len(world.fake_group.founded) == 2)
            await world.ready(3)
        assert world.fake_group.initialised == 1 and json.loads(world.group["group-state"])["epoch"] == 2


async def outage(world: GroupHarness) -> None:
    """Ends with the primary's data away for good, and the others with less."""
    await world.create_ready(3)
    world.fake_group.writes = True
    await world.wait(5)
    primary = world.data("orders-0")
    primary.gtids = primary.gtids | GtidSet.parse(f"{world.fake_group.name}:3-4")
    world.fake_group.unreachable.add("orders-0-0")
    await world.kill("orders-0", "orders-1", "orders-2")
    await world.until("reported", lambda: world.condition("OutageRecoverable") == "False/ConsentRequired", 900)


@virtual_time
async def test_recovery_consent_is_kept_while_bootstrapping() -> None:
    """Who has said so says no more what would be lost, and founds nothing if the store is written meanwhile."""
    world = GroupHarness()
    async with world.operator():
        await outage(world)
        world.fake_group.unreachable |= {"orders-1-0", "orders-2-0"}
        loss = {"instances": ["orders-0"]}
        await world.change(forceRecovery={"epoch": world.status.outage.epoch, "instance": "orders-1", "loss": loss})
        await world.until("given", lambda: world.group.get("force-recovery") == "1")
        words = {MEMBER: json.dumps({"state": "Joining"})}
        await world.client.patch(Pod, world.pods()["orders-1"].key, MergePatch({"metadata": {"annotations": words}}))
        await world.wait()
        assert (
            world.group.get("force-recovery") == "1"
            and world.condition("OutageRecoverable") == "Unknown/RecoveryApproved"
        )
        await world.change(forceRecovery=None)
        await world.until("taken back", lambda: "force-recovery" not in world.group)


@virtual_time
async def test_endpoint_to_missing_pod_is_removed_without_leader() -> None:
    """Its address may be another pod's by now. Who is there may become the primary, and is left alone."""
    world = GroupHarness()
    async with world.operator():
        await outage(world)
        key, pod = NAMES.endpoint_slices("orders-rw")[0], world.pods()["orders-1"]
        target = {"kind": "Pod", "name": pod.metadata.name, "namespace": pod.metadata.namespace}
        for uid, kept in ((pod.metadata.uid, ["10.9.9.9"]), ("gone", list[str]())):
            there = [{"addresses": ["10.9.9.9"], "targetRef": {**target, "uid": uid}}]
            await world.client.patch(EndpointSlice, key, MergePatch({"endpoints": there}))
            await world.wait(60)
            found = world.server.read(EndpointSlice, key)
            assert found is not None
            assert [a for e in found.endpoints or () for a in e.addresses] == kept


@virtual_time
async def test_ambiguous_data_requires_force_recovery() -> None:
    world = GroupHarness()
    async with world.operator():
        await outage(world)
        found, former = world.status.outage, world.fake_group.name
        assert [(c.instance, c.loss.instances) for c in found.choices] == [
            ("orders-1", ("orders-0",)),
            ("orders-2", ("orders-0",)),
        ]
        assert world.status.phase == "Failed" and "orders-0" in world.message("OutageRecoverable")
        await world.change(forceRecovery={"epoch": found.epoch, "instance": "orders-1"})
        await world.until("refused", lambda: world.condition("OutageRecoverable") == "False/ConsentMismatch")
        await world.wait()
        assert "force-recovery" not in world.group and len(world.fake_group.founded) == 1
        loss = {"instances": ["orders-0"]}
        await world.change(forceRecovery={"epoch": found.epoch + 1, "instance": "orders-1", "loss": loss})
        await world.wait()
        assert "force-recovery" not in world.group, "a consent is for one outage"
        await world.change(forceRecovery={"epoch": found.epoch, "instance": "orders-1", "loss": loss})
        await world.until("founded", lambda: world.fake_group.founded == ["orders-0", "orders-1"])
        await world.until("serves", lambda: world.status.primary == "orders-1" and world.status.outage is None)
        assert "force-recovery" not in world.group

        world.fake_group.unreachable.clear()
        await world.until("reported", lambda: world.condition("NoErrantTransactions") == "False/ErrantTransactions")
        assert f"orders-0 has errant transactions {former}:3-4" in world.message("NoErrantTransactions")
        world.fake_group.write(10)
        await world.wait(420)
        assert world.condition("NoErrantTransactions") == "False/ErrantTransactions", "however much is written since"
        assert f"orders-0 has errant transactions {former}:3-4" in world.message("NoErrantTransactions")


@virtual_time
@pytest.mark.parametrize("container", [{}, {"waiting": {"reason": "CrashLoopBackOff"}}], ids=["silent", "crashing"])
async def test_permanent_quorum_loss_is_recovered_by_consent(container: dict[str, object]) -> None:
    """What the dead said last is that they are online."""
    world = GroupHarness()
    async with world.operator():
        await world.create_ready(3)
        await world.lose_nodes("orders-0", "orders-1", **container)
        await world.wait(30)
        assert "force-recovery" not in world.group and not world.condition("OutageRecoverable").endswith(
            "ConsentRequired"
        )
        await world.until("reported", lambda: world.condition("OutageRecoverable") == "False/ConsentRequired", 600)
        assert world.condition("NoErrantTransactions") == "Unknown/NoGroup", "the dead are no group"
        assert world.condition("Available") == "False/QuorumLost"
        assert ". Unreachable: orders-0, orders-1" in world.message("Available")
        found, loss = world.status.outage, {"instances": ["orders-0", "orders-1"]}
        assert [(c.instance, [*c.loss.instances]) for c in found.choices] == [("orders-2", loss["instances"])]
        await world.change(forceRecovery={"epoch": found.epoch, "instance": "orders-2"})
        await world.until("refused", lambda: world.condition("OutageRecoverable") == "False/ConsentMismatch")
        await world.wait()
        assert len(world.fake_group.founded) == 1
        await world.change(forceRecovery={"epoch": found.epoch, "instance": "orders-2", "loss": loss})
        await world.until("founded", lambda: world.fake_group.founded == ["orders-0", "orders-2"])
        await world.until("serves", lambda: world.status.primary == "orders-2" and world.status.outage is None)
        assert "force-recovery" not in world.group


@virtual_time
@pytest.mark.parametrize("state", ["Failed", "Offline"])
async def test_instance_without_known_loss_is_no_choice(state: str) -> None:
    world = GroupHarness()
    async with world.operator():
        await world.create_ready(3)
        await world.lose_nodes("orders-0", "orders-1", "orders-2")
        words = {MEMBER: json.dumps({"state": state, "missingGtids": None, "unseenInstances": None})}
        await world.client.patch(Pod, world.pods()["orders-2"].key, MergePatch({"metadata": {"annotations": words}}))
        await world.until("waits", lambda: world.condition("OutageRecoverable") == "Unknown/Recovering")
        await world.change(forceRecovery={"epoch": 1, "instance": "orders-2"})
        await world.wait(420)
        assert world.condition("OutageRecoverable") == "Unknown/Recovering"
        assert "force-recovery" not in world.group and not world.status.outage.choices


@virtual_time
async def test_dead_instance_is_not_counted_as_remaining() -> None:
    world = GroupHarness()
    async with world.operator():
        await world.create_ready(3)
        await world.lose_nodes("orders-0", "orders-1")
        world.fake_group.unreachable.add("orders-2-0")
        words = {MEMBER: json.dumps({"state": "Online", "majority": False})}
        await world.client.patch(Pod, world.pods()["orders-2"].key, MergePatch({"metadata": {"annotations": words}}))
        await world.until("reported", lambda: world.condition("Available") == "False/QuorumLost")
        assert "Unreachable: orders-0, orders-1." in world.message("Available")
