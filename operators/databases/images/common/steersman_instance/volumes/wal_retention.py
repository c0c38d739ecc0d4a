"""Causes of retained WAL: replication slots, and files for the archive."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from ..archive.report import read_local, segment_bytes
from ..metrics.catalog import CollectFailed, SessionLost
from ..paths import InstancePaths

INTERVAL_SECONDS = 10.0
_LEAST_PART = 0.2
"""Least part of the used bytes for a cause."""
_SLOTS = """
    SELECT slot_name AS name, active,
        pg_wal_lsn_diff(CASE WHEN pg_is_in_recovery() THEN pg_last_wal_replay_lsn()
            ELSE pg_current_wal_lsn() END, restart_lsn)::bigint AS retained
    FROM pg_replication_slots WHERE restart_lsn IS NOT NULL ORDER BY 3 DESC NULLS LAST LIMIT 1
"""


@dataclass(frozen=True)
class Retainer:
    """A slot or archive that retains WAL.

    Attributes:
        name: as a noun phrase.
        size: bytes.
        detail: state, or "".
    """

    name: str
    size: int
    detail: str = ""

    @property
    def amount(self) -> str:
        """The retained amount with the state."""
        return f"{self.size / (1 << 30):.1f} GiB WAL{f' ({self.detail})' if self.detail else ''}"


class WalRetention:
    """Inspects the server and its files.

    It has a thread of its own, since a full server may not respond.

    Args:
        connect: opens a session with `rows` and `close`. It raises `SessionLost`.
    """

    def __init__(self, paths: InstancePaths, connect: Callable[[], Any]) -> None:
        self._paths, self._connect = paths, connect
        self._slot: Retainer | None = None
        self._archive: Retainer | None = None
        self.needed = False

    def largest(self, used: int) -> Retainer | None:
        """Return the largest cause.

        None if it retains a small part of the used bytes.
        """
        found = [each for each in (self._slot, self._archive) if each is not None]
        largest = max(found, key=lambda each: each.size, default=None)
        return largest if largest is not None and largest.size >= _LEAST_PART * used else None

    def run(self, stop: threading.Event) -> None:
        """Inspect while the result is needed, until `stop` is set."""
        while not stop.wait(INTERVAL_SECONDS):
            if self.needed:
                self.inspect()

    def inspect(self) -> None:
        """Inspect once. Without a response of the server, the last one counts."""
        try:
            self._slot = self._largest_slot()
        except (SessionLost, CollectFailed) as error:
            sys.stderr.write(f"volumes: replication slots cannot be inspected: {error}\n")
        try:
            self._archive = self._waiting_files()
        except OSError as error:
            sys.stderr.write(f"volumes: files for the archive cannot be inspected: {error}\n")

    def _largest_slot(self) -> Retainer | None:
        session = self._connect()
        try:
            rows: Sequence[Any] = session.rows(_SLOTS)
        finally:
            session.close()
        if not rows or rows[0]["retained"] is None:
            return None
        detail = "" if rows[0]["active"] else "no client uses it"
        return Retainer(f"replication slot {rows[0]['name']}", int(rows[0]["retained"]), detail)

    def _waiting_files(self) -> Retainer | None:
        local = read_local(self._paths)
        if not local.waiting:
            return None
        return Retainer("the archive", local.waiting * segment_bytes(self._paths), local.message[:128])
