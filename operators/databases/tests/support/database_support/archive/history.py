"""A generated history of a PostgreSQL cluster, its archive, and the replay of that archive as PostgreSQL does it.

Commits, backups, failovers that lose commits, and recoveries to an earlier moment happen in any order. The history
knows what users saw at each moment, so a plan can be compared with the truth.
"""

from __future__ import annotations

import datetime
import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal

from steersman_instance.backup.catalog import BaseBackup
from steersman_instance.recovery.plan import Archive, RecoveryPlan
from steersman_instance.recovery.target import AtLsn, AtTime
from steersman_instance.recovery.timelines import Fork, Lineage, Timelines
from steersman_instance.recovery.wal import Segment, SegmentRanges, SegmentSize

SIZE = SegmentSize(1 << 20)
RECORD_BYTES = 180_000  # so that a segment has five or six records
START = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)

Step = Literal["commit", "idle", "restore_point", "backup", "incremental", "failover", "switchover", "recovery"]
STEPS: tuple[Step, ...] = ("commit", "idle", "restore_point", "backup", "incremental", "failover", "switchover")


@dataclass(frozen=True)
class Record:
    """A WAL record: a commit, or a restore point where ``name`` is set."""

    lsn: int
    time: datetime.datetime
    name: str = ""


@dataclass(frozen=True)
class LiveTimeline:
    """A timeline as the cluster had it; ``ancestors`` are those of its history file."""

    number: int
    begin: datetime.datetime
    ancestors: tuple[Fork, ...]
    records: list[Record]  # those of its ancestors included


