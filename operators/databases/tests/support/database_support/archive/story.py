"""A primary whose rows say when they were written."""

from __future__ import annotations

from dataclasses import dataclass, field

from database_support.archive.archived_server import ArchivedPostgreSQL


@dataclass
class Story:
    """Positions and times right after named rows."""

    server: ArchivedPostgreSQL
    lsn: dict[str, str] = field(default_factory=dict[str, str])
    time: dict[str, str] = field(default_factory=dict[str, str])

    def mark(self, name: str) -> None:
        self.lsn[name] = self.server.mark(name)
        self.time[name] = self.server.now()
