"""Decisions about replicas that stream and receive nothing. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal

from steersman_databases.engines.members import Member

STUCK_AFTER = timedelta(minutes=2)
"""Time after which a replica is stuck.

The server itself ends a silent connection after `wal_receiver_timeout`, 60 s.
"""
RESTART_AFTER = timedelta(minutes=5)
GIVE_UP_AFTER = timedelta(minutes=10)
_RETRY_AFTER = timedelta(minutes=1)

Cure = Literal["EndReceiver", "RestartServer"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Stall:
    """A replica that does not advance although the primary has more WAL.

    Attributes:
        position: end of its WAL.
        since: time of the first observation of this position.
        cured_at: time of the last attempt.
        restarted: its server was restarted.
    """

    position: int
    since: datetime
    cured_at: datetime | None = None
    restarted: bool = False


def observe(previous: Stall | None, member: Member, now: datetime) -> Stall | None:
    """Return the stall of a replica, or None.

    It has none if it advances, has all WAL, or does not stream.
    """
    position = member.wal_position if member.state == "Streaming" else None
    if position is None:
        return None
    return previous if previous is not None and previous.position == position else Stall(position=position, since=now)


def cure(stall: Stall, now: datetime) -> Cure | None:
    """Return what to do now.

    The receiver is ended each minute, then the server is restarted once.
    """
    age = now - stall.since
    if age < STUCK_AFTER or stall.restarted or age >= GIVE_UP_AFTER:
        return None
    if age >= RESTART_AFTER:
        return "RestartServer"
    recently = stall.cured_at is not None and now - stall.cured_at < _RETRY_AFTER
    return None if recently else "EndReceiver"
