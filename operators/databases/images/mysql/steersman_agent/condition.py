"""How a member fares beside its state: what it has not applied, and how full its volume is."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from steersman_pod.volumes import levels

from .group import Look

_STUCK = 30.0  # seconds in which nothing was applied of what waits: nobody should read here any more
_HOPELESS = 100_000  # transactions that wait
_TELLING = 100  # transactions: fewer are none for those who read of them
_PIECE = 16 << 20  # bytes without which a server cannot be sure to go on
_EVERY = 5.0  # seconds between two looks at files


@dataclass
class Applying:
    """Whether a replica keeps up with what it receives."""

    _applied: int = -1
    _since: float = 0.0
    _queued: int = 0

    def see(self, look: Look | None) -> None:
        """The next look at the server."""
        now = time.monotonic()
        self._queued = 0 if look is None else look.queued
        if look is None or look.applied != self._applied or not look.queued:
            self._applied, self._since = -1 if look is None else look.applied, now

    @property
    def behind(self) -> str:
        """Why nobody should read here; empty where all is well."""
        if self._queued >= _HOPELESS:
            return f"more than {self.queued} transactions wait to be applied"
        if self._queued and time.monotonic() > self._since + _STUCK:
            return f"transactions wait, and for {_STUCK:.0f} s none was applied"
        return ""

    @property
    def queued(self) -> int:
        """How many wait, in powers of ten: a number that is written down must not change each second."""
        return 10 ** (len(str(self._queued)) - 1) if self._queued >= _TELLING else 0


@dataclass
class Volumes:
    """How full they are, in steps."""

    paths: Mapping[str, Path]
    levels: Mapping[str, int] = field(default_factory=dict[str, int])
    _at: float = 0.0

    def see(self) -> Mapping[str, int]:
        """Looks again from time to time."""
        if time.monotonic() > self._at + _EVERY:
            self._at, self.levels = time.monotonic(), levels(self.paths, self.levels, _PIECE)
        return self.levels
