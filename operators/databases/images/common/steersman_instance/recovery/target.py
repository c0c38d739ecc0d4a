"""The point that a recovery ends at."""

from __future__ import annotations

import datetime
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from .wal import InvalidWalName, parse_lsn

MAX_NAME_LENGTH = 63  # of a restore point: MAXFNAMELEN of PostgreSQL less its end
_FRACTION = re.compile(r"\.(\d{6})\d+")


class InvalidTarget(ValueError):
    """The target of a recovery is malformed. The message names the field."""


@dataclass(frozen=True, slots=True)
class Latest:
    """The end of the archive."""


@dataclass(frozen=True, slots=True)
class AtTime:
    """The last transaction that was committed at or before a time."""

    time: datetime.datetime


@dataclass(frozen=True, slots=True)
class AtLsn:
    """The first record at or after a position, which is replayed."""

    lsn: int


@dataclass(frozen=True, slots=True)
class AtName:
    """The newest restore point of a name."""

    name: str


Target = Latest | AtTime | AtLsn | AtName


def parse_target(fields: Mapping[str, Any]) -> Target:
    """Return the target of ``spec.bootstrap.recovery``.

    It is exactly one of latest, time, lsn and name.

    Raises:
        InvalidTarget: none or several are set, or the value is malformed.
    """
    given = [name for name in ("latest", "time", "lsn", "name") if fields.get(name) is not None]
    if len(given) != 1:
        raise InvalidTarget("target must have exactly one of latest, time, lsn and name")
    value: Any = fields[given[0]]
    if given[0] == "latest":
        return Latest()
    if not isinstance(value, str):
        raise InvalidTarget(f"target.{given[0]} must be a string")
    if given[0] == "time":
        return AtTime(parse_time(value))
    if given[0] == "lsn":
        try:
            return AtLsn(parse_lsn(value))
        except InvalidWalName as error:
            raise InvalidTarget(f"target.lsn: {error}") from None
    if not 0 < len(value) <= MAX_NAME_LENGTH:
        raise InvalidTarget(f"target.name must have 1 to {MAX_NAME_LENGTH} characters")
    return AtName(value)


def parse_time(text: str) -> datetime.datetime:
    """Return a time of RFC 3339 in UTC, with microseconds.

    Raises:
        InvalidTarget: the text is not RFC 3339, or has no offset.
    """
    try:
        time = datetime.datetime.fromisoformat(_FRACTION.sub(r".\1", text))
    except ValueError:
        raise InvalidTarget(f"target.time {text[:40]!r} is not RFC 3339, for example 2026-05-01T12:00:00Z") from None
    if time.tzinfo is None:
        raise InvalidTarget("target.time must have an offset: add Z for UTC")
    return time.astimezone(datetime.UTC)


def format_time(time: datetime.datetime) -> str:
    """Return a time as RFC 3339 in UTC. Microseconds appear only if there are any."""
    return time.astimezone(datetime.UTC).isoformat().replace("+00:00", "Z")
