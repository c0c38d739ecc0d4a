"""Trial of a parameter, recorded next to the settings of the members.

The record and the value are written by one request. The agent of each instance reads the record, and ends a trial
that the operator did not end: images/common/steersman_instance/trial.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, cast, get_args

from steersman_databases.api.autopilot.tuning import VerdictKind


@dataclass(frozen=True, slots=True, kw_only=True)
class ParameterTrial:
    """A trial that has begun.

    Attributes:
        value: tried value.
        until: end of the trial.
        former: value without the trial. None for the default of the server.
        verdict: result of an ended trial. None while the trial runs.
        message: measurements, or the cause of the end.
    """

    parameter: str
    value: str
    until: datetime
    former: str | None = None
    verdict: VerdictKind | None = None
    message: str = ""

    def to_record(self) -> Mapping[str, str | None]:
        """Return the record for the settings."""
        ended = {} if self.verdict is None else {"verdict": self.verdict, "message": self.message}
        named = {"parameter": self.parameter, "value": self.value}
        return {**named, "former": self.former, "until": self.until.isoformat(), **ended}

    @classmethod
    def from_record(cls, record: object) -> ParameterTrial | None:
        """Parse a record. Return None if there is none, or if it is malformed."""
        if not isinstance(record, dict):
            return None
        found = cast(Mapping[str, Any], record)
        former, verdict = found.get("former"), found.get("verdict")
        try:
            until = datetime.fromisoformat(str(found["until"]))
            named = {"parameter": str(found["parameter"]), "value": str(found["value"])}
        except (KeyError, ValueError):
            return None
        if until.tzinfo is None or verdict not in (None, *get_args(VerdictKind)):
            return None
        former = None if former is None else str(former)
        return cls(**named, until=until, former=former, verdict=verdict, message=str(found.get("message", "")))

    def is_same(self, other: ParameterTrial) -> bool:
        """Return True if both are the same declaration."""
        return (self.parameter, self.value, self.until) == (other.parameter, other.value, other.until)
