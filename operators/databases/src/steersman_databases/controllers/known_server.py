"""What is known of one server: who wants what there, what was seen last, and whether it answers."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Iterable
from dataclasses import dataclass, field

from steersman.controller import Channel
from steersman.meta import ObjectKey
from steersman.observability.runtime import Runtime
from steersman_databases.controllers.drift import Desired
from steersman_databases.controllers.servers import Located
from steersman_databases.engines.errors import EngineError
from steersman_databases.engines.port import Contents
from steersman_databases.engines.server import Credentials
from steersman_databases.engines.sessions import Sessions
from steersman_databases.engines.survey import Scope, Survey

# The longest with its jitter, and the time to the next look that nobody asks for, are less than 30 s.
_FIRST_PAUSE, _LONGEST_PAUSE = 2.0, 20.0
# Of the controllers' workers: a server that hangs must leave enough of them for the others. So for one that has not
# answered yet, or not since it failed, a single one waits. No more than get their share of its few sessions in time.
_MOST_AT_WORK = 16


@dataclass(slots=True)
class Interest:
    """What one object wants on a server, and whom to tell when that is no longer so."""

    desired: tuple[Desired, ...]
    tell: Channel
    unseen: set[str] | None = None
    """Databases that were not looked inside of since it was settled; None: it is compared with what was there before.

    What was undone and has come back in the meantime looks as it did before.
    """

    def is_first_seen(self, visited: Iterable[str], latest: Survey) -> bool:
        """Whether a look that visited these databases is the first, since it was settled, to show all it wants."""
        if self.unseen is None:
            return False
        self.unseen.difference_update(visited)
        if self.unseen & latest.databases.keys():
            return False
        self.unseen = None
        return True


@dataclass(slots=True)
class KnownServer:
    """What is known of one server."""

    located: Located
    sessions: Sessions
    interests: dict[tuple[str, ObjectKey], Interest] = field(default_factory=dict[tuple[str, ObjectKey], Interest])
    asked: dict[asyncio.Future[Survey], Scope] = field(default_factory=dict[asyncio.Future[Survey], Scope])
    looking: asyncio.Task[None] | None = None
    latest: Survey | None = None
    answers: bool = False
    failure: EngineError | None = None
    pause: float = _FIRST_PAUSE
    not_before: float = 0.0
    next_doubt: float = -math.inf
    turn: int = 0
    visited: dict[str, int] = field(default_factory=dict[str, int])
    """Databases, and in which turn each was looked inside of last; 0 is never."""
    working: int = 0
    parked: dict[tuple[str, ObjectKey], None] = field(default_factory=dict[tuple[str, ObjectKey], None])
    watching: asyncio.Task[None] | None = None
    due: float | None = None
    tried: dict[Credentials, float] = field(default_factory=dict[Credentials, float])
    """When a login with them was last taken, or told nothing."""
    kept: set[Credentials] = field(default_factory=set[Credentials])
    """Of them, those that opened, or that were set."""

    @property
    def contents(self) -> Contents:
        return self.located.contents

    @property
    def places(self) -> int:
        """For so many more there is a place at work."""
        return (_MOST_AT_WORK if self.answers else 1) - self.working

    def succeeded(self) -> None:
        """It has just answered."""
        self.answers, self.failure, self.pause, self.not_before = True, None, _FIRST_PAUSE, 0.0

    def failed(self, error: EngineError, runtime: Runtime) -> bool:
        """It has just not answered; whether that is news. Until `not_before` nobody asks it again."""
        now, first = runtime.clock.monotonic(), self.failure is None
        if not first and now < self.not_before:
            return False
        self.answers, self.failure = False, error
        self.not_before = now + self.pause * (0.9 + 0.2 * runtime.random.random())
        self.pause = min(self.pause * 2, _LONGEST_PAUSE)
        return first
