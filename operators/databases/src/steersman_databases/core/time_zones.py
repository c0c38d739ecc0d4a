"""Time zones of the IANA database."""

from __future__ import annotations

from zoneinfo import ZoneInfo


class InvalidTimeZone(ValueError):
    """A name that is not in the IANA database."""


def load_time_zone(name: str) -> ZoneInfo:
    """Return a time zone by its name, such as Europe/Berlin.

    Raises:
        InvalidTimeZone: the database has no time zone of this name.
    """
    try:
        return ZoneInfo(name)
    # ZoneInfoNotFoundError is a KeyError. The name of a directory gives an OSError.
    except (KeyError, OSError, ValueError):
        raise InvalidTimeZone(f"{name} is not a time zone. Use a name such as Europe/Berlin") from None
