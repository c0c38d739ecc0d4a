"""Most or all of a MySQL cluster is away, in memory: who comes back by itself, and what somebody consents to."""

from __future__ import annotations

import json

import pytest

from database_support.group_model import GtidSet
from database_support.group_world import NAMES, GroupWorld
from steersman.api.core_v1 import ConfigMap, Pod
from steersman.api.discovery_v1 import EndpointSlice
from steersman.client import MergePatch
from steersman_databases.engines.mysql.topology import MEMBER
from steersman_testing import virtual_time


@virtual_time
async def test_after_a_total_outage_it_comes_back_by_itself() -> None:
    world = GroupWorld()
    async with world.operator():
        await world.create()
        await world.ready(3)
        await world.kill("orders-0", "orders-1", "orders-2")
        await world.until("founded", lambda: world.farm.founded == ["orders-0", "orders-0"])
        await world.ready(3)
        assert world.status.outage is None


@virtual_time
async def test_an_instance_that_never_ran_keeps_nobody_from_coming_back() -> None:
    world = GroupWorld()
    async with world.operator():
        await world.create(instances=1)
        await world.ready(1)
        world.farm.away.add("orders-1-0")
        await world.change(instances=2)
        await world.until("it should run", lambda: world.group["instances"] == "0,1" and "orders-1" in world.pods())
        await world.kill("orders-0")
        await world.until("founded", lambda: world.farm.founded == ["orders-0", "orders-0"])
        await world.until("serves", lambda: world.status.primary == "orders-0")
        world.farm.away.clear()
        await world.ready(2)


@virtual_time
@pytest.mark.parametrize("unseen", [False, True])
async def test_a_store_that_was_lost_in_an_outage_founds_nothing_beside_the_data(unseen: bool) -> None:
    world = GroupWorld()
    async with world.operator():
        await world.create()
        await world.ready(3)
        if unseen:
            world.farm.away.add("orders-0-0")
        await world.client.delete(ConfigMap, NAMES.group)
        await world.kill("orders-0", "orders-1", "orders-2")
        if unseen:
            await world.until("told", lambda: world.condition("Recoverable") == "False/ConsentNeeded", 900)
            assert len(world.farm.founded) == 1
            loss = {"instances": ["orders-0"]}
            told = next(c for c in world.status.outage.choices if c.instance == "orders-1")
            assert [*told.loss.instances] == loss["instances"]
            recovery = {"epoch": world.status.outage.epoch, "instance": "orders-1", "loss": loss}
            await world.change(recovery=recovery)
            await world.until("founded", lambda: world.farm.founded == ["orders-0", "orders-1"])
        else:
            await world.until("founded", lambda: len(world.farm.founded) == 2)
            await world.ready(3)
        assert world.farm.initialised == 1 and json.loads(world.group["group"])["epoch"] == 2


async def outage(world: GroupWorld) -> None:
    """Ends with the primary's data away for good, and the others with less."""
    await world.create()
    await world.ready(3)
    world.farm.writes = True
    await world.rest(5)
    primary = world.data("orders-0")
    primary.gtids = primary.gtids | GtidSet.parse(f"{world.farm.name}:3-4")
    world.farm.away.add("orders-0-0")
    await world.kill("orders-0", "orders-1", "orders-2")
    await world.until("told", lambda: world.condition("Recoverable") == "False/ConsentNeeded", 900)


@virtual_time
async def test_a_consent_is_not_taken_back_from_who_is_about_to_found_by_it() -> None:
    """Who has said so says no more what would be lost, and founds nothing if the store is written meanwhile."""
    world = GroupWorld()
    async with world.operator():
        await outage(world)
        world.farm.away |= {"orders-1-0", "orders-2-0"}
        loss = {"instances": ["orders-0"]}
        await world.change(recovery={"epoch": world.status.outage.epoch, "instance": "orders-1", "loss": loss})
        await world.until("given", lambda: world.group.get("consent") == "1")
        words = {MEMBER: json.dumps({"state": "Joining"})}
        await world.client.patch(Pod, world.pods()["orders-1"].key, MergePatch({"metadata": {"annotations": words}}))
        await world.rest()
        assert world.group.get("consent") == "1" and world.condition("Recoverable") == "Unknown/Consented"
        await world.change(recovery=None)
        await world.until("taken back", lambda: "consent" not in world.group)


@virtual_time
async def test_nobody_is_led_to_a_pod_that_is_gone_while_nobody_leads() -> None:
    """Its address may be another pod's by now. Who is there may become the primary, and is left alone."""
    world = GroupWorld()
    async with world.operator():
        await outage(world)
        key, pod = NAMES.slices("orders-rw")[0], world.pods()["orders-1"]
        target = {"kind": "Pod", "name": pod.metadata.name, "namespace": pod.metadata.namespace}
        for uid, kept in ((pod.metadata.uid, ["10.9.9.9"]), ("gone", list[str]())):
            there = [{"addresses": ["10.9.9.9"], "targetRef": {**target, "uid": uid}}]
            await world.client.patch(EndpointSlice, key, MergePatch({"endpoints": there}))
            await world.rest(60)
            found = world.server.read(EndpointSlice, key)
            assert found is not None
            assert [a for e in found.endpoints or () for a in e.addresses] == kept


