"""A cache that lags behind the API server must cost nobody a key, nor forget what is to be deleted."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager

import pytest

from database_support.unit.database_harness import KEY, CuttableTransport, DatabaseHarness
from steersman.api.events_v1 import Event
from steersman.client import HttpRequest
from steersman_databases.api import Database
from steersman_testing import InMemoryApiServer, run_virtual, virtual_time


class LaggingTransport(CuttableTransport):
    """Tells of no change of one resource until ``caught_up``; reads and writes go on."""

    def __init__(self, server: InMemoryApiServer, plural: str) -> None:
        super().__init__(server)
        self._plural = plural
        self.caught_up = asyncio.Event()

    @asynccontextmanager
    async def stream(self, request: HttpRequest) -> AsyncGenerator[AsyncIterator[bytes]]:
        if request.path.endswith(f"/{self._plural}"):
            await self.caught_up.wait()
        async with self._server.stream(request) as lines:
            yield lines


@pytest.mark.parametrize("plural", ["persistentvolumeclaims", "secrets", "services", "statefulsets"])
def test_stale_cache_creates_once_and_keeps_secret(plural: str) -> None:
    async def story() -> None:
        world = DatabaseHarness()
        transport = LaggingTransport(world.server, plural)
        async with world.operator(transport):
            await world.create()
            await world.ready()
            key = world.secret("orders-admin")
            await world.runtime.clock.sleep(60)
            transport.caught_up.set()
            await world.runtime.clock.sleep(60)
            assert world.reason == "DatabaseReady"
            assert world.secret("orders-admin") == key
            told = [e for e in world.server.read_all(Event) if e.regarding and e.regarding.kind == "Database"]
            assert [e.reason for e in told if e.type == "Warning"] == []

    run_virtual(story())


@virtual_time
async def test_stale_cache_deletion_is_complete() -> None:
    world = DatabaseHarness()
    async with world.operator(LaggingTransport(world.server, "persistentvolumeclaims")):
        await world.create(deletion_policy="Delete")
        await world.ready()
        await world.client.delete(Database, KEY)
        await world.until("gone", lambda: world.database is None)
        assert world.pvc() is None
