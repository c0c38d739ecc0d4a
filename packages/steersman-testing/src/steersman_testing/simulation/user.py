"""How users and actors of a simulation reach the API server: without faults, and seen in the story."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from typing import Protocol

from steersman.client.transport import HttpRequest, HttpResponse
from steersman_testing.apiserver import InMemoryApiServer
from steersman_testing.simulation import requests
from steersman_testing.simulation.journal import Actor, Entry


class Witness(Protocol):
    """Who is told what users do."""

    server: InMemoryApiServer

    def note(self, actor: Actor, text: str, outcome: str = "") -> Entry:
        """Keeps what happened."""
        ...

    def changed(self) -> None:
        """Something may have changed."""
        ...


class UserTransport:
    """The server, as ``actor`` reaches it."""

    def __init__(self, witness: Witness, actor: Actor) -> None:
        self._witness = witness
        self._actor: Actor = actor

    async def request(self, request: HttpRequest) -> HttpResponse:
        """As the server answers."""
        response = await self._witness.server.request(request)
        if request.method != "GET":
            self._witness.note(self._actor, requests.describe(request), str(response.status))
            self._witness.changed()
        return response

    def stream(self, request: HttpRequest) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        """As the server's."""
        return self._witness.server.stream(request)

    async def close(self) -> None:
        """Nothing is held."""
