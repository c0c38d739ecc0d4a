"""Choice of backup and chunks for a MySQL recovery. Pure.

File names of binary logs differ between members, and a position means nothing on another server. So continuity is
arithmetic on GTID sets: a chunk may follow a set of transactions that contains everything before it.

The plan follows the newest session. Transactions that only an abandoned primary had are in no set that leads there.
After a restore in place or a forced recovery the plan follows the history that was served at the target.
"""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from ..binlog.chunks import ChunkHeader
from ..gtids import NO_GTIDS, GtidSet
from .plan import RecoveryRefused
from .target import AtTime, InvalidTarget, Latest, format_time, parse_target


@dataclass(frozen=True, slots=True)
class BeforeGtid:
    """The last transaction before the first of a set."""

    gtids: GtidSet


@dataclass(frozen=True, slots=True)
class ThroughGtid:
    """The last transaction of a set."""

    gtids: GtidSet


GtidTarget = Latest | AtTime | BeforeGtid | ThroughGtid


@dataclass(frozen=True, slots=True, kw_only=True)
class GtidBackup:
    """A base backup.

    Args:
        stop: when it was complete, by the clock of the server that was copied. Every transaction in it is older.
        gtids: transactions that it contains.
    """

    id: str
    stop: datetime.datetime
    gtids: GtidSet


@dataclass(frozen=True, slots=True, kw_only=True)
class GtidPlan:
    """A recovery: restore the backup, then apply chunks up to the target.

    Args:
        chunks: the target's cut is in the last one, if it is in any.
        reached: transactions that are there after all chunks.
        history: transactions that may be applied. Others are of an abandoned primary.
    """

    backup: GtidBackup
    chunks: Sequence[ChunkHeader]
    target: GtidTarget
    reached: GtidSet
    history: GtidSet


def parse_gtid_target(fields: Mapping[str, Any]) -> GtidTarget:
    """Return the target of a MySQL recovery.

    It is exactly one of latest, time and gtid.

    Raises:
        InvalidTarget: none or several are set, or the value is malformed.
    """
    gtid: Any = fields.get("gtid")
    if gtid is None:
        found = parse_target(fields)
        if isinstance(found, GtidTarget):
            return found
        raise InvalidTarget("target must have exactly one of latest, time and gtid")
    bounds = cast("dict[str, Any]", gtid) if isinstance(gtid, dict) else {}
    given = [name for name in ("before", "through") if bounds.get(name)]
    if len(given) != 1 or any(fields.get(name) is not None for name in ("latest", "time")):
        raise InvalidTarget("target.gtid must have exactly one of before and through")
    try:
        gtids = GtidSet.parse(str(bounds[given[0]]))
    except ValueError:
        raise InvalidTarget(f"target.gtid.{given[0]} is not a GTID set") from None
    if not gtids:
        raise InvalidTarget(f"target.gtid.{given[0]} is empty")
    return BeforeGtid(gtids) if given[0] == "before" else ThroughGtid(gtids)


def plan_gtid_recovery(
    backups: Sequence[GtidBackup],
    chunks: Sequence[ChunkHeader],
    newest: ChunkHeader | None,
    target: GtidTarget,
    *,
    backup_id: str | None = None,
) -> GtidPlan:
    """Choose the backup with the most transactions that leads to a target.

    Args:
        chunks: of all sessions, in any order.
        newest: the last chunk of the newest session; None if there are no chunks.
        backup_id: Defaults to the chosen one.

    Raises:
        RecoveryRefused: the archive has no way to the target.
    """
    if not backups:
        raise RecoveryRefused("NoUsableBackup", "The archive has no complete backup.")
    found = [backup for backup in backups if backup_id in (None, backup.id)]
    if not found:
        raise RecoveryRefused("NoUsableBackup", f"The archive has no backup {backup_id}.")
    end = newest.after if newest is not None else NO_GTIDS
    usable = [backup for backup in found if _precedes(backup, target)]
    if not usable:
        raise RecoveryRefused("NoUsableBackup", _too_early(found, target))
    # A backup that has transactions of another lineage leads elsewhere. One beyond the end of the log is its own end.
    on_lineage = [backup for backup in usable if end >= backup.gtids or backup.gtids >= end]
    if not on_lineage:
        raise RecoveryRefused("NoUsableBackup", "No backup belongs to the newest history of the archive.")
    refusal: RecoveryRefused | None = None
    for backup in sorted(on_lineage, key=lambda backup: (len(backup.gtids), backup.stop, backup.id), reverse=True):
        try:
            return _plan_from(backup, backups, chunks, end | backup.gtids, target)
        except RecoveryRefused as error:
            # The newest backup needs the least log, so its refusal says most.
            refusal = refusal or error
    assert refusal is not None
    raise refusal


