"""Ages in the format of kubectl.

Source: ``k8s.io/apimachinery/pkg/util/duration`` of Kubernetes 1.36.
"""

from __future__ import annotations

from datetime import datetime, timedelta

_MINUTE, _HOUR, _DAY, _YEAR = 60, 3600, 86_400, 365 * 86_400
# Upper limit of the age, first unit, second unit.
_SCALES = (
    (2 * _MINUTE, 1, 0),
    (10 * _MINUTE, _MINUTE, 1),
    (3 * _HOUR, _MINUTE, 0),
    (8 * _HOUR, _HOUR, _MINUTE),
    (2 * _DAY, _HOUR, 0),
    (8 * _DAY, _DAY, _HOUR),
    (2 * _YEAR, _DAY, 0),
    (8 * _YEAR, _YEAR, _DAY),
)
_UNIT_SUFFIXES = {1: "s", _MINUTE: "m", _HOUR: "h", _DAY: "d", _YEAR: "y"}


def human_duration(duration: timedelta) -> str:
    """Format a duration such as ``5m10s``."""
    exact = duration.total_seconds()
    if exact <= -2:
        return "<invalid>"
    seconds = max(0, int(exact))
    unit, rest = next(((u, r) for limit, u, r in _SCALES if seconds < limit), (_YEAR, 0))
    text = f"{seconds // unit}{_UNIT_SUFFIXES[unit]}"
    remainder = seconds % unit // rest if rest else 0
    return f"{text}{remainder}{_UNIT_SUFFIXES[rest]}" if remainder else text


def human_age(timestamp: str | None, now: datetime, *, invalid: str = "<unknown>") -> str:
    """Format the age of a timestamp at ``now``."""
    if not timestamp:
        return "<unknown>"
    try:
        parsed_time = datetime.fromisoformat(timestamp)
    except ValueError:
        return invalid
    return invalid if parsed_time.tzinfo is None else human_duration(now - parsed_time)
