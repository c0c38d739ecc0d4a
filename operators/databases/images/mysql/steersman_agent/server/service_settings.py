"""System variables that shut out clients, reset on a serving member.

Nothing in the cluster sets them on an online member, except Group Replication during an election.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ..group.group_status import LocalServer, ServerStatus

_RESTORE_AFTER_SECONDS = 10.0
_ELECTION_QUERY = (
    "SELECT COUNT(*) FROM performance_schema.threads WHERE NAME LIKE 'thread/group\\_rpl/THD\\_primary\\_election%'"
    " OR NAME LIKE 'thread/group\\_rpl/THD\\_transaction\\_monitor%'"
)
"""Threads of Group Replication that exist while the primary changes."""


@dataclass
class ServiceSettings:
    """Variables of this pod's server. `image` has the image's parameters."""

    local: LocalServer
    image: Mapping[str, str]
    _deviating: Mapping[str, int | str] = field(default_factory=dict[str, int | str])
    _since: float = 0.0

    def restore(self, status: ServerStatus) -> Sequence[str]:
        """Reset variables with another value since 10 s, and return them. Raises ServerQueryFailed."""
        if status.state != "ONLINE" or not status.has_majority:
            self._deviating = {}
            return ()
        needed = self._needed(status)
        variables = ", ".join(f"@@GLOBAL.{name}" for name in needed)
        [found] = self.local.kept_rows(f"SELECT {variables}")
        deviating = {name: needed[name] for name, value in zip(needed, found, strict=True) if value != needed[name]}
        if deviating != self._deviating or (deviating and self.local.kept_rows(_ELECTION_QUERY)[0][0]):
            self._deviating, self._since = deviating, time.monotonic()
        if not deviating or time.monotonic() < self._since + _RESTORE_AFTER_SECONDS:
            return ()
        for name, value in deviating.items():
            self.local.set_global_kept(name, value)
        self._deviating = {}
        return sorted(deviating)

    def _needed(self, status: ServerStatus) -> Mapping[str, int | str]:
        read_only = 0 if status.is_primary else 1
        return {
            "offline_mode": 0,
            "init_connect": self.image.get("init_connect", ""),
            "super_read_only": read_only,
            "read_only": read_only,
        }
