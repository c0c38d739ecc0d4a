"""Programs that Jobs run on the volumes of instances: recovery and final backup."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

SOURCE_SYSTEM = "system-of-source"
"""System identifier of recovered data."""


@dataclass
class FakePrograms:
    """Results of the programs, and what they did."""

    recovery_failure: tuple[str, str] | None = None
    """Reason and message of a recovery that fails. It succeeds where this is None."""
    final_backup_failure: tuple[str, str] | None = None
    """The same of a final backup."""
    lost_reports: int = 0
    """Number of Jobs whose pods are deleted before anybody reads their report."""
    recovered: list[str] = field(default_factory=list[str])
    """PVCs that were recovered."""
    final_backups: list[str] = field(default_factory=list[str])
    """System identifiers of the data that final backups hold."""
    needs_final_backup: bool = False
    """True if no volume may go before a final backup is complete."""

    def recover(self, pvc: str) -> tuple[str, int]:
        """Return the report of a recovery and its exit code."""
        if self.recovery_failure is not None:
            return _failed(*self.recovery_failure)
        self.recovered.append(pvc)
        recovery = {"backup": "20261128-100000F", "recoveredTo": "2026-11-28T10:30:00Z", "timeline": 3}
        return json.dumps({"ok": True, "recovery": recovery}), 0

    def final_backup(self, system: str) -> tuple[str, int]:
        """Return the report of a final backup and its exit code."""
        if self.final_backup_failure is not None:
            return _failed(*self.final_backup_failure)
        self.final_backups.append(system)
        backup: dict[str, Any] = {
            "id": "20261128-100000F_20261128-110000I",
            "type": "Incremental",
            "start": "2026-11-28T11:00:00Z",
            "stop": "2026-11-28T11:00:05Z",
            "timeline": 1,
            "startLSN": "0/3000028",
            "stopLSN": "0/3000100",
            "size": 33554432,
            "stored": 1048576,
            "dependsOn": ["20261128-100000F"],
        }
        return json.dumps({"ok": True, "backup": backup}), 0


def _failed(reason: str, message: str) -> tuple[str, int]:
    return json.dumps({"ok": False, "reason": reason, "message": message}), 3
