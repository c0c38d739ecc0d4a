"""Durations and result of a verification."""

from __future__ import annotations

import datetime
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from ..archive.errors import ArchiveError
from ..jobs import JobFailed, JobRefused
from ..recovery.target import format_time

Phase = Literal["restore", "replay", "check"]

UNREADABLE = frozenset({"ArchiveDamaged", "ArchiveFailed", "WrongEncryptionKey"})
"""Reasons of an `ArchiveError` that mean damage.

They do so where the rest of the archive could be read.
"""


@dataclass(slots=True)
class Measurement:
    """Measures the phases of a verification. The first one begins with the object.

    Args:
        clock: monotonic seconds.
    """

    started: datetime.datetime = field(default_factory=lambda: datetime.datetime.now(datetime.UTC))
    clock: Callable[[], float] = time.monotonic
    _ends: dict[Phase, float] = field(default_factory=dict[Phase, float])
    _begin: float = 0.0

    def __post_init__(self) -> None:
        self._begin = self.clock()

    def end(self, phase: Phase) -> None:
        """End a phase."""
        self._ends[phase] = self.clock()

    def has_ended(self, phase: Phase) -> bool:
        """Return True if a phase has ended."""
        return phase in self._ends

    def result(
        self, backup: str, recovered_to: datetime.datetime, *, tables: int, rows: int
    ) -> Mapping[str, Mapping[str, object]]:
        """Return the result of the Job. All phases have ended.

        Args:
            recovered_to: the last restored commit.
            tables: that were checked.
            rows: that were counted.
        """
        restored, replayed, checked = (self._ends[phase] - self._begin for phase in ("restore", "replay", "check"))
        return {
            "verification": {
                "backup": backup,
                "recoveredTo": format_time(recovered_to),
                "dataLossSeconds": max(round((self.started - recovered_to).total_seconds()), 0),
                "restoreSeconds": round(restored),
                "replaySeconds": round(replayed - restored),
                "checkSeconds": round(checked - replayed),
                "recoverySeconds": round(replayed),
                "tables": tables,
                "rows": rows,
            }
        }


def unreadable_object(error: ArchiveError) -> Exception:
    """Return the failure of a restore that could not read an object.

    The rest of the archive could be read, so garbage is damage. A failure without a known cause is tried again.
    """
    if error.reason not in UNREADABLE or error.code < 0:
        return error
    detail = error.detail or error.message.rstrip(".")
    failure = JobFailed if error.reason == "ArchiveFailed" else JobRefused
    return failure("ArchiveDamaged", f"An object of the backup or the archive is damaged or missing: {detail}.")


def damaged(message: str) -> JobFailed:
    """Return the failure for damaged data."""
    return JobRefused("DataDamaged", f"{message.rstrip('.')}.")
