"""Conditions Reconciling and Stalled of all kinds."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any, Literal

import pytest
from msgspec.structs import replace

from database_support.unit.backup_stores import store
from steersman.meta import Condition, ObjectMeta, decode_builtins
from steersman_databases import api
from steersman_databases.api import Backup, Database, DatabaseUser, MySQLCluster, PostgreSQLCluster, Restore
from steersman_databases.api.kstatus import KSTATUS_CONDITIONS, STALLED_REASONS, with_kstatus
from steersman_databases.api.reasons import REASONS_BY_KIND
from steersman_databases.cluster.status.conditions import INDEPENDENT_CONDITIONS, ConditionSet, conditions_of
from steersman_databases.core.api_errors import REASONS
from steersman_databases.core.outcome import DatabaseOutcome, status_of
from steersman_databases.features.backup.progress import Progress, with_progress
from steersman_databases.features.restore import model as restore_model

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def held(conditions: Any) -> list[str]:
    """Return the conditions of kstatus, with reason and message."""
    return [f"{c.type}: {c.reason}: {c.message}" for c in conditions if c.type in KSTATUS_CONDITIONS]


def condition(type_: str, status: Literal["True", "False", "Unknown"], reason: str) -> Condition:
    return Condition(type=type_, status=status, reason=reason, message="its message", observed_generation=3)


@pytest.mark.parametrize(
    ("reason", "others", "expected"),
    [
        ("RollingOut", (), "Reconciling"),
        ("Deleting", (), "Reconciling"),
        ("ServerUnreachable", (), "Reconciling"),
        ("ServerNotFound", (), "Reconciling"),
        ("OwnerMissing", (), "Reconciling"),
        ("ObjectsMissing", (), "Reconciling"),
        ("SourceNotFound", (), "Reconciling"),
        ("StoreNotFound", (), "Reconciling"),
        ("NameConflict", (), "Stalled"),
        ("ImageTooOld", (), "Stalled"),
        ("Forbidden", (), "Stalled"),
        ("Hibernated", (), None),
        ("Degraded", (condition("Synchronous", "False", "NoSynchronousStandby"),), "Reconciling"),
        ("Degraded", (condition("ParametersApplied", "False", "ParameterRejected"),), "Stalled"),
        ("Degraded", (condition("AutogrowReady", "False", "NotExpandable"),), "Reconciling"),
        ("NoPrimary", (condition("OutageRecoverable", "False", "ConsentRequired"),), "Stalled"),
        ("RollingOut", (condition("ParametersApplied", "False", "ParameterRejected"),), "Reconciling"),
        ("DiskFull", (), "Stalled"),
        ("DiskFull", (condition("VolumesResized", "False", "Resizing"),), "Reconciling"),
    ],
)
def test_cluster_not_ready_has_one_condition(
    reason: str, others: tuple[Condition, ...], expected: str | None
) -> None:
    conditions = (condition("Ready", "False", reason), *others)
    found = with_kstatus(conditions, NOON, independent=INDEPENDENT_CONDITIONS)
    assert held(found) == ([] if expected is None else [f"{expected}: {reason}: its message"])


def test_ready_removes_the_condition() -> None:
    before = with_kstatus((condition("Ready", "False", "Creating"),), NOON)
    assert before[-1].observed_generation == 3
    assert held(with_kstatus((condition("Ready", "True", "AllInstancesReady"), *before[1:]), NOON)) == []


def test_condition_keeps_its_time_while_it_holds() -> None:
    before = with_kstatus((condition("Ready", "False", "Creating"),), NOON)
    later = NOON + timedelta(minutes=1)
    after = with_kstatus((condition("Ready", "False", "RollingOut"), *before[1:]), later)
    assert (after[-1].reason, after[-1].last_transition_time) == ("RollingOut", NOON)
    stalled = with_kstatus((condition("Ready", "False", "DataLost"), *after[1:]), later)
    assert (stalled[-1].type, stalled[-1].last_transition_time) == ("Stalled", later)


@pytest.mark.parametrize(("status", "expected"), [("True", []), ("False", ["Stalled: ByAnnotation: its message"])])
def test_paused_object_is_stalled_unless_ready(status: Literal["True", "False"], expected: list[str]) -> None:
    paused = condition("Paused", "True", "ByAnnotation")
    assert held(with_kstatus((condition("Ready", status, "RollingOut"), paused), NOON)) == expected


def test_stalled_reasons_exist_and_have_advice() -> None:
    steps: dict[str, set[bool]] = {}
    for conditions in REASONS_BY_KIND.values():
        for reasons in conditions.values():
            for reason, advice in reasons.items():
                steps.setdefault(reason, set()).add(bool(advice))
    assert sorted(STALLED_REASONS - steps.keys() - REASONS) == []
    assert [reason for reason in sorted(STALLED_REASONS) if True not in steps.get(reason, {True})] == []


def _metadata() -> ObjectMeta:
    return ObjectMeta(name="orders", namespace="default", generation=3)


def _cluster(kind: type[Any], spec: type[Any]) -> Any:
    condition_set = ConditionSet()
    condition_set.set("Ready", False, "Creating", "waiting")
    cluster = kind(metadata=_metadata(), spec=spec())
    return conditions_of(cluster, (), condition_set, NOON)


def _database() -> Any:
    database = decode_builtins({"spec": {"engine": "postgresql", "version": "17"}}, Database)
    outcome = DatabaseOutcome(phase="Provisioning", reason="ServerStarting", message="waiting")
    return status_of(replace(database, metadata=_metadata()), outcome, None, "postgresql", NOON).conditions


def _backup() -> Any:
    backup = decode_builtins({"spec": {"clusterRef": {"name": "orders"}}}, Backup)
    return with_progress(
        replace(backup, metadata=_metadata()), Progress("Pending", "Waiting", "waiting"), NOON
    ).conditions


def _restore() -> Any:
    restore = decode_builtins({"spec": {"clusterRef": {"name": "orders"}, "target": {"latest": {}}}}, Restore)
    progress = Progress("Running", "Running", "waiting")
    return restore_model.with_progress(replace(restore, metadata=_metadata()), progress, NOON).conditions


BY_STATUS: dict[str, Callable[[], Any]] = {
    "Backup": _backup,
    "Database": _database,
    "MySQLCluster": lambda: _cluster(MySQLCluster, api.MySQLClusterSpec),
    "PostgreSQLCluster": lambda: _cluster(PostgreSQLCluster, api.PostgreSQLClusterSpec),
    "Restore": _restore,
}
BY_CONTROLLER = {"BackupStore": type(store()), "DatabaseUser": DatabaseUser}
"""Kinds whose controllers build the status: see their tests with the library of kstatus."""


@pytest.mark.parametrize("kind", BY_STATUS)
def test_status_of_each_kind_reports_reconciling(kind: str) -> None:
    found = BY_STATUS[kind]()
    assert held(found)[0].startswith("Reconciling: ")
    assert {c.observed_generation for c in found} == {3}


def test_no_kind_is_forgotten() -> None:
    kinds = {value.api_resource.kind for name in api.__all__ if hasattr(value := getattr(api, name), "api_resource")}
    assert kinds == BY_STATUS.keys() | BY_CONTROLLER.keys()
