"""Differences between stored and declared parameters, for Events."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, cast

RECORD_KEY = "steersman"
"""Key of the operator's record next to the settings.

Patroni uses the keys that it knows, and keeps others. Source: patroni/config.py of 4.1.5,
Config._safe_copy_dynamic_configuration.
"""
TRIAL_KEY = "trial"
"""Key of the trial in the record."""
_MAX_LISTED = 10  # changed parameters in one Event


def change_message(stored: Mapping[str, Any], settings: Mapping[str, Any]) -> str:
    """Return an Event's message about changed parameters.

    It contains no values, because they are not for all readers of Events.
    """
    names = sorted(_changed_parameters(stored, settings)) if stored else []
    listed = ", ".join(names[:_MAX_LISTED]) + (
        f" and {len(names) - _MAX_LISTED} more" if len(names) > _MAX_LISTED else ""
    )
    return "updated the settings of all members" + (f": {listed}" if listed else "")


def _changed_parameters(stored: Mapping[str, Any], settings: Mapping[str, Any], place: str = "") -> Iterator[str]:
    for name in {*stored, *settings} - {RECORD_KEY}:
        previous, desired = stored.get(name), settings.get(name)
        if isinstance(previous, dict) and isinstance(desired, dict):
            inside = cast(Mapping[str, Any], previous), cast(Mapping[str, Any], desired)
            yield from _changed_parameters(*inside, f"{place}{name}.")
        elif previous != desired:
            yield f"{place}{name}"
