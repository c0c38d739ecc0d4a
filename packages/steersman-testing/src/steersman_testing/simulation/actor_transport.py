"""How users and actors of a simulation reach the API server: without faults, and seen in the story."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from typing import Protocol

from steersman.client.transport import HttpRequest, HttpResponse
from steersman_testing.apiserver import InMemoryApiServer
from steersman_testing.simulation import request_info
from steersman_testing.simulation.trace import Actor, TraceEntry


class RunObserver(Protocol):
    """Who is told what users do."""

    server: InMemoryApiServer

    def record(self, actor: Actor, text: str, outcome: str = "") -> TraceEntry:
        """Keeps what happened."""
        ...

    def check_invariants(self) -> None:
        """Something may have changed."""
        ...


class ActorTransport:
    """The server, as ``actor`` reaches it."""

    def __init__(self, observer: RunObserver, actor: Actor) -> None:
        self._observer = observer
        self._actor: Actor = actor

    async def request(self, request: HttpRequest) -> HttpResponse:
        """As the server answers."""
        response = await self._observer.server.request(request)
        if request.method != "GET":
            self._observer.record(self._actor, request_info.describe_request(request), str(response.status))
            self._observer.check_invariants()
        return response

    def stream(self, request: HttpRequest) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        """As the server's."""
        return self._observer.server.stream(request)

    async def close(self) -> None:
        """Nothing is held."""
