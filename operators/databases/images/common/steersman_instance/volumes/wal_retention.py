"""Causes of retained WAL: replication slots, and files for the archive."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..archive.report import read_local, segment_bytes
from ..metrics.catalog import CollectFailed, SessionLost
from ..paths import InstancePaths

INTERVAL_SECONDS = 10.0
_LEAST_PART = 0.2
"""Least part of the used bytes for a cause."""
_SLOTS = """
    SELECT slot_name AS name, active, concat_ws(' ', restart_lsn, confirmed_flush_lsn) AS position,
        pg_wal_lsn_diff(CASE WHEN pg_is_in_recovery() THEN pg_last_wal_replay_lsn()
            ELSE pg_current_wal_lsn() END, restart_lsn)::bigint AS retained
    FROM pg_replication_slots WHERE restart_lsn IS NOT NULL ORDER BY 3 DESC NULLS LAST LIMIT 64
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


@dataclass(frozen=True)
class InactiveSlot:
    """A slot without a client.

    Attributes:
        size: bytes of WAL that it retains.
        since: seconds since the epoch at which this process first observed it without a client at its position. A
            client that connects for moments only moves the slot.
    """

    name: str
    size: int
    since: int


class WalRetention:
    """Inspects the server and its files.

    It has a thread of its own, since a full server may not respond.

    Args:
        connect: opens a session with `rows` and `close`. It raises `SessionLost`.
        clock: seconds since the epoch.
    """

    def __init__(
        self, paths: InstancePaths, connect: Callable[[], Any], clock: Callable[[], float] = time.time
    ) -> None:
        self._paths, self._connect, self._clock = paths, connect, clock
        self._inactive: Mapping[str, InactiveSlot] = {}
        self._positions: Mapping[str, str] = {}
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

    def inactive_slot(self, used: int) -> InactiveSlot | None:
        """Return the slot without a client that retains most.

        None if it retains a small part of the used bytes.
        """
        largest = max(self._inactive.values(), key=lambda each: each.size, default=None)
        return largest if largest is not None and largest.size >= _LEAST_PART * used else None

    def run(self, stop: threading.Event) -> None:
        """Inspect while the result is needed, until `stop` is set."""
        while not stop.wait(INTERVAL_SECONDS):
            if self.needed:
                self.inspect()
            else:
                self._inactive = {}

    def inspect(self) -> None:
        """Inspect once. Without a response of the server, the last one counts.

        A slot may be used meanwhile, so that its inactivity is observed from the start.
        """
        try:
            self._inspect_slots()
        except (SessionLost, CollectFailed) as error:
            self._inactive = {}
            sys.stderr.write(f"volumes: replication slots cannot be inspected: {error}\n")
        try:
            self._archive = self._waiting_files()
        except OSError as error:
            sys.stderr.write(f"volumes: files for the archive cannot be inspected: {error}\n")

    def _inspect_slots(self) -> None:
        session = self._connect()
        try:
            rows: Sequence[Any] = session.rows(_SLOTS)
        finally:
            session.close()
        slots = [row for row in rows if row["retained"] is not None]
        inactive = [
            InactiveSlot(row["name"], int(row["retained"]), self._since(row)) for row in slots if not row["active"]
        ]
        self._inactive = {slot.name: slot for slot in inactive}
        self._positions = {row["name"]: row["position"] for row in slots}
        self._slot = _retainer(slots[0]) if slots else None

    def _since(self, row: Mapping[str, Any]) -> int:
        known = self._inactive.get(row["name"])
        has_moved = self._positions.get(row["name"]) != row["position"]
        return int(self._clock()) if known is None or has_moved else known.since

    def _waiting_files(self) -> Retainer | None:
        local = read_local(self._paths)
        if not local.waiting:
            return None
        return Retainer("the archive", local.waiting * segment_bytes(self._paths), local.message[:128])


def _retainer(row: Mapping[str, Any]) -> Retainer:
    detail = "" if row["active"] else "no client uses it"
    return Retainer(f"replication slot {row['name']}", int(row["retained"]), detail)
