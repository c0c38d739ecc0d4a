"""A server of the time before the aggregated form of discovery."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager

from msgspec.structs import replace

from steersman.client import HttpRequest, HttpResponse, Transport


class UnaggregatedDiscoveryTransport(Transport):
    """The way to a server, as if it did not know the aggregated form of discovery."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    async def request(self, request: HttpRequest) -> HttpResponse:
        aggregated = "as=APIGroupDiscoveryList" in request.accept
        return await self._transport.request(replace(request, accept="application/json") if aggregated else request)

    def stream(self, request: HttpRequest) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        return self._transport.stream(request)

    async def close(self) -> None:
        await self._transport.close()
