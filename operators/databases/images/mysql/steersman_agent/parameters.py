"""The declared parameters, brought to a server that runs and kept there: with the operator away, too."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

from .group import LocalServer, Unreachable

_READ_ONLY = 1238  # ER_INCORRECT_GLOBAL_LOCAL_VAR: it is taken at a start alone
_UNKNOWN = 1193  # ER_UNKNOWN_SYSTEM_VARIABLE
_WRONG_TYPE = 1232  # ER_WRONG_TYPE_FOR_VAR
_UNITS = "KMGTPE"
_EVERY = 10.0  # seconds between two looks at what the server has
_MOVED = frozenset({"innodb_thread_sleep_delay"})
"""What InnoDB adapts itself, below `innodb_adaptive_max_sleep_delay`."""


@dataclass
class Parameters:
    """What of the declared parameters the running server has.

    `image` is what a server has where nothing is declared. `pending` are those that wait for a restart, each with the
    running and the declared value; `refused` those that the server does not take, each with its words. `restored` are
    those that somebody else had set last, and when they were set as declared again; `stays` those that could not be.
    """

    local: LocalServer
    image: Mapping[str, str]
    pending: dict[str, Sequence[str]] = field(default_factory=dict[str, Sequence[str]])
    refused: dict[str, str] = field(default_factory=dict[str, str])
    restored: Mapping[str, str | Sequence[str]] | None = None
    stays: Mapping[str, str] = field(default_factory=dict[str, str])
    _running: dict[str, str] = field(default_factory=dict[str, str])
    _declared: Mapping[str, str] = field(default_factory=dict[str, str])
    _shown: dict[str, str] = field(default_factory=dict[str, str])
    _looked: float | None = None

    def started(self, declared: Mapping[str, str], refused: Mapping[str, str]) -> None:
        """The server has been started with these, those left out that it would have refused."""
        self.pending, self.refused = {}, dict(refused)
        self._running = {name: value for name, value in declared.items() if name not in refused}
        self._declared, self._shown, self._looked = declared, {}, None

    def apply(self, declared: Mapping[str, str]) -> None:
        """Give the server what has changed. Raises Unreachable, and goes on from there the next time."""
        for name in sorted({*declared, *self._declared}):
            if declared.get(name) != self._declared.get(name):
                self._looked = None
                self._apply(name, declared.get(name))
        self._declared = declared

    def restore(self) -> Sequence[str]:
        """Set as declared what somebody else has set; the names of what is so again. Raises Unreachable.

        A server rounds and writes values in its own way: what it shows after a start or a change is what it has to
        show.
        """
        if self._looked is not None and time.monotonic() < self._looked + _EVERY:
            return []
        shown = self.local.values_of(self._running.keys() - _MOVED)
        others = sorted(name for name, value in shown.items() if self._shown.get(name, value) != value)
        # Twice: one may be held in bounds by another.
        tried = {name: self._restore(name) for name in (*others, *others)}
        given = self.local.values_of(others)
        taken = [name for name in others if given.get(name) == self._shown[name]]
        # Without a word where it is busy with the last, or held in bounds by what nobody declares: it is tried again.
        self.stays = {name: tried[name] or f"it is {given.get(name)}" for name in others if name not in taken}
        if taken and self._looked is not None:
            self.restored = {"time": datetime.now(UTC).isoformat(timespec="seconds"), "parameters": taken}
        self._shown = {**shown, **{name: self._shown[name] for name in others}}
        self._looked = time.monotonic()
        return taken

    def _restore(self, name: str) -> str:
        """Why it cannot be set, in the server's words."""
        try:
            self._set(name, self._running[name])
        except Unreachable as error:
            if not error.answered:
                raise
            return error.words
        return ""

    def _apply(self, name: str, value: str | None) -> None:
        self.pending.pop(name, None)
        self.refused.pop(name, None)
        if value == self._running.get(name):
            return
        wanted = self.image.get(name) if value is None else value
        try:
            self._set(name, wanted)
        except Unreachable as error:
            if not error.answered:
                raise
            if error.code == _READ_ONLY:
                self.pending[name] = [self.local.value_of(name), "the default" if wanted is None else wanted]
            elif error.code == _UNKNOWN and name in self._running:
                # An option of the start that is no variable, and cannot be taken away either.
                self.pending[name] = [self._running[name], "the default" if wanted is None else wanted]
            elif value is not None:
                self.refused[name] = error.words
        else:
            self._running.pop(name, None)
            self._shown.pop(name, None)
            if value is not None:
                self._running[name] = value

    def _set(self, name: str, value: str | None) -> None:
        number = None if value is None else number_of(value)
        try:
            self.local.adjust(name, value if number is None else number)
        except Unreachable as error:
            if error.code != _WRONG_TYPE or number is None:
                raise
            self.local.adjust(name, value)


def number_of(value: str) -> int | float | None:
    """What SQL has to be given for what a file may have with a unit: `128M`."""
    if found := re.fullmatch(rf"([+-]?\d+)([{_UNITS}]?)", value.strip(), re.IGNORECASE):
        return int(found[1]) * 1024 ** (_UNITS.find(found[2].upper()) + 1 if found[2] else 0)
    if re.fullmatch(r"[+-]?\d*\.\d+", value.strip()):
        return float(value)
    return None
