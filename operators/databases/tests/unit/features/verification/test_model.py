"""Requests, verdicts and conditions of verifications."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from steersman.meta import Condition, FrozenDict, ObjectMeta, find_condition
from steersman_databases.api import Backup, BackupSpec, BackupStatus
from steersman_databases.api.backups.backup import BackupClusterReference, BackupVerificationStatus
from steersman_databases.api.backups.backup_common import (
    ClusterBackupStatus,
    VerificationSettings,
    VerificationSummary,
)
from steersman_databases.features.backup.schedules import InvalidSchedule
from steersman_databases.features.backup.specs import JobResult
from steersman_databases.features.verification import model

NOW = datetime(2026, 5, 20, 12, tzinfo=UTC)
PATH = "default/postgresqlcluster.orders/01234567"
DAILY = VerificationSettings(schedule="0 5 * * *")
FIGURES = {
    "backup": "id-b",
    "recoveredTo": "2026-05-20T11:59:56Z",
    "dataLossSeconds": 4,
    "recoverySeconds": 36,
    "restoreSeconds": 30,
    "replaySeconds": 6,
    "checkSeconds": 12,
    "tables": 3,
    "rows": 7,
}


def backup(name: str = "b", request: str = "", days: float = 1, **status: Any) -> Backup:
    """A completed backup."""
    annotations = {model.VERIFY_ANNOTATION: request} if request else {}
    time = NOW - timedelta(days=days)
    fields: dict[str, Any] = {"phase": "Completed", "backup_id": f"id-{name}", "path": PATH, "stop_time": time}
    return Backup(
        metadata=ObjectMeta(name=name, namespace="default", annotations=FrozenDict(annotations)),
        spec=BackupSpec(cluster_ref=BackupClusterReference(name="orders")),
        status=BackupStatus(**{**fields, **status}),
    )


def result(**fields: Any) -> JobResult:
    """The result of a Job."""
    return JobResult(ok=True, document={"verification": {**FIGURES, **fields}})


def refused(reason: str) -> JobResult:
    return JobResult(ok=False, reason=reason, message="It is so.")


def after(found: model.Verdict, of: Backup | None = None, hours: float = 0) -> Backup:
    """A backup with a verdict."""
    of = of or backup(request="r")
    status = model.with_verdict(of, found, "r", NOW - timedelta(hours=hours))
    return msgspec.structs.replace(of, status=status)


def verified(obj: Backup) -> str:
    condition = find_condition(obj.status.conditions, "Verified")
    return "" if condition is None else f"{condition.status}/{condition.reason}"


@pytest.mark.parametrize(
    ("reason", "expected"),
    [
        ("ArchiveDamaged", "False/ArchiveDamaged"),
        ("WALMissing", "False/WALMissing"),
        ("BinaryLogMissing", "False/BinaryLogMissing"),
        ("DataDamaged", "False/DataDamaged"),
        ("StoreUnreachable", "Unknown/StoreUnreachable"),
        ("NotEnoughSpace", "Unknown/NotEnoughSpace"),
        ("InternalError", "Unknown/InternalError"),
        ("Interrupted", "Unknown/Interrupted"),
    ],
)
def test_only_damage_makes_a_backup_false(reason: str, expected: str) -> None:
    found = model.verdict_of(backup(), refused(reason))
    assert verified(after(found)) == expected


@pytest.mark.parametrize(
    "reported",
    [
        None,
        JobResult(ok=True),
        JobResult(ok=True, document={"verification": {"backup": "id-b"}}),
        result(backup="another"),
        result(rows="many"),
    ],
    ids=["none", "empty", "incomplete", "another", "malformed"],
)
def test_malformed_result_verifies_nothing(reported: JobResult | None) -> None:
    assert verified(after(model.verdict_of(backup(), reported))) == "Unknown/VerificationIncomplete"


def test_success_has_figures_which_later_attempts_keep() -> None:
    done = after(model.verdict_of(backup(), result()))
    figures = done.status.verification
    assert verified(done) == "True/Verified" and figures is not None
    assert (figures.recovery_seconds, figures.data_loss_seconds, figures.rows) == (36, 4, 7)
    assert (figures.time, figures.request) == (NOW, "r")
    later = after(model.verdict_of(done, refused("StoreUnreachable")), done)
    assert verified(later) == "Unknown/StoreUnreachable"
    assert later.status.verification == figures
    damaged = after(model.verdict_of(done, refused("WALMissing")), done)
    assert damaged.status.verification == BackupVerificationStatus(request="r", time=NOW)


def test_request_is_pending_until_it_is_handled() -> None:
    assert model.pending_request(backup()) == ""
    assert model.pending_request(backup(request="r")) == "r"
    assert model.pending_request(backup(request="r", phase="Running")) == ""
    assert model.pending_request(after(model.verdict_of(backup(), refused("Interrupted")))) == ""


def test_backup_without_verification_says_so() -> None:
    found = backup()
    status = model.never_verified(found, found.status, NOW)
    assert verified(msgspec.structs.replace(found, status=status)) == "Unknown/NeverVerified"
    assert model.never_verified(found, status, NOW + timedelta(1)) == status
    running = backup(phase="Running")
    assert model.never_verified(running, running.status, NOW) == running.status


def test_schedule_is_due_once_after_an_outage() -> None:
    five = NOW.replace(hour=5)
    assert model.due_time(DAILY, [backup()], None, NOW) is None, "nothing was announced yet"
    assert model.due_time(DAILY, [backup()], five - timedelta(days=3), NOW) == five
    requested = backup(request=five.isoformat())
    assert model.due_time(DAILY, [requested], five - timedelta(days=3), NOW) is None
    assert model.due_time(DAILY, [requested], None, five + timedelta(days=1)) == five + timedelta(days=1)
    # A time in the future would suspend the schedule.
    assert model.due_time(DAILY, [backup(request="2099-01-01T00:00:00Z")], five, NOW) == five
    suspended = msgspec.structs.replace(DAILY, suspend=True)
    assert model.due_time(suspended, [backup()], five, NOW) is None
    assert model.next_time(suspended, NOW) is None


def test_schedule_has_a_time_zone() -> None:
    berlin = VerificationSettings(schedule="0 5 * * *", time_zone="Europe/Berlin")
    assert model.next_time(berlin, NOW) == datetime(2026, 5, 21, 3, tzinfo=UTC)
    with pytest.raises(InvalidSchedule, match=r"^spec\.backup\.verification\.schedule: "):
        model.next_time(VerificationSettings(schedule="often"), NOW)


def test_candidate_is_the_newest_completed_backup_of_the_archive() -> None:
    others = [backup("old", days=3), backup("failed", phase="Failed", days=0), backup("elsewhere", path="x", days=0)]
    found = model.candidate([*others, backup("new", days=1)], PATH)
    assert found is not None and found.metadata.name == "new"
    assert model.candidate(others[1:], PATH) is None


def condition(
    *backups: Backup, previous: tuple[str, str, float] | None = None, kept: VerificationSummary | None = None
) -> str:
    """Status and reason of the cluster's condition.

    Args:
        previous: status and reason that it has had for so many days.
        kept: ``status.backup.lastVerification``.
    """
    last = model.summary(backups, ClusterBackupStatus(last_verification=kept, path=PATH), PATH)
    before = None
    if previous is not None:
        status, reason, days = previous
        since = (NOW - timedelta(days=days)).isoformat()
        before = msgspec.convert(
            {"type": "x", "status": status, "reason": reason, "lastTransitionTime": since}, Condition
        )
    holds, reason, _ = model.cluster_condition(DAILY, last, model.last_success(backups, last), before, NOW)
    return f"{holds}/{reason}"


def test_cluster_condition_follows_the_last_result() -> None:
    good = after(model.verdict_of(backup(), result()), hours=5)
    bad = after(model.verdict_of(backup("b"), refused("WALMissing")), backup("a", request="r"), hours=1)
    assert condition() == "None/NeverVerified"
    assert condition(good) == "True/Verified"
    assert condition(good, bad) == "False/VerificationFailed"
    # An attempt without a result changes nothing.
    later = after(model.verdict_of(good, refused("StoreUnreachable")), good)
    assert condition(later) == "True/Verified"


def test_cluster_condition_is_overdue_after_two_missed_times() -> None:
    old = after(model.verdict_of(backup(), result()), hours=36)
    assert condition(old) == "False/VerificationOverdue"
    assert condition(after(model.verdict_of(backup(), result()), hours=30)) == "True/Verified"
    assert condition(previous=("Unknown", "NeverVerified", 1.2)) == "None/NeverVerified"
    assert condition(previous=("Unknown", "NeverVerified", 2)) == "False/VerificationOverdue"
    assert condition(previous=("False", "VerificationOverdue", 0.1)) == "False/VerificationOverdue"


def test_last_verification_outlives_its_backup() -> None:
    kept = VerificationSummary(name="gone", time=NOW - timedelta(hours=3), verified=True)
    assert condition(kept=kept) == "True/Verified"
    moved = ClusterBackupStatus(last_verification=kept, path="another")
    assert model.summary([], moved, PATH) is None
