"""Planner with maintenance windows: what waits, what does not, and what is completed."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from msgspec import structs

from database_support.unit.declared_clusters import cluster
from database_support.unit.planned_cluster import DECLARED, cluster_state, instance, member, primary
from steersman.api.apps_v1 import StatefulSet
from steersman.api.core_v1 import Pod
from steersman.meta import Duration, FrozenDict, decode_builtins, to_builtins
from steersman_databases.api import PostgreSQLCluster
from steersman_databases.api.autopilot.maintenance import (
    MaintenanceSettings,
    MaintenanceWindow,
    PendingDisruption,
    maintenance_until,
)
from steersman_databases.cluster.actions import RecreatePod, RemoveInstance, RestartServer, SwitchOver
from steersman_databases.cluster.planner import next_action
from steersman_databases.cluster.rules.pod_hashes import restart_hash
from steersman_databases.cluster.rules.rolling_update import target_image
from steersman_databases.cluster.state import Instance
from steersman_databases.cluster.status.conditions import ConditionSet
from steersman_databases.engines.cluster_engine import DeclaredCluster, RequestedOperations
from steersman_databases.engines.members import PendingSetting
from steersman_databases.features.maintenance.model import (
    Maintenance,
    MaintenanceSchedule,
    pending_disruptions,
    schedule_of,
)

OLD = "server:former"
WAITING = replace(DECLARED, automatic_minor_upgrades=True, holds_minor_upgrade=True, waits_for_window=True)
OPEN = replace(WAITING, holds_minor_upgrade=False, waits_for_window=False)
ENGINES = pytest.mark.parametrize("engine", ["postgresql", "mysql"])
BUFFERS = [PendingSetting(name="shared_buffers", previous="128MB", value="192MB")]
NOON = datetime(2030, 1, 1, 12, tzinfo=UTC)


def running(number: int, image: str = OLD, *, template: str = "", ready: bool = True) -> Instance:
    """Return an instance whose pod has an image, and its StatefulSet the same or another one."""
    one = instance(number, hash_=restart_hash(DECLARED, image), ready=ready)
    pod: dict[str, Any] = to_builtins(one.pod)
    pod["spec"] = {"containers": [{"name": "server", "image": image}]}
    stateful: dict[str, Any] = to_builtins(one.statefulset)
    stateful["spec"]["template"]["spec"]["containers"][0]["image"] = template or image
    return replace(one, pod=decode_builtins(pod, Pod), statefulset=decode_builtins(stateful, StatefulSet))


def of_engine(declared: DeclaredCluster, engine: str) -> DeclaredCluster:
    return replace(declared, engine=engine)


MEMBERS = (primary(0), member(1), member(2))
OUTDATED = cluster_state([running(n) for n in range(3)], *MEMBERS)


@ENGINES
def test_minor_upgrade_waits_for_the_window(engine: str) -> None:
    assert next_action(of_engine(WAITING, engine), OUTDATED) is None
    assert isinstance(next_action(of_engine(OPEN, engine), OUTDATED), RecreatePod)


@ENGINES
def test_pending_disruptions_name_instance_and_image(engine: str) -> None:
    pending = pending_disruptions(of_engine(WAITING, engine), OUTDATED)
    assert [(one.instance, one.type) for one in pending] == [(f"orders-{n}", "Recreate") for n in range(3)]
    assert {one.reason for one in pending} == {f"image {DECLARED.image} is available"}
    assert pending_disruptions(of_engine(OPEN, engine), OUTDATED) == ()


@ENGINES
def test_begun_upgrade_is_completed_after_the_window(engine: str) -> None:
    waiting = of_engine(WAITING, engine)
    one_done = cluster_state([running(0), running(1), running(2, DECLARED.image)], *MEMBERS)
    assert next_action(waiting, one_done) == RecreatePod(1, "its pod differs from the declaration")
    replicas_done = cluster_state([running(0), running(1, DECLARED.image), running(2, DECLARED.image)], *MEMBERS)
    assert isinstance(next_action(waiting, replicas_done), SwitchOver)
    assert not pending_disruptions(waiting, replicas_done)


def test_template_of_an_ended_window_starts_no_upgrade() -> None:
    """In the window the template was changed, but an unhealthy instance delayed the upgrade."""
    unready = running(2, template=DECLARED.image, ready=False)
    state = cluster_state([running(0), running(1), unready], *MEMBERS)
    assert target_image(WAITING, state, unready) == OLD
    assert target_image(OPEN, state, unready) == DECLARED.image


def test_replacement_does_not_wait() -> None:
    lost = replace(running(2), node_lost=True)
    step = next_action(WAITING, cluster_state([running(0), running(1), lost], primary(0), member(1)))
    assert step == RemoveInstance(2, "its node is lost", has_failed=True)


@pytest.mark.parametrize(
    "requests",
    [
        RequestedOperations(restarted_at="2030"),
        RequestedOperations(switchover="orders-1"),
        RequestedOperations(replace="orders-2"),
    ],
)
def test_requested_disruption_does_not_wait(requests: RequestedOperations) -> None:
    requested = replace(WAITING, requests=requests)
    assert isinstance(next_action(requested, OUTDATED), RecreatePod | SwitchOver | RemoveInstance)


def test_requested_restart_keeps_the_image() -> None:
    requested = replace(WAITING, requests=RequestedOperations(restarted_at="2030"))
    assert target_image(requested, OUTDATED, OUTDATED.instances[0]) == OLD


def test_explicit_image_does_not_wait() -> None:
    declared = replace(WAITING, has_explicit_image=True)
    assert isinstance(next_action(declared, OUTDATED), RecreatePod)


def pending(*settings: PendingSetting) -> Any:
    said: dict[str, Any] = {"pending_restart": True, "pending_settings": settings}
    members = primary(0, **said), member(1, **said), member(2, **said)
    return cluster_state([instance(n) for n in range(3)], *members)


@ENGINES
def test_restart_for_an_undeclared_parameter_waits(engine: str) -> None:
    waiting = of_engine(WAITING, engine)
    assert next_action(waiting, pending(*BUFFERS)) is None
    found = pending_disruptions(waiting, pending(*BUFFERS))
    assert [(one.instance, one.type) for one in found] == [(f"orders-{n}", "Restart") for n in range(3)]
    assert {one.reason for one in found} == {"a restart applies shared_buffers"}
    assert isinstance(next_action(of_engine(OPEN, engine), pending(*BUFFERS)), RestartServer)


@ENGINES
def test_restart_for_a_declared_parameter_does_not_wait(engine: str) -> None:
    declared = replace(of_engine(WAITING, engine), parameters={"shared_buffers": "192MB"})
    assert isinstance(next_action(declared, pending(*BUFFERS)), RestartServer)
    assert not pending_disruptions(declared, pending(*BUFFERS))


def test_lowering_that_has_begun_is_completed() -> None:
    """A replica that still has the higher value would restore it after a failover."""
    lowered = PendingSetting(name="max_connections", previous="200", value="100")
    said: dict[str, Any] = {"pending_restart": True, "pending_settings": (lowered,)}
    state = cluster_state([instance(n) for n in range(3)], primary(0), member(1, **said), member(2))
    assert next_action(WAITING, state) == RestartServer(1, "a parameter needs a restart")


def test_restart_that_unblocks_a_replica_does_not_wait() -> None:
    raised = PendingSetting(name="max_wal_senders", previous="2", value="10")
    leader = primary(0, pending_restart=True, pending_settings=(raised,))
    copying = member(2, state="Cloning", pending_restart=True, pending_settings=(raised,))
    state = cluster_state([instance(0), instance(1), instance(2, ready=False)], leader, member(1), copying)
    step = next_action(WAITING, state)
    assert step == next_action(OPEN, state) and step == RestartServer(2, "a parameter needs a restart")


def settings(zone: str = "UTC") -> MaintenanceSettings:
    window = MaintenanceWindow(start="02:00", duration=Duration("2h"))
    return MaintenanceSettings(windows=(window,), time_zone=zone)


def test_schedule_without_windows_never_waits() -> None:
    assert schedule_of(MaintenanceSettings(), cluster(), NOON) == MaintenanceSchedule()


def test_schedule_waits_outside_a_window() -> None:
    after = datetime(2030, 1, 2, 2, tzinfo=UTC)
    assert schedule_of(settings(), cluster(), NOON) == MaintenanceSchedule(waits=True, next_window=after)
    assert not schedule_of(settings(), cluster(), after).waits


def test_unknown_time_zone_waits_and_names_the_field() -> None:
    found = schedule_of(settings("Mars/Base"), cluster(), NOON)
    assert found.waits and found.next_window is None
    assert found.clause.startswith(
        "waiting for a maintenance window, but spec.maintenance.timeZone: Mars/Base is not"
    )


@pytest.mark.parametrize(
    ("value", "waits"),
    [
        ("2030-01-01T12:00:01Z", False),
        ("2030-01-01T13:00:01+01:00", False),
        ("2030-01-01T12:00:00Z", True),
        ("2030-01-02", True),
        ("0001-01-01T00:00:00+14:00", True),
        ("tomorrow", True),
        ("", True),
    ],
)
@pytest.mark.parametrize("zone", ["UTC", "Mars/Base"])
def test_annotation_lets_disruptions_begin(value: str, waits: bool, zone: str) -> None:
    assert schedule_of(settings(zone), annotated(value), NOON).waits is waits


def annotated(value: str) -> PostgreSQLCluster:
    """Return a cluster with a requested window."""
    found = cluster()
    annotations = FrozenDict({"databases.steersman.dev/maintenance-until": value})
    return structs.replace(found, metadata=structs.replace(found.metadata, annotations=annotations))


def test_annotation_without_time_zone_is_invalid() -> None:
    assert maintenance_until(annotated("2030-01-01T12:00:00")) is None


def test_report_keeps_reasons_that_need_a_user() -> None:
    waiting = list(pending_disruptions(WAITING, OUTDATED))
    maintenance = Maintenance(schedule=MaintenanceSchedule(waits=True), pending=waiting)
    conditions = ConditionSet()
    conditions.set("UpToDate", False, "PreCheckFailed", "a problem")
    maintenance.report(conditions)
    assert conditions.has_reason("UpToDate", "PreCheckFailed")
    conditions.set("UpToDate", False, "Upgrading", "replacing an image")
    maintenance.report(conditions)
    assert conditions.has_reason("UpToDate", "WaitingForWindow")
    maintenance.pending.append(PendingDisruption(instance="orders-read0", type="Recreate", reason="a template"))
    maintenance.report(conditions)
    assert "orders-read0: a template" in conditions.updates["UpToDate"].message
