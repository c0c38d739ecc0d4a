"""Choice of the backups that retention removes. Pure.

The window says how far back a recovery can go: each moment in it needs a backup that ended before, with everything
that this one depends on.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from ..recovery.timelines import Lineage
from .catalog import BaseBackup


@dataclass(frozen=True, slots=True, kw_only=True)
class RetentionPolicy:
    """Retention of backups.

    Args:
        window: recovery is possible to each moment of this duration before the last complete backup.
        minimum_full: full backups that are kept however old they are.
    """

    window: datetime.timedelta
    minimum_full: int


def expirable(
    backups: Sequence[BaseBackup],
    policy: RetentionPolicy,
    now: datetime.datetime,
    *,
    lineage: Lineage | None = None,
    retain_until: Mapping[str, datetime.datetime | None] | None = None,
) -> tuple[str, ...]:
    """Return the backups to remove, newest first.

    So no backup is removed before its dependants.

    The window ends at the last complete backup. So failing backups never shorten it, and the last one always stays.
    Final backups stay until a time in ``retain_until``.

    Args:
        backups: all complete backups of the archive.
        lineage: of the newest timeline. Without it, backups of abandoned timelines count like any other.
        retain_until: by id; None is forever.
    """
    kept = needed(backups, policy, now, lineage)
    held = retain_until or {}
    for backup in backups:
        until = held.get(backup.id, None if backup.trigger == "Final" else now)
        if until is None or until > now:
            kept |= {backup.id, *backup.depends_on}
    ordered = sorted(backups, key=lambda backup: (backup.start, backup.id), reverse=True)
    return tuple(backup.id for backup in ordered if backup.id not in kept)


def needed(
    backups: Sequence[BaseBackup], policy: RetentionPolicy, now: datetime.datetime, lineage: Lineage | None = None
) -> set[str]:
    """Return the backups that window or minimum need, with dependencies."""
    sound = [backup for backup in backups if not backup.damaged]
    # Where every backup has damaged pages they are better than nothing.
    counted = sorted(sound or backups, key=lambda backup: (backup.stop, backup.id))
    if not counted:
        return set()
    begin = min(now, counted[-1].stop) - policy.window
    within = [backup for backup in backups if backup.stop > begin]
    older = [backup for backup in counted if backup.stop <= begin]
    # A backup of an abandoned timeline leads to moments of that timeline only.
    followed = [backup for backup in older if lineage and lineage.contains(backup.timeline, backup.stop_lsn)]
    before = (*older[-1:], *followed[-1:])
    full = [backup for backup in counted if backup.type == "Full"][-max(policy.minimum_full, 1) :]
    return {each for backup in (*within, *before, *full, counted[-1]) for each in (backup.id, *backup.depends_on)}


def with_dependants(backup_id: str, backups: Iterable[BaseBackup]) -> tuple[str, ...]:
    """Return a backup and its dependants, newest first.

    They can only be removed together.
    """
    found = [backup for backup in backups if backup.id == backup_id or backup_id in backup.depends_on]
    return tuple(backup.id for backup in sorted(found, key=lambda backup: (backup.start, backup.id), reverse=True))
