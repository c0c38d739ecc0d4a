"""Circuit breaker for servers that accept connections and never respond.

Each reconcile waits in a worker, and there are few workers. After a timeout, requests to the same server fail at
once for a while, so that an unresponsive server costs a worker a few seconds every half minute.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager, suppress
from typing import Concatenate, ParamSpec, TypeVar

from steersman.observability.runtime import Clock
from steersman_databases.engines.errors import ServerUnreachable
from steersman_databases.engines.server import DatabaseServer, ServerEndpoint
from steersman_databases.features.certificates.reload import GetServedFingerprint

P = ParamSpec("P")
R = TypeVar("R")
Query = Callable[Concatenate[DatabaseServer, P], Awaitable[R]]

_SLOW_AFTER_SECONDS = 2.5
"""Shorter than every timeout. A server that rejects requests fails sooner, and may be tried again at once."""
_BACKOFF_SECONDS = 20.0
"""Short enough to heal a change within 30 s."""


class UnresponsiveServers:
    """Unresponsive servers of one controller, by endpoint. Dropped with the process."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._until: dict[ServerEndpoint, float] = {}

    @contextmanager
    def guard(self, endpoint: ServerEndpoint) -> Generator[None]:
        """Context manager around a request to a server.

        Raises:
            ServerUnreachable: a recent request to this server timed out.
        """
        started = self._clock.monotonic()
        if started < self._until.get(endpoint, started):
            raise ServerUnreachable(endpoint, "it did not respond recently")
        try:
            yield
        except ServerUnreachable:
            now = self._clock.monotonic()
            if now - started >= _SLOW_AFTER_SECONDS:
                blocked_until = {other: until for other, until in self._until.items() if until > now}
                self._until = {**blocked_until, endpoint: now + _BACKOFF_SECONDS}
            raise

    def wrap(self, query: Query[P, R] | None) -> Query[P, R] | None:
        """Wrap a query with this circuit breaker."""
        return None if query is None else self.guarded(query)

    def guarded(self, query: Query[P, R]) -> Query[P, R]:
        """Return the query with this circuit breaker."""

        async def wrapped(server: DatabaseServer, /, *args: P.args, **kwargs: P.kwargs) -> R:
            with self.guard(server.endpoint):
                return await query(server, *args, **kwargs)

        return wrapped

    def wrap_fingerprint(self, query: GetServedFingerprint | None) -> GetServedFingerprint | None:
        """Like `wrap`, for queries that return None without a response."""
        if query is None:
            return None

        async def wrapped(endpoint: ServerEndpoint) -> str | None:
            with suppress(ServerUnreachable), self.guard(endpoint):
                if (fingerprint := await query(endpoint)) is not None:
                    return fingerprint
                raise ServerUnreachable(endpoint, "it presents no certificate")
            return None

        return wrapped
