"""The plan of a MySQL recovery, against generated histories."""

from __future__ import annotations

import datetime
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from database_support.unit.binlog_events import UUID, Transaction, session
from steersman_instance.binlog.chunks import ChunkHeader
from steersman_instance.gtids import NO_GTIDS, GtidSet
from steersman_instance.recovery.gtid_plan import (
    BeforeGtid,
    GtidBackup,
    GtidPlan,
    GtidTarget,
    ThroughGtid,
    parse_gtid_target,
    plan_gtid_recovery,
    served_end,
)
from steersman_instance.recovery.plan import RecoveryRefused
from steersman_instance.recovery.target import AtTime, InvalidTarget, Latest

EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
ABANDONED = "4e11fa47-71ca-11e1-9e33-c80aa9429562"


def at(second: float) -> datetime.datetime:
    return EPOCH + datetime.timedelta(seconds=second)


def up_to(last: int) -> GtidSet:
    return GtidSet.parse(f"{UUID}:1-{last}") if last else NO_GTIDS


def backup(last: int) -> GtidBackup:
    """Return a backup that was complete half a second after a transaction."""
    return GtidBackup(id=f"b{last}", stop=at(last + 0.5), gtids=up_to(last))


def headers(name: str, first: int, last: int, *cuts: int, before: GtidSet | None = None) -> list[ChunkHeader]:
    """Return a session with transactions that were committed at the second of their number."""
    transactions = [Transaction(n, committed_at=n * 1_000_000) for n in range(first, last + 1)]
    start = up_to(first - 1) if before is None else before
    return [chunk.header for chunk in session(name, start, transactions, cuts)]


@dataclass
class History:
    """Sessions of collectors that overlap, end anywhere and leave gaps."""

    end: int
    chunks: list[ChunkHeader] = field(default_factory=list[ChunkHeader])
    backups: list[GtidBackup] = field(default_factory=list[GtidBackup])
    stored: set[int] = field(default_factory=set[int])


HISTORIES = settings(max_examples=500, deadline=None)  # each of the two properties


@st.composite
def histories(draw: st.DrawFn) -> History:
    end = draw(st.integers(1, 24))
    made = History(end)
    last = 0
    for number in range(draw(st.integers(1, 4))):
        # A collector starts before, at or behind the end of the previous one: overlap, continuity or a gap.
        first = max(1, min(end, last + draw(st.integers(-2, 3))))
        until = draw(st.integers(first, end))
        cuts = sorted(draw(st.sets(st.integers(1, 3 * (until - first + 1) - 1), max_size=5)))
        made.chunks += headers(f"s{number}", first, until, *cuts)
        made.stored |= set(range(first, until + 1))
        last = max(last, until)
    made.end = last
    made.backups = [backup(each) for each in sorted(draw(st.sets(st.integers(0, last), min_size=1, max_size=3)))]
    return made


def newest_of(made: History) -> ChunkHeader:
    return max(made.chunks, key=lambda chunk: len(chunk.after))


def replayed(plan: GtidPlan) -> GtidSet:
    """Apply the chunks of a plan as a server does, and check that none is applied across a gap."""
    reached = plan.backup.gtids
    for chunk in plan.chunks:
        assert reached >= chunk.before
        reached |= chunk.after
    return reached


@HISTORIES
@given(histories())
def test_latest_is_reached_exactly_or_the_gap_is_reported(made: History) -> None:
    end = newest_of(made)
    reachable = [each for each in made.backups if set(range(len(each.gtids) + 1, made.end + 1)) <= made.stored]
    try:
        plan = plan_gtid_recovery(made.backups, made.chunks, end, Latest())
    except RecoveryRefused as refused:
        assert refused.reason == "BinaryLogMissing"
        assert not reachable
    else:
        assert replayed(plan) == plan.reached == up_to(made.end)
        assert plan.backup == max(reachable, key=lambda each: len(each.gtids))


@HISTORIES
@given(histories(), st.integers(1, 24), st.sampled_from(["time", "before", "through"]))
def test_target_is_in_the_chunks_of_the_plan(made: History, number: int, kind: str) -> None:
    gtids = NO_GTIDS.add(UUID, number)
    target: GtidTarget = AtTime(at(number)) if kind == "time" else BeforeGtid(gtids)
    if kind == "through":
        target = ThroughGtid(gtids)
    wanted = number - 1 if kind == "before" else number
    try:
        plan = plan_gtid_recovery(made.backups, made.chunks, newest_of(made), target)
    except RecoveryRefused:
        usable = [each for each in made.backups if len(each.gtids) < number]
        complete = [each for each in usable if set(range(len(each.gtids) + 1, number + 1)) <= made.stored]
        assert not complete or (made.end < number)
    else:
        reached = replayed(plan)
        assert reached >= up_to(wanted)
        assert len(plan.backup.gtids) <= wanted
        if plan.chunks:
            # Without the last chunk the target is not passed.
            assert len(plan.chunks[-1].before) <= wanted


def test_transactions_of_an_abandoned_primary_are_left_out() -> None:
    common = headers("a", 1, 3)
    abandoned = [
        chunk.header for chunk in session("b", up_to(3), [Transaction(1, committed_at=4_000_000, origin=ABANDONED)])
    ]
    current = headers("c", 4, 6)
    plan = plan_gtid_recovery([backup(2)], [*common, *abandoned, *current], current[-1], Latest())
    assert plan.reached == up_to(6)
    assert [chunk.session for chunk in plan.chunks] == ["a", "c"]


