"""Choice of the backup and the timeline of a recovery. Pure: the archive's content comes in as values.

pgBackRest chooses a backup by its time alone, and PostgreSQL chooses the newest timeline. Both end on the wrong
branch once a failover or a recovery abandoned a timeline. So the plan names the backup, the timeline and the target.

1. The timeline is the one that was current at the target. A commit's position on it is evidence, clocks are not.
2. A backup is usable if the timeline descends from it: it ended before the lineage left the backup's timeline.
3. The usable backup that ended last is taken.
4. All WAL from its start to the target must be in the archive.
5. A target that the archive does not reach is refused with the time of the last commit.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from ..backup.catalog import BaseBackup
from .target import AtLsn, AtName, AtTime, Latest, Target, format_time
from .timelines import Lineage, Timelines, Walk
from .wal import DEFAULT_SEGMENT_SIZE, Segment, SegmentRanges, SegmentSize, format_lsn


class RecoveryRefused(Exception):
    """The recovery is impossible, and another attempt changes nothing.

    Args:
        reason: such as ``TargetNotReached``.
        message: one sentence for users.
    """

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message


class WalEvidence(Protocol):
    """Facts that only the content of WAL has. Each may read segments from the archive."""

    def begin(self, timeline: int) -> datetime.datetime | None:
        """Return the start of a timeline, or None.

        The clock is that of the promoted server.
        """
        ...

    def last_commit(self, segments: Iterator[Segment]) -> datetime.datetime | None:
        """Return the last commit or abort time of newest-first segments."""
        ...

    def restore_point(self, segments: Iterator[Segment], name: str) -> int | None:
        """Return the newest position of a restore point's name.

        Segments come newest first.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Archive:
    """Content of an archive."""

    backups: Sequence[BaseBackup]
    timelines: Timelines
    segments: SegmentRanges
    size: SegmentSize = DEFAULT_SEGMENT_SIZE


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoveryPlan:
    """A recovery, with nothing left to defaults.

    Args:
        timeline: target timeline.
        target: a name is resolved to its position.
        through: a recovery to the end of the archive must replay this segment; None if there is none.
    """

    backup: BaseBackup
    timeline: int
    target: Latest | AtTime | AtLsn
    through: int | None = None


def plan_recovery(
    archive: Archive,
    evidence: WalEvidence,
    target: Target,
    *,
    timeline: int | None = None,
    backup_id: str | None = None,
) -> RecoveryPlan:
    """Choose the backup and the timeline that lead to a target.

    Args:
        timeline: Defaults to the one of the lineage.
        backup_id: Defaults to the chosen one.

    Raises:
        RecoveryRefused: the archive has no way to the target.
    """
    return _Planner(archive, evidence, backup_id).plan(target, timeline)


def segments_of(archive: Archive, plan: RecoveryPlan) -> Sequence[Segment]:
    """Return the gapless WAL of a plan, newest segment first."""
    lineage = archive.timelines.lineage(plan.timeline)
    first = archive.size.number(plan.backup.start_lsn)
    return list(_newest_first(lineage.walk(archive.segments, archive.size, plan.backup.timeline, first)))