@virtual_time
async def test_where_nobody_surely_has_everything_a_person_decides_and_names_the_loss() -> None:
    world = GroupWorld()
    async with world.operator():
        await outage(world)
        told, former = world.status.outage, world.farm.name
        assert [(c.instance, c.loss.instances) for c in told.choices] == [
            ("orders-1", ("orders-0",)),
            ("orders-2", ("orders-0",)),
        ]
        assert world.status.phase == "Failed" and "orders-0" in world.message("Recoverable")
        await world.change(recovery={"epoch": told.epoch, "instance": "orders-1"})
        await world.until("refused", lambda: world.condition("Recoverable") == "False/ConsentMismatch")
        await world.rest()
        assert "consent" not in world.group and len(world.farm.founded) == 1
        loss = {"instances": ["orders-0"]}
        await world.change(recovery={"epoch": told.epoch + 1, "instance": "orders-1", "loss": loss})
        await world.rest()
        assert "consent" not in world.group, "a consent is for one outage"
        await world.change(recovery={"epoch": told.epoch, "instance": "orders-1", "loss": loss})
        await world.until("founded", lambda: world.farm.founded == ["orders-0", "orders-1"])
        await world.until("serves", lambda: world.status.primary == "orders-1" and world.status.outage is None)
        assert "consent" not in world.group

        world.farm.away.clear()
        await world.until("told", lambda: world.condition("HistoryShared") == "False/ErrantTransactions")
        assert f"orders-0 has {former}:3-4" in world.message("HistoryShared")
        world.farm.write(10)
        await world.rest(600)
        assert world.condition("HistoryShared") == "False/ErrantTransactions", "however much is written since"
        assert f"orders-0 has {former}:3-4" in world.message("HistoryShared")


@virtual_time
@pytest.mark.parametrize("container", [{}, {"waiting": {"reason": "CrashLoopBackOff"}}], ids=["silent", "crashing"])
async def test_a_majority_that_died_for_good_is_given_up_by_consent(container: dict[str, object]) -> None:
    """What the dead said last is that they are online."""
    world = GroupWorld()
    async with world.operator():
        await world.create()
        await world.ready(3)
        await world.lose("orders-0", "orders-1", **container)
        await world.rest(30)
        assert "consent" not in world.group and not world.condition("Recoverable").endswith("ConsentNeeded")
        await world.until("told", lambda: world.condition("Recoverable") == "False/ConsentNeeded", 600)
        assert world.condition("HistoryShared") == "Unknown/NoGroup", "the dead are no group"
        assert world.condition("Available") == "False/NoMajority"
        assert "; not in it: orders-0, orders-1" in world.message("Available")
        told, loss = world.status.outage, {"instances": ["orders-0", "orders-1"]}
        assert [(c.instance, [*c.loss.instances]) for c in told.choices] == [("orders-2", loss["instances"])]
        await world.change(recovery={"epoch": told.epoch, "instance": "orders-2"})
        await world.until("refused", lambda: world.condition("Recoverable") == "False/ConsentMismatch")
        await world.rest()
        assert len(world.farm.founded) == 1
        await world.change(recovery={"epoch": told.epoch, "instance": "orders-2", "loss": loss})
        await world.until("founded", lambda: world.farm.founded == ["orders-0", "orders-2"])
        await world.until("serves", lambda: world.status.primary == "orders-2" and world.status.outage is None)
        assert "consent" not in world.group


@virtual_time
@pytest.mark.parametrize("state", ["Failed", "Offline"])
async def test_who_has_not_said_what_would_be_lost_is_no_choice(state: str) -> None:
    world = GroupWorld()
    async with world.operator():
        await world.create()
        await world.ready(3)
        await world.lose("orders-0", "orders-1", "orders-2")
        words = {MEMBER: json.dumps({"state": state, "lacks": None, "unseen": None})}
        await world.client.patch(Pod, world.pods()["orders-2"].key, MergePatch({"metadata": {"annotations": words}}))
        await world.until("waits", lambda: world.condition("Recoverable") == "Unknown/Recovering")
        await world.change(recovery={"epoch": 1, "instance": "orders-2"})
        await world.rest(600)
        assert world.condition("Recoverable") == "Unknown/Recovering"
        assert "consent" not in world.group and not world.status.outage.choices


@virtual_time
async def test_one_that_died_is_not_counted_among_those_that_are_left() -> None:
    world = GroupWorld()
    async with world.operator():
        await world.create()
        await world.ready(3)
        await world.lose("orders-0", "orders-1")
        world.farm.away.add("orders-2-0")
        words = {MEMBER: json.dumps({"state": "Online", "majority": False})}
        await world.client.patch(Pod, world.pods()["orders-2"].key, MergePatch({"metadata": {"annotations": words}}))
        await world.until("told", lambda: world.condition("Available") == "False/NoMajority")
        assert "not in it: orders-0, orders-1:" in world.message("Available")
