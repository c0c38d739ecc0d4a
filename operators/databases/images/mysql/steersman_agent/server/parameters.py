"""Declared parameters of a running server, applied and kept without the operator."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

from ..group.group_status import LocalServer, ServerQueryFailed

_READ_ONLY = 1238  # ER_INCORRECT_GLOBAL_LOCAL_VAR: it takes effect only at a start
_UNKNOWN = 1193  # ER_UNKNOWN_SYSTEM_VARIABLE
_WRONG_TYPE = 1232  # ER_WRONG_TYPE_FOR_VAR
_UNITS = "KMGTPE"
_CHECK_INTERVAL_SECONDS = 10.0  # seconds between two inspections of the values
_SELF_ADJUSTING = frozenset({"innodb_thread_sleep_delay"})
"""Variable that InnoDB adapts, below `innodb_adaptive_max_sleep_delay`."""


@dataclass
class ParameterSync:
    """State of the declared parameters on the running server.

    Attributes:
        image: the image's values, which apply without a declaration.
        pending: running and declared value of parameters that wait for a restart.
        rejected: error message of parameters that the server refused.
        restored: parameters that users had set last, and the time of their reset.
        unchangeable: parameters that could not be reset.
    """

    local: LocalServer
    image: Mapping[str, str]
    pending: dict[str, Sequence[str]] = field(default_factory=dict[str, Sequence[str]])
    rejected: dict[str, str] = field(default_factory=dict[str, str])
    restored: Mapping[str, str | Sequence[str]] | None = None
    unchangeable: Mapping[str, str] = field(default_factory=dict[str, str])
    _running: dict[str, str] = field(default_factory=dict[str, str])
    _declared: Mapping[str, str] = field(default_factory=dict[str, str])
    _effective: dict[str, str] = field(default_factory=dict[str, str])
    _checked_at: float | None = None

    def record_start(self, declared: Mapping[str, str], rejected: Mapping[str, str]) -> None:
        """Record the values of a start, without the rejected parameters."""
        self.pending, self.rejected = {}, dict(rejected)
        self._running = {name: value for name, value in declared.items() if name not in rejected}
        self._declared, self._effective, self._checked_at = declared, {}, None

    def apply(self, declared: Mapping[str, str]) -> None:
        """Apply changes to the server. Raises ServerQueryFailed.

        The next call continues after an error.
        """
        for name in sorted({*declared, *self._declared}):
            if declared.get(name) != self._declared.get(name):
                self._checked_at = None
                self._apply(name, declared.get(name))
        self._declared = declared

    def restore(self) -> Sequence[str]:
        """Reset values that users have set, and return the reset parameters.

        A server rounds and formats values. So the values after a start or a change are the reference. Raises
        ServerQueryFailed.
        """
        if self._checked_at is not None and time.monotonic() < self._checked_at + _CHECK_INTERVAL_SECONDS:
            return []
        shown = self.local.values_of(self._running.keys() - _SELF_ADJUSTING)
        others = sorted(name for name, value in shown.items() if self._effective.get(name, value) != value)
        # Twice, because one value may limit another.
        tried = {name: self._restore(name) for name in (*others, *others)}
        given = self.local.values_of(others)
        taken = [name for name in others if given.get(name) == self._effective[name]]
        # Without a message if the server is still busy, or another value limits this one. It is tried again.
        self.unchangeable = {name: tried[name] or f"it is {given.get(name)}" for name in others if name not in taken}
        if taken and self._checked_at is not None:
            self.record_restored(taken)
        self._effective = {**shown, **{name: self._effective[name] for name in others}}
        self._checked_at = time.monotonic()
        return taken

    def record_restored(self, names: Sequence[str]) -> None:
        """Record that variables were reset now."""
        self.restored = {"time": datetime.now(UTC).isoformat(timespec="seconds"), "parameters": names}

    def _restore(self, name: str) -> str:
        """Reset a variable, and return the server's error message or ""."""
        try:
            self._set(name, self._running[name])
        except ServerQueryFailed as error:
            if not error.has_responded:
                raise
            return error.message
        return ""

    def _apply(self, name: str, value: str | None) -> None:
        self.pending.pop(name, None)
        self.rejected.pop(name, None)
        if value == self._running.get(name):
            return
        desired = self.image.get(name) if value is None else value
        try:
            self._set(name, desired)
        except ServerQueryFailed as error:
            if not error.has_responded:
                raise
            if error.code == _READ_ONLY:
                self.pending[name] = [self.local.value_of(name), "the default" if desired is None else desired]
            elif error.code == _UNKNOWN and name in self._running:
                # A start option that is not a variable, so that it cannot be reset.
                self.pending[name] = [self._running[name], "the default" if desired is None else desired]
            elif value is not None:
                self.rejected[name] = error.message
        else:
            self._running.pop(name, None)
            self._effective.pop(name, None)
            if value is not None:
                self._running[name] = value

    def _set(self, name: str, value: str | None) -> None:
        number = None if value is None else number_of(value)
        try:
            self.local.set_global_kept(name, value if number is None else number)
        except ServerQueryFailed as error:
            if error.code != _WRONG_TYPE or number is None:
                raise
            self.local.set_global_kept(name, value)


def number_of(value: str) -> int | float | None:
    """Return the number for SQL of a value such as `128M`."""
    if found := re.fullmatch(rf"([+-]?\d+)([{_UNITS}]?)", value.strip(), re.IGNORECASE):
        return int(found[1]) * 1024 ** (_UNITS.find(found[2].upper()) + 1 if found[2] else 0)
    if re.fullmatch(r"[+-]?\d*\.\d+", value.strip()):
        return float(value)
    return None
