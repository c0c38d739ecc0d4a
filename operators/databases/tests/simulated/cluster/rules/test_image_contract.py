"""Images whose contract the operator does not support."""

from __future__ import annotations

import runpy
from dataclasses import replace
from typing import Any

import pytest

from database_support.unit.cluster_harness import ClusterHarness
from database_support.unit.group_harness import GroupHarness
from database_support.unit.image_script import IMAGES
from database_support.unit.planned_cluster import DECLARED, THREE, cluster_state, member, primary
from steersman_databases.cluster.actions import (
    Action,
    CreateInstance,
    RecreatePod,
    ResolveTarget,
    RestartServer,
    StopInstance,
    SwitchOver,
    Wait,
)
from steersman_databases.cluster.rules import image_contract
from steersman_databases.cluster.state import ClusterState
from steersman_databases.engines.versions import CONTRACTS
from steersman_testing import run_virtual

EACH = pytest.mark.parametrize("make", [ClusterHarness, GroupHarness])


@pytest.fixture
def later(monkeypatch: pytest.MonkeyPatch) -> None:
    """The contracts of a later release: 2 to 4."""
    monkeypatch.setattr(image_contract, "CONTRACTS", range(2, 5))


def state_with(*contracts: int | None) -> ClusterState:
    first, *others = contracts
    members = [member(n, contract=each) for n, each in enumerate(others, start=1)]
    return cluster_state(THREE, primary(0, contract=first), *members)


def test_operator_supports_newest_contract_and_two_before() -> None:
    newest: Any = runpy.run_path(str(IMAGES / "common/steersman_pod/contract.py"))["CONTRACT"]
    assert [*CONTRACTS] == [*range(max(0, newest - 2), newest + 1)]


@pytest.mark.usefixtures("later")
@pytest.mark.parametrize("step", [SwitchOver(1, ""), RestartServer(1, ""), ResolveTarget(1), None])
def test_old_image_gets_no_request(step: Action | None) -> None:
    found = image_contract.guard(DECLARED, state_with(4, 1, None), step)
    assert isinstance(found, Wait) and found.reason == "ImageTooOld"
    assert "pod orders-1-0 has contract 1, and the operator supports contracts 2 to 4" in found.message
    assert "kubectl patch postgresqlcluster orders -n shop --type merge -p" in found.message


@pytest.mark.usefixtures("later")
@pytest.mark.parametrize(
    "step", [CreateInstance(3), StopInstance(1), RecreatePod(1, ""), Wait("Hibernated", "all instances are stopped")]
)
def test_old_image_is_stopped_and_replaced(step: Action | Wait) -> None:
    assert image_contract.guard(DECLARED, state_with(0, 0, 0), step) == step


@pytest.mark.usefixtures("later")
def test_new_image_needs_newer_operator() -> None:
    found = image_contract.guard(DECLARED, state_with(4, 4, 5), None)
    assert isinstance(found, Wait) and found.reason == "OperatorTooOld"
    assert "pod orders-2-0 has contract 5" in found.message and "kubectl" not in found.message


@pytest.mark.usefixtures("later")
def test_old_primary_is_recreated_instead_of_switchover() -> None:
    updated = replace(DECLARED, image="postgresql:17.9")
    found = image_contract.guard(updated, state_with(1, 4, 4), SwitchOver(1, "a new image"))
    assert found == RecreatePod(0, "a new image")


@pytest.mark.usefixtures("later")
@pytest.mark.parametrize("contracts", [(2, 3, 4), (None, None, None)])
def test_supported_or_unknown_contract_keeps_the_step(contracts: tuple[int | None, ...]) -> None:
    assert image_contract.guard(DECLARED, state_with(*contracts), None) is None


@EACH
@pytest.mark.usefixtures("later")
def test_old_images_are_reported_until_replaced(make: type[ClusterHarness]) -> None:
    async def story() -> None:
        world = make()
        images = (world.fake_group if isinstance(world, GroupHarness) else world.hosts).images
        images.contract = 3
        async with world.operator():
            await world.create(instances=3)
            await world.ready(3)
            images.contracts.update({pod.metadata.uid: None for pod in world.pods().values()})
            await world.until("reported", lambda: world.condition("Ready") == "False/ImageTooOld")
            assert world.condition("Stalled") == "True/ImageTooOld"
            assert world.condition("Available").startswith("True")
            assert "has contract 0, and the operator supports contracts 2 to 4" in world.message("Ready")
            assert "ImageTooOld" in world.events()
            before, first = world.uids(), world.status.primary
            await world.annotate(switchover="orders-1" if first != "orders-1" else "orders-2")
            await world.wait(60)
            assert (world.uids(), world.status.primary) == (before, first)
            await world.annotate(switchover=None)
            await world.change(image=f"registry.example.com/server:{'9.7.4' if make is GroupHarness else '17.9'}")
            await world.ready(3)
            assert not set(before.values()) & set(world.uids().values())
            assert world.condition("Stalled") == "" == world.condition("Reconciling")

    run_virtual(story())