def served_end(ends: Sequence[ChunkHeader], newest: ChunkHeader | None, target: GtidTarget) -> ChunkHeader | None:
    """Return the end of the history that was served at a target.

    Args:
        ends: the last chunk of each session, by the start of the session.
        newest: the last chunk of the newest session. It is the result, unless its history begins after the target.
    """
    served: ChunkHeader | None = None
    for end in ends:
        match target:
            case AtTime(time):
                was_served = _session_start(end.session) <= time
            case BeforeGtid(gtids) | ThroughGtid(gtids):
                was_served = end.after >= gtids
            case Latest():
                return newest
        if was_served or (served is not None and end.after >= served.after):
            served = end
    if newest is None or served is None or newest.after >= served.after:
        return newest
    # A failover continues the group. Only another group gives up transactions that were served.
    return newest if served.after.sources == newest.after.sources else served


def chain(start: GtidSet, end: GtidSet, chunks: Sequence[ChunkHeader]) -> tuple[list[ChunkHeader], GtidSet]:
    """Return the chunks between two sets, and the set they reach.

    Every chunk follows a set that contains all transactions before it, so none is applied across a gap. Transactions
    outside of ``end`` are those of an abandoned primary: chunks may have them, and a recovery leaves them out.
    """
    reached, found = start, list[ChunkHeader]()
    waiting = [chunk for chunk in chunks if not start >= chunk.after & end]
    waiting.sort(key=lambda chunk: (chunk.session, chunk.number))
    while True:
        left: list[ChunkHeader] = []
        for chunk in waiting:
            if reached >= chunk.after & end:
                continue
            if reached >= chunk.before & end:
                found.append(chunk)
                reached |= chunk.after & end
            else:
                left.append(chunk)
        if len(left) == len(waiting) or not left:
            return found, reached
        waiting = left


def complete(chunks: Sequence[ChunkHeader]) -> list[ChunkHeader]:
    """Return the chunks of a session that can be applied.

    A transaction may span several. If one of them is missing, the others are of no use.
    """
    numbers = {chunk.number for chunk in chunks}
    return [chunk for chunk in chunks if numbers.issuperset(range(chunk.starts_in, chunk.number))]


def _plan_from(
    backup: GtidBackup,
    backups: Sequence[GtidBackup],
    chunks: Sequence[ChunkHeader],
    end: GtidSet,
    target: GtidTarget,
) -> GtidPlan:
    found, reached = chain(backup.gtids, end, chunks)
    used, covered = _until(target, found, backup.gtids, end)
    if used is None:
        if end - reached and not _is_reached(target, found):
            missing = end - reached - contents(chunks)
            last = max((chunk.last for chunk in found), default=0)
            until = format_time(commit_time(last)) if last else format_time(backup.stop)
            raise RecoveryRefused(
                "BinaryLogMissing",
                f"The archive lacks {len(missing)} transactions after backup {backup.id}: {short_gtids(missing)}."
                f" Recovery from it is possible until {until}.",
            )
        used = _whole(target, found, backup, backups, reached)
        covered = reached
    return GtidPlan(backup=backup, chunks=used, target=target, reached=covered, history=end)


