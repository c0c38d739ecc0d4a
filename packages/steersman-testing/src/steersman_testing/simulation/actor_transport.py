"""Transport of users and actors, which records their writes."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from typing import Protocol

from steersman.client.transport import HttpRequest, HttpResponse
from steersman_testing.apiserver import InMemoryApiServer
from steersman_testing.simulation.request_info import describe_request
from steersman_testing.simulation.trace import Actor, TraceEntry


class RunObserver(Protocol):
    """The run, as the transport uses it."""

    server: InMemoryApiServer

    def record(self, actor: Actor, text: str, outcome: str = "") -> TraceEntry:
        """Add an entry to the trace."""
        ...

    def check_invariants(self) -> None:
        """Check the invariants after a possible change."""
        ...


class ActorTransport:
    """Transport of an actor to the in-memory API server."""

    def __init__(self, observer: RunObserver, actor: Actor) -> None:
        self._observer = observer
        self._actor: Actor = actor

    async def request(self, request: HttpRequest) -> HttpResponse:
        """Forward a request and record it if it is a write."""
        response = await self._observer.server.request(request)
        if request.method != "GET":
            self._observer.record(self._actor, describe_request(request), str(response.status))
            self._observer.check_invariants()
        return response

    def stream(self, request: HttpRequest) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        """Forward a watch."""
        return self._observer.server.stream(request)

    async def close(self) -> None:
        """Do nothing: there are no connections."""
