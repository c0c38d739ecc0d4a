"""A server of the time before the aggregated form of discovery."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager

from msgspec.structs import replace

from steersman.client import HttpRequest, HttpResponse, Transport


class Older(Transport):
    """The way to a server, as if it did not know the aggregated form of discovery."""

    def __init__(self, newer: Transport) -> None:
        self._newer = newer

    async def request(self, request: HttpRequest) -> HttpResponse:
        aggregated = "as=APIGroupDiscoveryList" in request.accept
        return await self._newer.request(replace(request, accept="application/json") if aggregated else request)

    def stream(self, request: HttpRequest) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        return self._newer.stream(request)

    async def close(self) -> None:
        await self._newer.close()
