"""Helpers for tests of leader election in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from steersman.api.coordination_v1 import Lease, LeaseSpec
from steersman.meta import ObjectKey
from steersman_testing import InMemoryApiServer


def now() -> float:
    """Return the time of the event loop in seconds."""
    return asyncio.get_running_loop().time()


def read_lease(server: InMemoryApiServer, key: ObjectKey) -> LeaseSpec:
    """Return the spec of an existing Lease."""
    found = server.read(Lease, key)
    assert found is not None
    return found.spec


async def wait_until(condition: Callable[[], bool], within: float) -> float:
    """Return the seconds until ``condition`` held."""
    began = now()
    async with asyncio.timeout(within):
        while not condition():
            await asyncio.sleep(0.01)
    return now() - began
