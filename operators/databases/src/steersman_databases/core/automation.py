"""Entries of `status.automation` that the functions of a reconcile report."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import get_args

from steersman_databases.api.autopilot.automation import AutomationName, AutomationStatus


@dataclass(slots=True)
class AutomationReport:
    """Entries of one reconcile. A function that did not run keeps its previous entry."""

    _entries: dict[AutomationName, AutomationStatus | None] = field(
        default_factory=dict[AutomationName, AutomationStatus | None]
    )

    def record(self, names: Iterable[AutomationName], entries: Iterable[AutomationStatus]) -> None:
        """Replace the entries of these functions. One without an entry is not declared, and disappears."""
        self._entries |= dict.fromkeys(names)
        self._entries |= {entry.name: entry for entry in entries}

    def merged(self, previous: Iterable[AutomationStatus]) -> tuple[AutomationStatus, ...]:
        """Return the entries for the status, in the order of `AutomationName`."""
        entries = {entry.name: entry for entry in previous} | self._entries
        return tuple(entry for name in get_args(AutomationName) if (entry := entries.get(name)) is not None)
