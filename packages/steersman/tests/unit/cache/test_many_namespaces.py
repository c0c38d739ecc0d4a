"""An informer of many namespaces lists a few at a time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import pytest

from framework_support.widget import Widget
from steersman.api.core_v1 import ConfigMap
from steersman.cache import Cache
from steersman.client import Client, HttpRequest, HttpResponse, Transport
from steersman.errors import CacheNotSynced, ConnectionFailed
from steersman_testing import InMemoryApiServer
from steersman_testing.virtual_clock import virtual_runtime, virtual_time

NAMESPACES = tuple(f"orders-{number}" for number in range(40))
OPEN_SECONDS = 0.5


class SlowTransport(Transport):
    """A server that opens watches slowly and counts concurrent ones."""

    def __init__(self) -> None:
        self.server = InMemoryApiServer(virtual_runtime())
        self.server.register(Widget)
        self.concurrent = 0
        self.max_concurrent = 0
        self.disconnected = asyncio.Event()
        self.responds_to: Callable[[HttpRequest], bool] = lambda request: True
        """Return True if the server responds to the request."""

    async def request(self, request: HttpRequest) -> HttpResponse:
        async with self._count_concurrent():
            return await self.server.request(request)

    def stream(self, request: HttpRequest) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        return self._stream(request)

    async def close(self) -> None:
        pass

    @asynccontextmanager
    async def _stream(self, request: HttpRequest) -> AsyncGenerator[AsyncIterator[bytes]]:
        async with self._count_concurrent():
            if not self.responds_to(request):
                await asyncio.Event().wait()
        async with self.server.stream(request) as lines:
            yield self._until_disconnected(lines)

    async def _until_disconnected(self, lines: AsyncIterator[bytes]) -> AsyncGenerator[bytes]:
        end = asyncio.ensure_future(self.disconnected.wait())
        line: asyncio.Future[bytes] | None = None
        try:
            while True:
                line = asyncio.ensure_future(anext(lines))
                await asyncio.wait((line, end), return_when=asyncio.FIRST_COMPLETED)
                if end.done():
                    raise ConnectionFailed("the server ended")
                yield await line
        finally:
            started: list[asyncio.Future[Any]] = [end] if line is None else [line, end]
            for each in started:
                each.cancel()
            await asyncio.gather(*started, return_exceptions=True)

    @asynccontextmanager
    async def _count_concurrent(self) -> AsyncGenerator[None]:
        self.concurrent += 1
        self.max_concurrent = max(self.max_concurrent, self.concurrent)
        try:
            await asyncio.sleep(OPEN_SECONDS)
            yield
        finally:
            self.concurrent -= 1


@asynccontextmanager
async def running_cache(transport: SlowTransport, *kinds: type[Widget] | type[ConfigMap]) -> AsyncGenerator[Cache]:
    cache = Cache(Client(transport), runtime=virtual_runtime(), namespaces=NAMESPACES)
    for kind in kinds:
        cache.informer(kind)
    cache.start()
    try:
        yield cache
    finally:
        await cache.stop()


@virtual_time
async def test_initial_lists_are_limited_without_timing_out() -> None:
    """Each complete list extends the timeout of the sync."""
    transport = SlowTransport()
    async with running_cache(transport, Widget) as cache:
        await cache.wait_for_sync(timeout=2 * OPEN_SECONDS)
        assert transport.max_concurrent == 4
        assert cache.has_synced


@virtual_time
async def test_after_an_outage_too() -> None:
    transport = SlowTransport()
    async with running_cache(transport, Widget) as cache:
        await cache.wait_for_sync()
        transport.max_concurrent = 0
        transport.disconnected.set()
        await asyncio.sleep(0.1)
        transport.disconnected.clear()
        await asyncio.sleep(60)
        assert all(reflector.last_error is None for reflector in cache.informer(Widget).reflectors)
        assert transport.max_concurrent == 4


@virtual_time
async def test_sync_timeout_names_the_unresponsive_namespace() -> None:
    transport = SlowTransport()
    transport.responds_to = lambda request: "/orders-7/" not in request.path
    async with running_cache(transport, Widget) as cache:
        with pytest.raises(CacheNotSynced, match=r"not synced after 3 s: widgets\.shop\.example\.com in orders-7 "):
            await cache.wait_for_sync(timeout=3)


@virtual_time
async def test_kinds_do_not_wait_for_each_other() -> None:
    transport = SlowTransport()
    transport.responds_to = lambda request: "/configmaps" in request.path
    async with running_cache(transport, Widget, ConfigMap) as cache:
        await cache.wait_for_sync(kind=ConfigMap)
        assert not cache.informer(Widget).has_synced


@virtual_time
async def test_catch_up_limits_concurrent_lists() -> None:
    transport = SlowTransport()
    async with running_cache(transport, Widget, ConfigMap) as cache:
        await cache.wait_for_sync()
        transport.max_concurrent = 0
        await cache.catch_up(timeout=2 * OPEN_SECONDS)
        assert transport.max_concurrent == 32


@virtual_time
async def test_catch_up_timeout_names_only_the_blocked_kind() -> None:
    transport = SlowTransport()
    transport.responds_to = lambda request: "/configmaps" in request.path
    async with running_cache(transport, Widget, ConfigMap) as cache:
        await cache.wait_for_sync(kind=ConfigMap)
        with pytest.raises(CacheNotSynced) as raised:
            await cache.catch_up(timeout=2 * OPEN_SECONDS)
    assert "widgets" in str(raised.value)
    assert "configmaps" not in str(raised.value)