class _Planner:
    def __init__(self, archive: Archive, evidence: WalEvidence, backup_id: str | None) -> None:
        self._archive = archive
        self._evidence = evidence
        self._pinned = backup_id is not None
        self._backups = [backup for backup in archive.backups if backup_id in (None, backup.id)]
        if not archive.backups:
            raise RecoveryRefused("NoUsableBackup", "The archive has no complete backup.")
        if not self._backups:
            raise RecoveryRefused("NoUsableBackup", f"The archive has no backup {backup_id}.")

    def plan(self, target: Target, timeline: int | None) -> RecoveryPlan:
        """Return the plan of a target."""
        if timeline is not None and timeline not in self._archive.timelines.known:
            raise RecoveryRefused("NoUsableBackup", f"The archive has no timeline {timeline}.")
        if isinstance(target, AtTime):
            lineage = self._lineage(timeline or self._timeline_at(target.time))
            return self._to_time(lineage, target)
        lineage = self._lineage(timeline or self._newest())
        if isinstance(target, AtName):
            target = self._resolve(lineage, target)
        return self._to_lsn(lineage, target) if isinstance(target, AtLsn) else self._to_end(lineage)

    def _to_end(self, lineage: Lineage) -> RecoveryPlan:
        backup = self._choose(lineage, self._backups)
        walk = self._walk(lineage, backup)
        if walk.missing is not None:
            raise self._missing(walk)
        reached = walk.segments[-1][0].timeline if walk.segments else backup.timeline
        # The end of the WAL that the lineage shares may exist only as the parent's segment, which has more than that.
        if walk.ends_in.timeline != reached and Segment(reached, walk.ends_in.number) in self._archive.segments:
            raise self._missing(walk)
        through = walk.segments[-1][1] if walk.segments else None
        return RecoveryPlan(backup=backup, timeline=reached, target=Latest(), through=through)

    def _to_time(self, lineage: Lineage, target: AtTime) -> RecoveryPlan:
        finished = [backup for backup in self._backups if backup.stop <= target.time]
        if not finished:
            first = min(self._backups, key=lambda backup: backup.stop)
            raise RecoveryRefused(
                "NoUsableBackup",
                f"Backup {first.id}{'' if self._pinned else ', the first of the archive,'} ends at "
                f"{format_time(first.stop)}, after the target {format_time(target.time)}. Choose a later target.",
            )
        backup = self._choose(lineage, finished)
        walk = self._walk(lineage, backup)
        last = self._evidence.last_commit(_newest_first(walk))
        if last is None or last <= target.time:
            if walk.missing is not None:
                raise self._missing(walk, last)
            reached = f"The last transaction in the archive on timeline {lineage.timeline} "
            reached += f"ended at {format_time(last)}" if last else f"is older than backup {backup.id}"
            raise RecoveryRefused(
                "TargetNotReached",
                f"{reached}, so the target {format_time(target.time)} is not reached. "
                "Choose an earlier time, or the target latest.",
            )
        return RecoveryPlan(backup=backup, timeline=lineage.timeline, target=target)

    def _to_lsn(self, lineage: Lineage, target: AtLsn) -> RecoveryPlan:
        before = [backup for backup in self._backups if backup.stop_lsn <= target.lsn]
        if not before:
            first = min(self._backups, key=lambda backup: backup.stop_lsn)
            raise RecoveryRefused(
                "NoUsableBackup",
                f"Backup {first.id} ends at {format_lsn(first.stop_lsn)}, after the target {format_lsn(target.lsn)}. "
                "Choose a later target.",
            )
        backup = self._choose(lineage, before)
        walk = self._walk(lineage, backup)
        number = self._archive.size.number(target.lsn)
        for segment, last in walk.segments:
            if segment.number <= number <= last:
                return RecoveryPlan(backup=backup, timeline=segment.timeline, target=target)
        if walk.missing is not None:
            raise self._missing(walk)
        end = format_lsn(self._archive.size.start(walk.ends_in.number))
        commit = self._evidence.last_commit(_newest_first(walk))
        raise RecoveryRefused(
            "TargetNotReached",
            f"The archive ends at {end}{_with_commit(commit)}, before the target {format_lsn(target.lsn)}.",
        )

    def _resolve(self, lineage: Lineage, target: AtName) -> AtLsn:
        """Return the position of a restore point. The newest backups are searched first, since WAL is large."""
        scanned: set[Segment] = set()
        commit: datetime.datetime | None = None
        usable = [backup for backup in self._backups if lineage.contains(backup.timeline, backup.stop_lsn)]
        for backup in sorted(usable, key=lambda backup: backup.stop_lsn, reverse=True):
            walk = self._walk(lineage, backup)
            segments = [segment for segment in _newest_first(walk) if segment not in scanned]
            scanned.update(segments)
            commit = commit or self._evidence.last_commit(iter(segments))
            position = self._evidence.restore_point(iter(segments), target.name)
            if position is not None:
                return AtLsn(position)
        raise RecoveryRefused(
            "TargetNotReached",
            f"The archive has no restore point {target.name!r} on timeline {lineage.timeline}"
            f"{_with_commit(commit)}. Check the name.",
        )

    def _lineage(self, timeline: int) -> Lineage:
        return self._archive.timelines.lineage(timeline)

    def _newest(self) -> int:
        """Return the newest timeline, or the newest descendant of a backup."""
        timelines = self._archive.timelines
        if self._pinned:
            backup = self._backups[0]
            for number in sorted(timelines.known, reverse=True):
                if timelines.lineage(number).contains(backup.timeline, backup.stop_lsn):
                    return number
        return timelines.newest or self._backups[0].timeline

    def _timeline_at(self, time: datetime.datetime) -> int:
        """Return the timeline to follow to a time.

        It is the last one that began before it, or its continuation.
        """
        live = 1
        for live in sorted(self._archive.timelines.known, reverse=True):
            begin = self._evidence.begin(live)
            if begin is None or begin <= time:
                break
        return self._continuation(live) or live

    def _continuation(self, live: int) -> int | None:
        """Return the timeline that has the end of this one's WAL.

        The last segment of a timeline is rarely complete when the next begins. Then only the segment in which the
        next timeline begins has the rest of it.
        """
        archive = self._archive
        own = archive.segments.newest(live)
        best: tuple[int, int] | None = None
        for descendant in sorted(archive.timelines.known):
            lineage = archive.timelines.lineage(descendant)
            end = next((span.end for span in lineage.spans[:-1] if span.timeline == live), None)
            number = archive.size.number(end) if end is not None else -1
            if end is None or (own is not None and number <= own) or (best is not None and end <= best[0]):
                continue
            walk = lineage.walk(archive.segments, archive.size, live, number)
            if walk.segments and walk.segments[0][0].number == number:
                best = end, walk.segments[0][0].timeline
        return best[1] if best else None

    def _choose(self, lineage: Lineage, backups: Sequence[BaseBackup]) -> BaseBackup:
        """Return the backup of the lineage that ended last."""
        usable = [backup for backup in backups if lineage.contains(backup.timeline, backup.stop_lsn)]
        if usable:
            return max(usable, key=lambda backup: (backup.stop_lsn, backup.start))
        timelines = self._archive.timelines
        if not timelines.has_history(lineage.timeline):
            raise RecoveryRefused(
                "WALMissing",
                f"{lineage.timeline:08X}.history is missing in the archive, so no backup is known to lead to "
                f"timeline {lineage.timeline}.",
            )
        newest = max(backups, key=lambda backup: backup.stop)
        raise RecoveryRefused(
            "NoUsableBackup",
            f"No backup before the target leads to timeline {lineage.timeline}: backup {newest.id} ends at "
            f"{format_lsn(newest.stop_lsn)} of timeline {newest.timeline}, which was abandoned before. "
            "Choose a target after the next backup, or name a timeline.",
        )

    def _walk(self, lineage: Lineage, backup: BaseBackup) -> Walk:
        """Return the gapless WAL from a backup on. Raises RecoveryRefused if the backup itself lacks WAL."""
        archive = self._archive
        first = archive.size.number(backup.start_lsn)
        walk = lineage.walk(archive.segments, archive.size, backup.timeline, first)
        if backup.offline:
            # The backup has the segment that it ends in.
            if not walk.segments:
                walk = lineage.walk(archive.segments, archive.size, backup.timeline, first + 1)
            return walk
        covered = walk.segments and walk.segments[-1][1] >= archive.size.number(backup.stop_lsn - 1)
        if not covered:
            raise self._missing(replace(walk, missing=walk.missing or walk.ends_in))
        return walk

    def _missing(self, walk: Walk, commit: datetime.datetime | None = None) -> RecoveryRefused:
        name = self._archive.size.name(walk.missing or walk.ends_in)
        commit = commit or self._evidence.last_commit(_newest_first(walk))
        hint = f" The archive is complete up to {format_time(commit)}: choose an earlier time." if commit else ""
        return RecoveryRefused("WALMissing", f"WAL segment {name} is missing in the archive.{hint}")


def _newest_first(walk: Walk) -> Iterator[Segment]:
    for segment, last in reversed(walk.segments):
        for number in range(last, segment.number - 1, -1):
            yield Segment(segment.timeline, number)


def _with_commit(commit: datetime.datetime | None) -> str:
    return f"; its last transaction ended at {format_time(commit)}" if commit else ""
