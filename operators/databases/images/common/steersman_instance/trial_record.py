"""Record of a trial in the settings of all members."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, cast

GRACE = timedelta(minutes=2)
"""Time after its end in which the operator ends a trial. It also knows the verdict."""
_RECORD = "steersman"
_MESSAGE = "the operator did not end it in time, so an instance restored the previous value"


def read_settings(file: Path) -> Mapping[str, Any]:
    """Return the member's copy of the shared configuration. It is empty without one."""
    try:
        parsed: object = json.loads(file.read_text())
    except (OSError, ValueError):
        return {}
    return cast(Mapping[str, Any], parsed) if isinstance(parsed, dict) else {}


def trial_of(settings: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the trial, or nothing."""
    record = settings.get(_RECORD)
    trial: object = cast(Mapping[str, Any], record).get("trial") if isinstance(record, dict) else None
    return cast(Mapping[str, Any], trial) if isinstance(trial, dict) else {}


def is_running(settings: Mapping[str, Any]) -> bool:
    """Return True if a trial has begun and not ended."""
    trial = trial_of(settings)
    return bool(trial) and "verdict" not in trial


def is_overdue(settings: Mapping[str, Any], now: datetime) -> bool:
    """Return True if a trial still runs after its time."""
    trial = trial_of(settings)
    try:
        until = datetime.fromisoformat(str(trial["until"]))
    except (KeyError, ValueError):
        return False
    return is_running(settings) and until.tzinfo is not None and now >= until + GRACE


def without_trial(settings: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the settings with the previous value and an ended trial."""
    trial, server = trial_of(settings), settings.get("postgresql", {})
    name, former = trial["parameter"], trial.get("former")
    parameters = {**server.get("parameters", {}), name: former}
    if former is None:
        del parameters[name]
    record = {**settings[_RECORD], "trial": {**trial, "verdict": "Unclear", "message": _MESSAGE}}
    return {**settings, "postgresql": {**server, "parameters": parameters}, _RECORD: record}
