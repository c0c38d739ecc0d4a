"""Order of minor upgrades among clusters: rings, the limit, and what stops them."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import structs

from database_support.unit.declared_clusters import cluster
from steersman.meta import Condition, FrozenDict
from steersman_databases.api import PostgreSQLCluster, PostgreSQLClusterStatus
from steersman_databases.api.autopilot.maintenance import MaintenanceSettings, Ring
from steersman_databases.features.maintenance.fleet import turn_of, upgrade_state

OLD, NEW = "server:17.6", "server:17.7"


def member_of_fleet(
    name: str, reason: str = "WaitingForRing", *, ring: Ring = "Default", ready: bool = True, **spec: Any
) -> PostgreSQLCluster:
    """Return a cluster whose UpToDate has this reason, with the image that belongs to it."""
    upgrades = MaintenanceSettings(minor_upgrades="Automatic", ring=ring)
    conditions = (
        Condition(type="Ready", status="True" if ready else "False", reason="R", message=""),
        Condition(type="UpToDate", status="True" if reason == "Current" else "False", reason=reason, message=""),
    )
    image = NEW if reason == "Current" else OLD
    status = PostgreSQLClusterStatus(version="17.6", image=image, conditions=conditions)
    declared: dict[str, Any] = {"maintenance": upgrades, **spec}
    return structs.replace(cluster(name, **declared), status=status)


def turn(one: PostgreSQLCluster, *others: PostgreSQLCluster, limit: int = 1) -> str:
    return turn_of(one, [one, *others], NEW, limit)


def test_only_cluster_begins_at_once() -> None:
    assert turn(member_of_fleet("a", "Current")) == ""


def test_clusters_of_a_ring_take_turns_by_name() -> None:
    a, b = member_of_fleet("a"), member_of_fleet("b")
    assert turn(a, b) == ""
    assert turn(b, a) == "waiting for cluster shop/a to be upgraded first"


def test_cluster_reports_that_it_waits_before_it_begins() -> None:
    """Two clusters that do not know of one another would begin together."""
    assert turn(member_of_fleet("a", "WaitingForWindow"), member_of_fleet("b")) == "waiting for its turn"


def test_closed_window_of_another_cluster_does_not_delay() -> None:
    assert turn(member_of_fleet("b"), member_of_fleet("a", "WaitingForWindow")) == ""


def test_earlier_ring_goes_first_even_with_a_closed_window() -> None:
    early = member_of_fleet("z", "WaitingForWindow", ring="Early")
    assert turn(member_of_fleet("a"), early) == "waiting for cluster shop/z in an earlier ring"
    late = member_of_fleet("a", ring="Late")
    assert turn(late, member_of_fleet("z"), early) == "waiting for cluster shop/z and 1 more in an earlier ring"
    assert turn(early, late) == "waiting for its turn"


@pytest.mark.parametrize("reason", ["Upgrading", "Current"])
def test_unready_upgraded_cluster_stops_the_others(reason: str) -> None:
    broken = member_of_fleet("z", reason, ready=False)
    assert turn(member_of_fleet("a"), broken) == "waiting for cluster shop/z to be Ready after the upgrade"
    assert turn(member_of_fleet("a"), broken, limit=2) == ""
    assert turn(member_of_fleet("b"), broken, member_of_fleet("a"), limit=2).endswith("to be upgraded first")


def test_limit_of_two_lets_two_begin() -> None:
    a, b, c = (member_of_fleet(name) for name in "abc")
    assert [turn(one, a, b, c, limit=2) for one in (a, b)] == ["", ""]
    assert turn(c, a, b, limit=2) == "waiting for cluster shop/a and 1 more to be upgraded first"


def test_upgraded_ready_cluster_lets_the_next_begin() -> None:
    assert turn(member_of_fleet("b"), member_of_fleet("a", "Current")) == ""


def test_current_with_the_previous_image_still_waits() -> None:
    """Its status is older than the operator's image."""
    stale = member_of_fleet("z", "Current", ring="Early")
    stale = structs.replace(stale, status=structs.replace(stale.status, image=OLD))
    assert turn(member_of_fleet("a"), stale) == "waiting for cluster shop/z in an earlier ring"


def test_cluster_that_is_not_ready_does_not_begin_and_does_not_delay() -> None:
    a, b = member_of_fleet("a", ready=False), member_of_fleet("b")
    assert turn(a, b) == "waiting for this cluster to be Ready"
    assert turn(b, a) == ""
    assert turn(member_of_fleet("a", "Upgrading", ready=False), b) == ""


@pytest.mark.parametrize(
    "spec", [{"image": "own:17"}, {"hibernated": True}, {"maintenance": MaintenanceSettings()}, {"version": "15"}]
)
def test_cluster_without_this_upgrade_takes_no_part(spec: dict[str, Any]) -> None:
    assert turn(member_of_fleet("b"), member_of_fleet("a", "Upgrading", **spec)) == ""


def test_paused_cluster_takes_no_part() -> None:
    paused = member_of_fleet("a", "Upgrading")
    annotations = FrozenDict({"databases.steersman.dev/paused": "true"})
    paused = structs.replace(paused, metadata=structs.replace(paused.metadata, annotations=annotations))
    assert turn(member_of_fleet("b"), paused) == ""


@pytest.mark.parametrize(
    ("reason", "ready", "state"),
    [
        ("WaitingForWindow", True, "Waiting"),
        ("WaitingForRing", True, "Waiting"),
        ("Upgrading", False, "Upgrading"),
        ("Current", True, "Current"),
        ("Current", False, "NotReady"),
        ("PreCheckFailed", True, None),
    ],
)
def test_state_follows_the_conditions(reason: str, ready: bool, state: str | None) -> None:
    one = member_of_fleet("a", reason, ready=ready)
    assert upgrade_state(one.spec, one.status) == state
