"""Errant transactions of a member. Only a user may give them up."""

from __future__ import annotations

import contextlib
from pathlib import Path

from .decision import GroupView


class ErrantTransactions:
    """Record of errant transactions in a file on the volume.

    A stopped server cannot be queried. `errant` are certain errant transactions. `has_any` includes possible ones.
    """

    def __init__(self, file: Path) -> None:
        self._file = file
        self.errant = ""
        self.has_any = file.exists()

    def update(self, view: GroupView) -> None:
        """Update the record from a view."""
        if view.group_executed is not None:
            self.errant = str(view.errant_gtids)
            self._store(str(view.errant_candidates))
        elif view.own.state == "Online":
            self.clear()

    def clear(self) -> None:
        """Record that it has only transactions of the group."""
        self.errant = ""
        self._store("")

    def _store(self, unknown: str) -> None:
        if self.has_any != bool(unknown):
            # On a full volume the write fails. Then only this process remembers it.
            with contextlib.suppress(OSError):
                self._file.write_text(f"{unknown}\n") if unknown else self._file.unlink(missing_ok=True)
        self.has_any = bool(unknown)
