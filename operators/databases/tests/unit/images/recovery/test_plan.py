"""The planner of recoveries, against generated histories whose truth is known."""

from __future__ import annotations

import datetime
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from database_support.archive.history import SIZE, START, STEPS, History, HistoryEvidence, commits
from steersman_instance.recovery.plan import RecoveryPlan, RecoveryRefused, plan_recovery
from steersman_instance.recovery.target import AtLsn, AtName, AtTime, Latest
from steersman_instance.recovery.wal import Segment

SEEDS = st.integers(0, 2**32)
HISTORIES = settings(max_examples=250)  # each of the four properties


def history(seed: int) -> History:
    made = History(random.Random(seed))
    made.step("backup")
    made.run(made.random.randint(3, 25), (*STEPS, "recovery"))
    return made


def plan(made: History, target: Latest | AtTime | AtLsn | AtName, **options: int | str) -> RecoveryPlan:
    return plan_recovery(made.archive(), HistoryEvidence(made), target, **options)  # type: ignore[arg-type]


@given(SEEDS)
@HISTORIES
def test_plan_to_time_gives_what_users_saw(seed: int) -> None:
    made = history(seed)
    seconds = (made.now - START).total_seconds()
    time = START + datetime.timedelta(seconds=made.random.uniform(0, seconds))
    try:
        found = plan(made, AtTime(time))
    except RecoveryRefused as refused:
        assert_not_recoverable(made, time, refused)
        return
    assert_seen(made, found, time)


def assert_seen(made: History, found: RecoveryPlan, time: datetime.datetime) -> None:
    """The recovery gives what users saw, as far as the archive has it, and nothing else."""
    replayed, seen = made.replay(found), made.seen_at(time)
    assert replayed is not None
    assert [record for record in replayed if record not in seen] == []
    assert [record for record in made.preserved(seen) if record not in replayed] == []


def assert_not_recoverable(made: History, time: datetime.datetime, refused: RecoveryRefused) -> None:
    """Any backup and any timeline lead to something else, or nowhere."""
    for backup in made.backups:
        if backup.stop > time:
            continue
        for timeline in made.archive().timelines.known:
            lineage = made.archive().timelines.lineage(timeline)
            if lineage.contains(backup.timeline, backup.stop_lsn):
                other = RecoveryPlan(backup=backup, timeline=timeline, target=AtTime(time))
                replayed = made.replay(other)
                live = made.live_at(time)
                # A later timeline may show the same rows by chance; it proves nothing about this one.
                if timeline == live.number:
                    assert replayed is None or replayed != made.seen_at(time), refused.message


@given(SEEDS)
@HISTORIES
def test_plan_to_latest_keeps_all_archived_commits(seed: int) -> None:
    made = history(seed)
    try:
        found = plan(made, Latest())
    except RecoveryRefused as refused:
        assert refused.reason in ("NoUsableBackup", "WALMissing")
        usable = made.archive().timelines.lineage(made.live.number)
        backups = [b for b in made.backups if usable.contains(b.timeline, b.stop_lsn)]
        assert not backups or refused.reason == "WALMissing"
        return
    replayed = made.replay(found)
    assert replayed is not None
    live = commits(made.live.records)
    assert replayed == live[: len(replayed)]
    complete = {s.number for s in made.archived if s.timeline == made.live.number}
    assert all(record in replayed for record in live if SIZE.number(record.lsn - 1) in complete)


@given(SEEDS)
@HISTORIES
def test_plan_to_restore_point_ends_right_after_it(seed: int) -> None:
    made = history(seed)
    try:
        found = plan(made, AtName("point-1"))
    except RecoveryRefused as refused:
        assert refused.reason in ("NoUsableBackup", "TargetNotReached", "WALMissing")
        return
    points = [record for record in made.live.records if record.name == "point-1"]
    replayed = made.replay(found)
    archived = [p for p in points if commits_before(made, p.lsn) == replayed]
    assert archived, "the recovery ends at no restore point of this name"


def commits_before(made: History, lsn: int) -> list[object]:
    return [record for record in commits(made.live.records) if record.lsn <= lsn]


@given(SEEDS)
@HISTORIES
def test_plan_with_a_hole_never_crosses_it(seed: int) -> None:
    made = history(seed)
    if not made.archived:
        return
    hole = made.random.choice(sorted(made.archived))
    made.archived.discard(hole)
    seconds = (made.now - START).total_seconds()
    time = START + datetime.timedelta(seconds=made.random.uniform(0, seconds))
    for target in (AtTime(time), Latest()):
        try:
            found = plan(made, target)
        except RecoveryRefused:
            continue
        if isinstance(target, AtTime):
            assert_seen(made, found, time)
        else:
            replayed = made.replay(found)
            assert replayed is not None
            assert replayed == commits(made.live.records)[: len(replayed)]


def two_commits(made: History) -> None:
    made.step("commit")
    made.step("commit")


def test_plan_takes_no_backup_of_an_abandoned_timeline() -> None:
    made = History(random.Random(1))
    made.step("backup")
    two_commits(made)
    fork = made.lsn
    two_commits(made)
    made.step("backup")
    made.promote(fork)
    for _ in range(20):
        made.step("commit")
    found = plan(made, Latest())
    assert (found.backup.id, found.timeline) == ("000F", 2)


def test_plan_of_a_pinned_backup_follows_its_timeline() -> None:
    made = History(random.Random(1))
    made.step("backup")
    fork = made.lsn
    two_commits(made)
    made.step("backup")
    made.promote(fork)
    for _ in range(20):
        made.step("commit")
    found = plan(made, Latest(), backup_id="001F")
    assert (found.backup.id, found.timeline) == ("001F", 1)


def test_plan_reports_the_missing_segment() -> None:
    made = History(random.Random(1))
    made.step("backup")
    for _ in range(30):
        made.step("commit")
    made.archived.discard(Segment(1, 6))
    with pytest.raises(RecoveryRefused, match=r"000000010000000000000006 is missing.*complete up to 2026"):
        plan(made, Latest())


def test_plan_names_the_last_commit_behind_the_archive() -> None:
    made = History(random.Random(1))
    made.step("backup")
    for _ in range(12):
        made.step("commit")
    with pytest.raises(RecoveryRefused, match=r"ended at 2026-.*Choose an earlier time") as refused:
        plan(made, AtTime(made.now + datetime.timedelta(hours=1)))
    assert refused.value.reason == "TargetNotReached"


def test_plan_refuses_a_time_before_the_first_backup() -> None:
    made = History(random.Random(1))
    made.step("backup")
    two_commits(made)
    with pytest.raises(RecoveryRefused, match=r"the first of the archive, ends at .* Choose a later target"):
        plan(made, AtTime(START))


def test_plan_without_backups_is_refused() -> None:
    made = History(random.Random(1))
    two_commits(made)
    with pytest.raises(RecoveryRefused, match="no complete backup"):
        plan(made, Latest())


def test_plan_to_lsn_takes_the_backup_before() -> None:
    made = History(random.Random(1))
    made.step("backup")
    two_commits(made)
    lsn = made.lsn
    for _ in range(12):
        made.step("commit")
    made.step("backup")
    found = plan(made, AtLsn(lsn))
    assert (found.backup.id, found.timeline) == ("000F", 1)
    with pytest.raises(RecoveryRefused, match="The archive ends at"):
        plan(made, AtLsn(made.lsn + SIZE.bytes))
