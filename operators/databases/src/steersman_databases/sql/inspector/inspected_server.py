"""State of an inspected server: subscriptions, last inspection, reachability."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from steersman.controller import Channel
from steersman.meta import ObjectKey
from steersman.observability.runtime import Runtime
from steersman_databases.engines.connection.pool import ServerSessions
from steersman_databases.engines.errors import EngineError
from steersman_databases.engines.server import SqlCredentials
from steersman_databases.engines.sql.inspection import Inspection, InspectionScope
from steersman_databases.engines.sql.sql_engine import SqlEngine
from steersman_databases.sql.inspector.sql_drift import Desired
from steersman_databases.sql.server_resolver import ResolvedServer

# The longest delay with jitter plus the time to the next poll is less than 30 s.
_FIRST_BACKOFF_SECONDS, _MAX_BACKOFF_SECONDS = 2.0, 20.0
# Limit of workers per server: an unresponsive server must leave enough for the others. So only one worker waits for a
# server that has not responded yet, or not since it failed. More workers would not get one of its few sessions in
# time.
_MAX_CONCURRENT = 16


@dataclass(slots=True)
class DriftSubscription:
    """Desired state of one object, and the channel for its drift."""

    desired: tuple[Desired, ...]
    channel: Channel
    uninspected: set[str] | None = None
    """Databases without an inspection inside since the last reconcile of the object.

    None means that all were inspected, so that inspections are compared with previous ones. Before that a comparison
    does not suffice: drift that was corrected and has returned would look unchanged.
    """

    def is_fully_inspected(self, visited_databases: Iterable[str], latest: Inspection) -> bool:
        """Return True if this inspection completes the first full one."""
        if self.uninspected is None:
            return False
        self.uninspected.difference_update(visited_databases)
        if self.uninspected & latest.databases.keys():
            return False
        self.uninspected = None
        return True


@dataclass(frozen=True, slots=True)
class Visit:
    """Inspection inside a database, with the database's write counter before it."""

    write_counter: int
    time: float


@dataclass(slots=True)
class InspectedServer:
    """State of one server."""

    resolved: ResolvedServer
    sessions: ServerSessions
    subscriptions: dict[tuple[str, ObjectKey], DriftSubscription] = field(
        default_factory=dict[tuple[str, ObjectKey], DriftSubscription]
    )
    requests: dict[asyncio.Future[Inspection], InspectionScope] = field(
        default_factory=dict[asyncio.Future[Inspection], InspectionScope]
    )
    task: asyncio.Task[None] | None = None
    last: Inspection | None = None
    reachable: bool = False
    failure: EngineError | None = None
    backoff: float = _FIRST_BACKOFF_SECONDS
    retry_at: float = 0.0
    next_individual_check: float = -math.inf
    round: int = 0
    last_round_of: dict[str, int] = field(default_factory=dict[str, int])
    """Last round in which each database was inspected inside. 0 means never."""
    visits: dict[str, Visit] = field(default_factory=dict[str, Visit])
    """Last inspection inside each database that a poll has made."""
    active: int = 0
    waiting: dict[tuple[str, ObjectKey], None] = field(default_factory=dict[tuple[str, ObjectKey], None])
    poll_task: asyncio.Task[None] | None = None
    next_poll: float | None = None
    login_checked_at: dict[SqlCredentials, float] = field(default_factory=dict[SqlCredentials, float])
    """Time of the last successful or inconclusive login with these credentials."""
    good_logins: set[SqlCredentials] = field(default_factory=set[SqlCredentials])
    """Credentials that were accepted, or set by this process."""

    @property
    def sql_engine(self) -> SqlEngine:
        return self.resolved.sql_engine

    @property
    def free_slots(self) -> int:
        """Number of free slots for workers."""
        return (_MAX_CONCURRENT if self.reachable else 1) - self.active

    async def write_counters(self) -> Mapping[str, int]:
        """Write counters of databases. Empty if the server does not respond, which the next inspection reports."""
        try:
            return {} if self.failure is not None else await self.sql_engine.write_counters(self.sessions)
        except EngineError:
            return {}

    def record_success(self) -> None:
        """Record that the server responded."""
        self.reachable, self.failure, self.backoff, self.retry_at = True, None, _FIRST_BACKOFF_SECONDS, 0.0

    def record_failure(self, error: EngineError, runtime: Runtime) -> bool:
        """Record a failure, and return True if the server was reachable before.

        Until `retry_at` no other request is sent.
        """
        now, first = runtime.clock.monotonic(), self.failure is None
        if not first and now < self.retry_at:
            return False
        self.reachable, self.failure = False, error
        self.retry_at = now + self.backoff * (0.9 + 0.2 * runtime.random.random())
        self.backoff = min(self.backoff * 2, _MAX_BACKOFF_SECONDS)
        return first
