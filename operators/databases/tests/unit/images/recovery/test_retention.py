"""Retention, against generated histories: what it removes never takes a recovery point away."""

from __future__ import annotations

import datetime
import random

from hypothesis import given, settings
from hypothesis import strategies as st

from database_support.archive.history import STEPS, History, HistoryEvidence
from steersman_instance.backup.catalog import BaseBackup
from steersman_instance.backup.retention import RetentionPolicy, expirable, needed, with_dependants
from steersman_instance.recovery.plan import Archive, RecoveryRefused, plan_recovery
from steersman_instance.recovery.target import AtTime, Latest, Target

SEEDS = st.integers(0, 2**32)
DAY = datetime.timedelta(days=1)
NOW = datetime.datetime(2026, 6, 1, tzinfo=datetime.UTC)


def backup(number: int, days_ago: float, *depends_on: int, **changed: object) -> BaseBackup:
    values: dict[str, object] = {
        "id": str(number),
        "type": "Incremental" if depends_on else "Full",
        "start": NOW - DAY * days_ago,
        "stop": NOW - DAY * days_ago,
        "timeline": 1,
        "start_lsn": number,
        "stop_lsn": number,
        "depends_on": tuple(map(str, depends_on)),
        **changed,
    }
    return BaseBackup(**values)  # type: ignore[arg-type]


def recoverable(archive: Archive, history: History, target: Target) -> bool:
    try:
        plan_recovery(archive, HistoryEvidence(history), target)
    except RecoveryRefused:
        return False
    return True


@given(SEEDS)
@settings(max_examples=250)
def test_retention_keeps_every_moment_of_the_window(seed: int) -> None:
    history = History(random.Random(seed))
    history.step("backup")
    history.run(history.random.randint(5, 30), (*STEPS, "backup", "incremental"))
    window = datetime.timedelta(seconds=history.random.randint(1, 600))
    policy = RetentionPolicy(window=window, minimum_full=history.random.randint(1, 3))
    archive = history.archive()
    newest = archive.timelines.lineage(history.live.number)
    removed = expirable(archive.backups, policy, history.now, lineage=newest)
    left = [each for each in archive.backups if each.id not in removed]
    assert all(dependency in {each.id for each in left} for each in left for dependency in each.depends_on)
    full = [each for each in archive.backups if each.type == "Full"]
    assert sum(each.type == "Full" for each in left) >= min(policy.minimum_full, len(full))
    afterwards = Archive(backups=left, timelines=archive.timelines, segments=archive.segments, size=archive.size)
    begin = archive.backups[-1].stop - window
    moments = [begin + (history.now - begin) * history.random.random() for _ in range(4)]
    targets: list[Target] = [Latest(), *map(AtTime, moments)]
    for target in targets:
        if recoverable(archive, history, target):
            assert recoverable(afterwards, history, target)


@given(SEEDS)
def test_retention_is_settled_after_one_run(seed: int) -> None:
    history = History(random.Random(seed))
    history.step("backup")
    history.run(30, (*STEPS, "backup", "incremental"))
    policy = RetentionPolicy(window=datetime.timedelta(seconds=120), minimum_full=1)
    removed = expirable(history.backups, policy, history.now)
    left = [each for each in history.backups if each.id not in removed]
    assert expirable(left, policy, history.now) == ()


def test_retention_stays_still_while_backups_fail() -> None:
    policy = RetentionPolicy(window=7 * DAY, minimum_full=1)
    backups = [backup(1, 60), backup(2, 30), backup(3, 15, 2)]
    removed = {expirable(backups, policy, NOW + DAY * days) for days in range(90)}
    assert removed == {("1",)}


def test_retention_removes_dependants_first() -> None:
    policy = RetentionPolicy(window=DAY, minimum_full=1)
    backups = [backup(1, 9), backup(2, 8, 1), backup(3, 7, 1, 2), backup(4, 3), backup(5, 0)]
    assert expirable(backups, policy, NOW) == ("3", "2", "1")


def test_retention_keeps_final_backups_until_their_time() -> None:
    policy = RetentionPolicy(window=DAY, minimum_full=1)
    backups = [backup(1, 9, trigger="Final"), backup(2, 5), backup(3, 0)]
    assert expirable(backups, policy, NOW, retain_until={}) == ()
    assert expirable(backups, policy, NOW, retain_until={"1": NOW + DAY}) == ()
    assert expirable(backups, policy, NOW, retain_until={"1": NOW - DAY}) == ("1",)
    assert expirable(backups, policy, NOW, retain_until={"1": None, "2": None}) == ()


def test_retention_does_not_count_damaged_backups() -> None:
    policy = RetentionPolicy(window=DAY, minimum_full=1)
    backups = [backup(1, 20), backup(2, 9), backup(3, 5), backup(4, 0, damaged=True)]
    assert expirable(backups, policy, NOW) == ("1",)
    assert needed([backup(1, 9, damaged=True)], policy, NOW) == {"1"}


def test_dependants_are_removed_with_a_backup() -> None:
    backups = [backup(1, 9), backup(2, 8, 1), backup(3, 7, 1, 2), backup(4, 3)]
    assert with_dependants("1", backups) == ("3", "2", "1")
    assert with_dependants("4", backups) == ("4",)