def test_chunk_with_an_abandoned_transaction_still_leads_on() -> None:
    made = [Transaction(3, committed_at=3_000_000), Transaction(1, committed_at=4_000_000, origin=ABANDONED)]
    abandoned = [chunk.header for chunk in session("a", up_to(2), made)]
    current = headers("b", 4, 5)
    plan = plan_gtid_recovery([backup(2)], [*abandoned, *current], current[-1], Latest())
    assert plan.reached == plan.history == up_to(5)
    assert [chunk.session for chunk in plan.chunks] == ["a", "b"]


def test_time_after_the_last_commit_is_refused_with_that_time() -> None:
    chunks = headers("a", 1, 5)
    with pytest.raises(RecoveryRefused, match=r"The last archived commit is of 1970-01-01T00:00:05Z") as refused:
        plan_gtid_recovery([backup(2)], chunks, chunks[-1], AtTime(at(6)))
    assert refused.value.reason == "TargetNotReached"


def test_time_before_the_first_backup_is_refused_with_that_time() -> None:
    chunks = headers("a", 1, 5)
    with pytest.raises(RecoveryRefused, match=r"first recovery point is 1970-01-01T00:00:03.500000Z") as refused:
        plan_gtid_recovery([backup(3)], chunks, chunks[-1], AtTime(at(2)))
    assert refused.value.reason == "NoUsableBackup"


def test_time_without_later_commits_is_proved_by_a_later_backup() -> None:
    chunks = headers("a", 1, 5)
    idle = GtidBackup(id="idle", stop=at(100), gtids=up_to(5))
    assert plan_gtid_recovery([backup(2), idle], chunks, chunks[-1], AtTime(at(50))).reached == up_to(5)


def test_gap_is_reported_with_the_last_reachable_commit() -> None:
    chunks = [*headers("a", 1, 3), *headers("b", 6, 8)]
    with pytest.raises(RecoveryRefused, match=r"lacks 2 transactions .*:4-5\. .* until 1970-01-01T00:00:03Z"):
        plan_gtid_recovery([backup(1)], chunks, chunks[-1], Latest())


def test_last_commit_before_a_gap_is_a_target() -> None:
    chunks = headers("s0", 1, 2) + headers("s1", 4, 4)
    plan = plan_gtid_recovery([backup(0)], chunks, chunks[-1], AtTime(at(2)))
    assert plan.reached == up_to(2)
    with pytest.raises(RecoveryRefused, match="is possible until 1970-01-01T00:00:02"):
        plan_gtid_recovery([backup(0)], chunks, chunks[-1], AtTime(at(2.5)))


def test_unknown_backup_is_refused() -> None:
    chunks = headers("a", 1, 3)
    with pytest.raises(RecoveryRefused, match="no backup b9"):
        plan_gtid_recovery([backup(1)], chunks, chunks[-1], Latest(), backup_id="b9")


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"lsn": "0/1"},
        {"gtid": {}},
        {"gtid": {"before": "x:1"}, "latest": {}},
        {"gtid": {"before": f"{UUID}:1", "through": f"{UUID}:1"}},
        {"gtid": {"before": f"{UUID}:0"}},
    ],
)
def test_malformed_target_is_rejected(fields: dict[str, object]) -> None:
    with pytest.raises(InvalidTarget):
        parse_gtid_target(fields)


def ends() -> list[ChunkHeader]:
    """Return sessions of a group that a restore to the second transaction replaced after the fifth."""
    replaced = headers("19700101T000001Z-a", 1, 3), headers("19700101T000004Z-b", 4, 5)
    transactions = [Transaction(1, committed_at=9_000_000, origin=ABANDONED)]
    (restored,) = session("19700101T000008Z-c", up_to(2), transactions)
    return [*(chunks[-1] for chunks in replaced), restored.header]


@pytest.mark.parametrize(
    ("target", "served"),
    [
        (AtTime(at(1)), 1),
        (AtTime(at(4.5)), 1),
        (AtTime(at(7)), 1),
        (AtTime(at(8.5)), 2),
        (ThroughGtid(NO_GTIDS.add(UUID, 4)), 1),
        (ThroughGtid(NO_GTIDS.add(UUID, 2)), 2),
        (Latest(), 2),
    ],
)
def test_target_is_searched_in_the_history_served_then(target: GtidTarget, served: int) -> None:
    found = ends()
    assert served_end(found, found[-1], target) == found[served]


def test_failover_continues_the_history() -> None:
    found = [headers("19700101T000001Z-a", 1, 4)[-1], headers("19700101T000004Z-b", 4, 6, before=up_to(2))[-1]]
    assert served_end(found, found[-1], AtTime(at(2))) == found[-1], "its group is the same"


def test_undone_restore_continues_the_previous_history() -> None:
    found = ends()
    transactions = [Transaction(n, committed_at=n * 1_000_000) for n in range(3, 6)]
    (undone,) = session("19700101T000020Z-d", up_to(2), transactions)
    found.append(undone.header)
    assert served_end(found, found[-1], AtTime(at(4.5))) == found[-1]
    assert served_end(found, found[-1], AtTime(at(10))) == found[2]
