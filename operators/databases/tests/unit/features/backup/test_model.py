"""Conditions and mirroring of the catalog."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

from steersman.meta import FrozenDict, ObjectMeta
from steersman_databases.api import Backup, BackupSpec, BackupStatus
from steersman_databases.api.backups.backup import BackupClusterReference
from steersman_databases.api.backups.backup_common import BackupSchedule
from steersman_databases.features.backup import model
from steersman_databases.features.backup.catalog import Catalog, read_catalog

NOW = datetime(2026, 5, 20, tzinfo=UTC)
PATH = "default/postgresqlcluster.orders/01234567"
DAILY = BackupSchedule(name="daily", schedule="0 0 * * *")


def catalog(*backups: tuple[str, int, int], **fields: Any) -> Catalog:
    """A catalog of full backups by ID, days ago and size."""
    entries = [
        {
            "id": name,
            "type": "Full",
            "start": (NOW - timedelta(days=days)).isoformat(),
            "stop": (NOW - timedelta(days=days)).isoformat(),
            "size": size,
        }
        for name, days, size in backups
    ]
    text = json.dumps({"format": 1, "at": NOW.isoformat(), "backups": entries, **fields})
    found = read_catalog({"catalog.json": text})
    assert found is not None
    return found


def backup(name: str, phase: Any, days: float, backup_id: str | None = None, trigger: str = "") -> Backup:
    """An object that was created ``days`` ago and ended at once."""
    time = NOW - timedelta(days=days)
    labels = {model.TRIGGER_LABEL: trigger} if trigger else {}
    return Backup(
        metadata=ObjectMeta(name=name, namespace="default", creation_timestamp=time, labels=FrozenDict(labels)),
        spec=BackupSpec(cluster_ref=BackupClusterReference(name="orders")),
        status=BackupStatus(
            phase=phase, backup_id=backup_id, path=PATH, start_time=time, stop_time=time, message="no room"
        ),
    )


def backed_up(found: Catalog | None, *backups: Backup) -> str:
    """Reason of the condition ``BackedUp``."""
    completed = model.completed_backups(found, backups, PATH)
    return model.backed_up_condition(completed, backups, [DAILY], NOW)[1]


def test_backed_up_names_what_is_missing() -> None:
    assert backed_up(None) == "NoBackup"
    assert backed_up(catalog(("a", 0, 9))) == "UpToDate"
    assert backed_up(catalog(("a", 3, 9))) == "Overdue"
    assert backed_up(catalog(("a", 1, 900), ("b", 0, 200))) == "SuspiciousSize"
    assert backed_up(catalog(("a", 1, 9)), backup("late", "Failed", 0.1)) == "LastBackupFailed"
    assert backed_up(catalog(("a", 0, 9)), backup("late", "Failed", 0.1)) == "UpToDate", "a later one completed"
    assert backed_up(None, backup("new", "Completed", 0, "a")) == "UpToDate", "the catalog is behind"


def test_archiving_repeats_known_reasons_only() -> None:
    def reason(state: str) -> str:
        return model.archiving_condition(catalog(archive={"state": state, "message": "m"}))[1]

    assert model.archiving_condition(None)[:2] == (None, "Waiting")
    assert reason("Archiving") == "Archiving"
    assert reason("StoreFull") == "StoreFull"
    assert reason("Free text, from a pod") == "ArchivingFailed"


def test_malformed_catalog_is_ignored() -> None:
    for text in ("", "{", "[]", '{"format":2,"at":"2026-01-01T00:00:00Z"}', "[" * 100_000, '{"format":1}'):
        assert read_catalog({"catalog.json": text}) is None
    entry = {"id": "../x", "type": "Full", "start": NOW.isoformat(), "stop": NOW.isoformat()}
    text = json.dumps({"format": 1, "at": NOW.isoformat(), "backups": [entry]})
    assert read_catalog({"catalog.json": text}) is None


def test_long_gtid_set_leaves_the_catalog_readable() -> None:
    """A group that was recovered often has a set of many UUIDs."""
    gtids = ",".join(f"{number:08x}-0000-4000-8000-000000000000:1-1000000" for number in range(100))
    archive = {"state": "Archiving", "lastArchived": gtids}
    text = json.dumps({"format": 1, "at": "2026-03-01T12:30:00Z", "archive": archive})
    found = read_catalog({"catalog.json": text})
    assert found is not None and found.archive is not None
    assert found.archive.last_archived == gtids


def test_mirror_follows_store_and_keeps_history_of_empty_store() -> None:
    found = catalog(("a", 2, 9), ("b", 1, 9))
    known, gone, fresh = (
        backup("known", "Completed", 2, "a"),
        backup("gone", "Completed", 9, "expired"),
        backup("fresh", "Completed", 0.01, "new"),
    )
    assert [b.id for b in model.undiscovered(found, [known], PATH)] == ["b"]
    assert not model.undiscovered(found, [known, backup("r", "Running", 0)], PATH), "its ID is not known yet"
    assert [model.is_expired(b, found) for b in (known, gone, fresh)] == [False, True, False]
    assert not model.is_expired(gone, catalog()), "a lost store must not erase the history"


def test_queue_runs_one_backup_in_order_of_creation() -> None:
    old, new = backup("b", "Pending", 2), backup("a", "Pending", 1)
    running, final = backup("z", "Running", 0), backup("f", None, 9, trigger="Final")
    assert model.first_in_queue([new, old, final]) is old
    assert model.first_in_queue([new, old, running]) is running
    assert model.first_in_queue([backup("d", "Completed", 1), final]) is None


def test_failed_backups_of_schedules_are_pruned() -> None:
    failed = [backup(f"f{n}", "Failed", n, trigger="Schedule") for n in range(90)]
    pruned = model.superseded_failures([*failed, backup("mine", "Failed", 200)])
    assert len(pruned) == 90 - model.FAILED_BACKUPS_KEPT
    assert failed[0] not in pruned