def _is_reached(target: GtidTarget, found: Sequence[ChunkHeader]) -> bool:
    """Return True if the target is the last commit before a gap. The refusal of a later time names it."""
    return isinstance(target, AtTime) and target.time <= commit_time(max((chunk.last for chunk in found), default=0))


def contents(chunks: Sequence[ChunkHeader]) -> GtidSet:
    """Return the transactions that chunks have themselves."""
    found = NO_GTIDS
    for chunk in chunks:
        found |= chunk.after - chunk.before
    return found


def _until(
    target: GtidTarget, found: Sequence[ChunkHeader], start: GtidSet, end: GtidSet
) -> tuple[list[ChunkHeader] | None, GtidSet]:
    """Return the chunks up to the target, and the reached set.

    None if no chunk has the target.
    """
    reached = start
    for position, chunk in enumerate(found):
        following = reached | chunk.after & end
        match target:
            case AtTime(time):
                cuts = chunk.last > _microseconds(time)
            case BeforeGtid(gtids):
                cuts = bool((following - reached) & gtids)
            case ThroughGtid(gtids):
                cuts = following >= gtids and not reached >= gtids
            case Latest():
                cuts = False
        reached = following
        if cuts:
            return list(found[: position + 1]), reached
    return None, reached


def _whole(
    target: GtidTarget,
    found: Sequence[ChunkHeader],
    backup: GtidBackup,
    backups: Sequence[GtidBackup],
    reached: GtidSet,
) -> list[ChunkHeader]:
    """Return all chunks where the target is the end of the archive. Raises RecoveryRefused."""
    last = commit_time(max((chunk.last for chunk in found), default=0))
    match target:
        case Latest():
            return list(found)
        case AtTime(time):
            # A later backup without another transaction proves that nothing was committed until it was made.
            proofs = [each.stop for each in backups if reached >= each.gtids and each.gtids >= reached]
            until = max([last, *proofs])
            if time <= until:
                return list(found)
            end = format_time(until)
            raise RecoveryRefused(
                "TargetNotReached",
                f"The last archived commit is of {end}, before the target {format_time(time)}."
                " Choose an earlier time, or target.latest.",
            )
        case ThroughGtid(gtids) if backup.gtids >= gtids and reached == gtids:
            return list(found)
        case BeforeGtid(gtids) | ThroughGtid(gtids):
            raise RecoveryRefused(
                "TargetNotReached",
                f"The archive ends before {short_gtids(gtids - reached or gtids)}."
                f" Its last commit is of {format_time(max(last, backup.stop))}.",
            )


def _precedes(backup: GtidBackup, target: GtidTarget) -> bool:
    match target:
        case Latest():
            return True
        case AtTime(time):
            return backup.stop <= time
        case BeforeGtid(gtids):
            return not backup.gtids & gtids
        case ThroughGtid(gtids):
            return not backup.gtids >= gtids or backup.gtids == gtids


def _too_early(backups: Sequence[GtidBackup], target: GtidTarget) -> str:
    first = min(backups, key=lambda backup: backup.stop)
    if isinstance(target, AtTime):
        return (
            f"The first recovery point is {format_time(first.stop)}, after the target {format_time(target.time)}."
            " Choose a later time."
        )
    return "Every backup already contains the target transactions. Choose a later target."


def short_gtids(gtids: GtidSet) -> str:
    """Return a set for a message, cut where it is long."""
    text = str(gtids)
    return text if len(text) <= 200 else f"{text[:200]}…"


def _microseconds(time: datetime.datetime) -> int:
    epoch = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
    return (time - epoch) // datetime.timedelta(microseconds=1)


def commit_time(microseconds: int) -> datetime.datetime:
    """Return the time of a commit in microseconds since 1970."""
    return datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC) + datetime.timedelta(microseconds=microseconds)


def _session_start(session: str) -> datetime.datetime:
    """Return the time in a session's name. Without one it counts as old."""
    try:
        return datetime.datetime.strptime(session[:16], "%Y%m%dT%H%M%SZ").replace(tzinfo=datetime.UTC)
    except ValueError:
        return datetime.datetime.min.replace(tzinfo=datetime.UTC)