@dataclass
class History:
    """A cluster that archives each complete segment at once, if not told otherwise."""

    random: random.Random
    now: datetime.datetime = START
    lsn: int = 2 * SIZE.bytes
    timelines: list[LiveTimeline] = field(default_factory=lambda: [LiveTimeline(1, START, (), [])])
    archived: set[Segment] = field(default_factory=set[Segment])
    backups: list[BaseBackup] = field(default_factory=list[BaseBackup])

    @property
    def live(self) -> LiveTimeline:
        """The timeline that users see."""
        return self.timelines[-1]

    def run(self, steps: int, kinds: tuple[Step, ...] = STEPS) -> None:
        """Take random steps; every third is a commit."""
        often: tuple[Step, ...] = ("commit",) * (len(kinds) // 2)
        for _ in range(steps):
            self.step(self.random.choice((*kinds, *often)))

    def step(self, kind: Step) -> None:
        self.now += datetime.timedelta(seconds=self.random.randint(1, 60))
        match kind:
            case "commit":
                self._append("")
            case "idle":
                self._switch_segment()
            case "restore_point":
                self._append(f"point-{self.random.randint(1, 3)}")
            case "backup" | "incremental":
                self._back_up(kind == "incremental")
            case "failover" | "switchover":
                lost = self.random.randint(0, 8) if kind == "failover" else 0
                self.promote(max(self.lsn - lost * RECORD_BYTES, self._floor()))
            case "recovery":
                self.promote(self.random.randint(self._floor(), self.lsn))

    def promote(self, at: int) -> None:
        """Begin a timeline at a position. Records behind it are lost to users, not to the archive."""
        parent = self.live
        newest = max((s.number for s in self.archived if s.timeline == parent.number), default=0)
        if self.random.random() < 0.7 and newest <= SIZE.number(at):
            # The server was lost before it archived its last segment.
            self.archived.discard(Segment(parent.number, SIZE.number(at)))
        records = [record for record in parent.records if record.lsn <= at]
        fork = Fork(parent.number, at)
        self.timelines.append(LiveTimeline(parent.number + 1, self.now, (*parent.ancestors, fork), records))
        self.lsn = at

    def archive(self) -> Archive:
        """Return what the store lists."""
        histories = {each.number: each.ancestors for each in self.timelines[1:]}
        known = frozenset(each.number for each in self.timelines)
        return Archive(
            backups=tuple(self.backups),
            timelines=Timelines(histories, known),
            segments=SegmentRanges.collect(self.archived),
            size=SIZE,
        )

    def live_at(self, time: datetime.datetime) -> LiveTimeline:
        """Return the timeline that users saw at a moment."""
        return next(each for each in reversed(self.timelines) if each.begin <= time)

    def seen_at(self, time: datetime.datetime) -> list[Record]:
        """Return the commits that users saw at a moment."""
        return [record for record in commits(self.live_at(time).records) if record.time <= time]

    def preserved(self, records: list[Record]) -> list[Record]:
        """Return the records that any archived segment has. Nothing shows that there were others."""
        by_number = {each.number: each for each in self.timelines}
        found = {
            record
            for segment in self.archived
            for record in by_number[segment.timeline].records
            if SIZE.number(record.lsn - 1) == segment.number
        }
        return [record for record in records if record in found]

    def replay(self, plan: RecoveryPlan) -> list[Record] | None:
        """Return the commits after a recovery, or None if PostgreSQL would not reach the target.

        Each segment is read from the newest timeline of the target's lineage that has begun by then.
        Source: src/backend/access/transam/xlogrecovery.c (XLogFileReadAnyTLI, recoveryStopsBefore).
        """
        base = next(each for each in self.timelines if each.number == plan.backup.timeline)
        replayed = [record for record in base.records if record.lsn <= plan.backup.start_lsn]
        for record in self._read(plan):
            if isinstance(plan.target, AtTime) and not record.name and record.time > plan.target.time:
                return commits(replayed) if replayed_to(replayed, plan) else None
            replayed.append(record)
            if isinstance(plan.target, AtLsn) and record.lsn - RECORD_BYTES >= plan.target.lsn:
                return commits(replayed)
        return commits(replayed) if not isinstance(plan.target, AtTime | AtLsn) else None

    def _read(self, plan: RecoveryPlan) -> Iterator[Record]:
        lineage = self._lineage(plan.timeline)
        number, current = SIZE.number(plan.backup.start_lsn), plan.backup.timeline
        while True:
            spans = [span for span in reversed(lineage.spans) if span.timeline >= current]
            choice = (s.timeline for s in spans if SIZE.number(s.start) <= number)
            found = next((t for t in choice if Segment(t, number) in self.archived), None)
            if found is None:
                return
            current = found
            records = next(each for each in self.timelines if each.number == found).records
            for record in records:
                # A record counts where it ends: it is complete only with the segment of its last byte.
                if SIZE.number(record.lsn - 1) == number and record.lsn > plan.backup.start_lsn:
                    yield record
            number += 1

    def _lineage(self, number: int) -> Lineage:
        return self.archive().timelines.lineage(number)

    def _append(self, name: str) -> None:
        self._advance(RECORD_BYTES)
        self.live.records.append(Record(self.lsn, self.now, name))

    def _back_up(self, incremental: bool) -> None:
        self._switch_segment()
        start, started = self.lsn + 40, self.now
        for _ in range(self.random.randint(0, 3)):
            self.now += datetime.timedelta(seconds=self.random.randint(1, 20))
            self._append("")
        self._advance(300)
        stop = self.lsn
        self._switch_segment()
        self.now += datetime.timedelta(seconds=1)
        prior = self.backups[-1] if incremental and self.backups else None
        label = f"{len(self.backups):03}{'I' if prior else 'F'}"
        self.backups.append(
            BaseBackup(
                id=label,
                type="Incremental" if prior else "Full",
                start=started,
                stop=self.now,
                timeline=self.live.number,
                start_lsn=start,
                stop_lsn=stop,
                depends_on=(*prior.depends_on, prior.id) if prior else (),
            )
        )

    def _advance(self, length: int) -> None:
        for number in range(SIZE.number(self.lsn), SIZE.number(self.lsn + length)):
            self.archived.add(Segment(self.live.number, number))
        self.lsn += length

    def _switch_segment(self) -> None:
        number = SIZE.number(self.lsn)
        if self.lsn > SIZE.start(number):
            self.archived.add(Segment(self.live.number, number))
            self.lsn = SIZE.start(number + 1)

    def _floor(self) -> int:
        """The position that no promotion goes behind: the start of the live timeline."""
        return max(self.live.ancestors[-1].end if self.live.ancestors else 0, 2 * SIZE.bytes)


class HistoryEvidence:
    """What the content of archived segments shows; only archived segments are read."""

    def __init__(self, history: History) -> None:
        self._history = history

    def begin(self, timeline: int) -> datetime.datetime | None:
        live = next(each for each in self._history.timelines if each.number == timeline)
        return live.begin if live.ancestors else None

    def last_commit(self, segments: Iterator[Segment]) -> datetime.datetime | None:
        found = (commits(self._records(segment)) for segment in segments)
        return next((records[-1].time for records in found if records), None)

    def restore_point(self, segments: Iterator[Segment], name: str) -> int | None:
        for segment in segments:
            for record in reversed(self._records(segment)):
                if record.name == name:
                    return record.lsn - RECORD_BYTES
        return None

    def _records(self, segment: Segment) -> list[Record]:
        assert segment in self._history.archived
        live = next(each for each in self._history.timelines if each.number == segment.timeline)
        return [record for record in live.records if SIZE.number(record.lsn - 1) == segment.number]


def commits(records: list[Record]) -> list[Record]:
    """Return the records that are commits."""
    return [record for record in records if not record.name]


def replayed_to(replayed: list[Record], plan: RecoveryPlan) -> bool:
    """Return True if the data are consistent: a stop before the end of the backup is a failure."""
    return plan.backup.stop <= plan.target.time if isinstance(plan.target, AtTime) else bool(replayed)
