"""An informer of dozens of namespaces: it begins, and begins anew, a few at a time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import pytest

from framework_support.buoy import Buoy
from steersman.api.core_v1 import ConfigMap
from steersman.cache import Cache
from steersman.client import Client, HttpRequest, HttpResponse, Transport
from steersman.errors import CacheNotSynced, ConnectionFailed
from steersman_testing import InMemoryApiServer
from steersman_testing.virtual_clock import virtual_runtime, virtual_time

NAMESPACES = tuple(f"sea-{number}" for number in range(40))
OPENING = 0.5


class Slow(Transport):
    """A server that takes ``OPENING`` seconds to begin a watch, and notes how many begin at the same time."""

    def __init__(self) -> None:
        self.server = InMemoryApiServer(virtual_runtime())
        self.server.register(Buoy)
        self.opening = 0
        self.most = 0
        self.absent = asyncio.Event()
        self.answers: Callable[[HttpRequest], bool] = lambda request: True
        """Whether a request is answered at all."""

    async def request(self, request: HttpRequest) -> HttpResponse:
        async with self._one_more():
            return await self.server.request(request)

    def stream(self, request: HttpRequest) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        return self._stream(request)

    async def close(self) -> None:
        pass

    @asynccontextmanager
    async def _stream(self, request: HttpRequest) -> AsyncGenerator[AsyncIterator[bytes]]:
        async with self._one_more():
            if not self.answers(request):
                await asyncio.Event().wait()
        async with self.server.stream(request) as lines:
            yield self._until_absent(lines)

    async def _until_absent(self, lines: AsyncIterator[bytes]) -> AsyncGenerator[bytes]:
        end = asyncio.ensure_future(self.absent.wait())
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
    async def _one_more(self) -> AsyncGenerator[None]:
        self.opening += 1
        self.most = max(self.most, self.opening)
        try:
            await asyncio.sleep(OPENING)
            yield
        finally:
            self.opening -= 1


@asynccontextmanager
async def caching(transport: Slow, *kinds: type[Buoy] | type[ConfigMap]) -> AsyncGenerator[Cache]:
    cache = Cache(Client(transport), runtime=virtual_runtime(), namespaces=NAMESPACES)
    for kind in kinds:
        cache.informer(kind)
    cache.start()
    try:
        yield cache
    finally:
        await cache.stop()


@virtual_time
async def test_it_begins_a_few_at_a_time_and_is_not_late_for_that() -> None:
    """Each list counts: as long as they come, nobody gives up, though all together take longer than the patience."""
    transport = Slow()
    async with caching(transport, Buoy) as cache:
        await cache.wait_for_sync(timeout=2 * OPENING)
        assert transport.most == 4
        assert cache.has_synced


@virtual_time
async def test_after_an_outage_too() -> None:
    transport = Slow()
    async with caching(transport, Buoy) as cache:
        await cache.wait_for_sync()
        transport.most = 0
        transport.absent.set()
        await asyncio.sleep(0.1)
        transport.absent.clear()
        await asyncio.sleep(60)
        assert all(reflector.last_error is None for reflector in cache.informer(Buoy).reflectors)
        assert transport.most == 4


@virtual_time
async def test_a_namespace_that_is_not_answered_ends_it_with_the_reason() -> None:
    transport = Slow()
    transport.answers = lambda request: "/sea-7/" not in request.path
    async with caching(transport, Buoy) as cache:
        with pytest.raises(CacheNotSynced, match=r"not synced after 3 s: buoys\.sea\.example\.com in sea-7 "):
            await cache.wait_for_sync(timeout=3)


@virtual_time
async def test_kinds_do_not_wait_for_each_other() -> None:
    transport = Slow()
    transport.answers = lambda request: "/configmaps" in request.path
    async with caching(transport, Buoy, ConfigMap) as cache:
        await cache.wait_for_sync(kind=ConfigMap)
        assert not cache.informer(Buoy).has_synced


@virtual_time
async def test_a_new_leader_catches_up_a_few_at_a_time() -> None:
    transport = Slow()
    async with caching(transport, Buoy, ConfigMap) as cache:
        await cache.wait_for_sync()
        transport.most = 0
        await cache.catch_up(timeout=2 * OPENING)
        assert transport.most == 32


@virtual_time
async def test_a_new_leader_names_only_the_kind_that_hangs() -> None:
    transport = Slow()
    transport.answers = lambda request: "/configmaps" in request.path
    async with caching(transport, Buoy, ConfigMap) as cache:
        await cache.wait_for_sync(kind=ConfigMap)
        with pytest.raises(CacheNotSynced) as raised:
            await cache.catch_up(timeout=2 * OPENING)
    assert "buoys" in str(raised.value)
    assert "configmaps" not in str(raised.value)
