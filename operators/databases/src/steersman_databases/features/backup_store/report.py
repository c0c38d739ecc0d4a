"""Result of a probe, as the probe process returns it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, cast

REACHABLE = "Reachable"
MAX_REPORT_BYTES = 64 * 1024
_MAX_TEXT = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeReport:
    """Result of a probe.

    Attributes:
        reason: ``Reachable``, or the reason of the problem.
        message: one sentence about the problem that names the field; empty if there is none.
        clock_skew_seconds: clock of the object store minus the operator's; None if unknown.
        locked_days: days for which new objects are locked; 0 for none, None if unknown.
    """

    reason: str = REACHABLE
    message: str = ""
    clock_skew_seconds: int | None = None
    locked_days: int | None = None

    @property
    def ok(self) -> bool:
        """True if the object store can be used."""
        return self.reason == REACHABLE

    def to_json(self) -> str:
        """Return the report as one line."""
        return json.dumps(asdict(self))


def parse_report(content: bytes) -> ProbeReport:
    """Parse the output of the probe process.

    Raises:
        ValueError: the output is not a report.
    """
    document: Any = json.loads(content)
    if not isinstance(document, dict):
        raise ValueError("not a report")
    fields = cast("Mapping[str, Any]", document)
    reason, message = fields.get("reason"), fields.get("message")
    if not isinstance(reason, str) or not reason or not isinstance(message, str):
        raise ValueError("not a report")
    return ProbeReport(
        reason=reason,
        message=message[:_MAX_TEXT],
        clock_skew_seconds=_number(fields.get("clock_skew_seconds")),
        locked_days=_number(fields.get("locked_days")),
    )


def _number(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None
