"""Number of commits that a restore in place loses, against generated histories."""

from __future__ import annotations

import datetime
import random
from collections.abc import Sequence

from hypothesis import given, settings
from hypothesis import strategies as st

from database_support.archive.history import RECORD_BYTES, SIZE, START, STEPS, History, HistoryEvidence, commits
from steersman_instance.recovery.evidence import Commit
from steersman_instance.recovery.plan import RecoveryPlan, RecoveryRefused, plan_recovery
from steersman_instance.recovery.preview import Lost, count_lost
from steersman_instance.recovery.target import AtLsn, AtTime, Latest, Target
from steersman_instance.recovery.wal import Segment


def history(seed: int, steps: int = 25) -> History:
    made = History(random.Random(seed))
    made.step("backup")
    made.run(made.random.randint(3, steps), (*STEPS, "recovery"))
    return made


def lost(made: History, plan: RecoveryPlan, *, late_after: int = 1000) -> Lost:
    read: list[Segment] = []

    def commits_of(segment: Segment) -> Sequence[Commit]:
        assert segment in made.archived
        read.append(segment)
        live = next(each for each in made.timelines if each.number == segment.timeline)
        found = [r for r in commits(live.records) if SIZE.number(r.lsn - 1) == segment.number]
        return [Commit(r.lsn - RECORD_BYTES, r.time) for r in found]

    first = SIZE.number(plan.backup.start_lsn)
    return count_lost(made.archive(), commits_of, plan, first, lambda: len(read) >= late_after)


def plan_of(made: History, target: Target) -> RecoveryPlan:
    return plan_recovery(made.archive(), HistoryEvidence(made), target)


@given(st.integers(0, 2**32))
@settings(max_examples=250)
def test_count_is_what_users_lose(seed: int) -> None:
    made = history(seed)
    seconds = (made.now - START).total_seconds()
    try:
        plan = plan_of(made, AtTime(START + datetime.timedelta(seconds=made.random.uniform(0, seconds))))
    except RecoveryRefused:
        return
    replayed = made.replay(plan)
    assert replayed is not None
    present = made.preserved(commits(made.live.records))
    expected = [record for record in present if record not in replayed]
    found = lost(made, plan)
    assert found.commits <= len(expected)
    assert found.is_minimum or found.commits == len(expected)


def committed(count: int) -> History:
    """A history of one timeline, whose WAL is archived."""
    made = History(random.Random(0))
    made.step("backup")
    for _ in range(count):
        made.step("commit")
    made.step("idle")
    return made


def test_latest_loses_nothing() -> None:
    made = committed(20)
    assert lost(made, plan_of(made, Latest())) == Lost(0, is_minimum=False)


def test_commits_after_a_position_are_lost() -> None:
    made = committed(20)
    target = AtLsn(made.live.records[-5].lsn - RECORD_BYTES)
    assert lost(made, plan_of(made, target)) == Lost(4, is_minimum=False)


def test_count_that_ends_early_is_a_minimum() -> None:
    made = committed(40)
    target = AtLsn(made.live.records[-30].lsn - RECORD_BYTES)
    found = lost(made, plan_of(made, target), late_after=5)
    assert 0 < found.commits < 29 and found.is_minimum
