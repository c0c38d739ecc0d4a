"""Messages of a standby that needs a new copy.

Source: PostgreSQL 15 and 17, src/backend/replication/walsender.c, walreceiver.c, src/backend/access/transam
(xlogrecovery.c, timeline.c).
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_HOPELESS = re.compile(
    r"requested WAL segment \S+ has already been removed"
    r"|requested starting point \S+ on timeline \d+ is not in this server's history"
    r"|requested starting point \S+ is ahead of the WAL flush position"
    r"|new timeline \d+ forked off current database system timeline \d+ before current recovery point"
    r"|highest timeline \d+ of the primary is behind recovery timeline"
    r"|requested timeline \d+ is not a child of this server's history"
    r"|requested timeline \d+ does not contain minimum recovery point"
    r"|database system identifier differs between the primary and standby"
    r"|can no longer (?:get changes from|access) replication slot"
    r"|could not locate (?:a valid|required) checkpoint record"
)
_CONFIRMATION_SECONDS = 15.0
"""Time for which a standby may report such a message.

During a failover it may reach the previous primary for a moment.
"""


@dataclass(slots=True)
class Diagnosis:
    """Decides from the server's messages whether a new copy is needed. Times are in seconds."""

    _first_at: float | None = None
    _message: str = ""
    _confirmed: bool = False

    def read(self, line: str, now: float) -> None:
        """Evaluate a line of the server's logs."""
        found = _HOPELESS.search(line)
        if found is None:
            return
        self._message = found[0]
        if self._first_at is None:
            self._first_at = now
        elif now - self._first_at >= _CONFIRMATION_SECONDS:
            self._confirmed = True

    def streams(self) -> None:
        """Forget all messages: the server follows the primary."""
        self._first_at, self._message, self._confirmed = None, "", False

    @property
    def verdict(self) -> str:
        """Return why a new copy is needed, or ""."""
        return self._message if self._confirmed else ""

    @property
    def message(self) -> str:
        """Last such message, confirmed or not."""
        return self._message
