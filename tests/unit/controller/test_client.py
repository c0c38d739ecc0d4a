"""The reconcilers' client reads from the cache what is held there, and the rest live."""

from __future__ import annotations

import pytest

from buoy import Buoy, BuoyStatus
from steersman.api.apply.core_v1 import ConfigMapApply
from steersman.api.core_v1 import ConfigMap
from steersman.errors import NotFound
from steersman.meta import ObjectMetaApply
from steersman.testing import virtual_time
from world import NAMESPACE, World, key


@virtual_time
async def test_held_kinds_cost_no_request() -> None:
    world = World()
    world.make("a", "b", depth=2)
    async with world.cache_running(Buoy):
        world.server.requests.clear()
        assert (await world.cached.get(Buoy, key("a"))).spec.depth == 2
        assert len(await world.cached.list(Buoy)) == 2
        assert len(await world.cached.list(Buoy, namespace="lake")) == 0
        assert [b.metadata.name for b in await world.cached.list(Buoy, where=lambda b: b.key == key("b"))] == ["b"]
        assert await world.cached.find(Buoy, key("c")) is None
        with pytest.raises(NotFound, match='buoys "c" not found') as caught:
            await world.cached.get(Buoy, key("c"))
        assert (caught.value.code, caught.value.reason) == (404, "NotFound")
        assert world.server.requests == []


@virtual_time
async def test_others_are_read_live() -> None:
    world = World()
    cached = world.cached
    assert await cached.find(ConfigMap, key("cm")) is None
    config = ConfigMapApply(metadata=ObjectMetaApply(name="cm", namespace=NAMESPACE), data={"a": "b"})
    await cached.apply(config)
    assert (await cached.get(ConfigMap, key("cm"))).data["a"] == "b"
    assert len(await cached.list(ConfigMap, namespace=NAMESPACE)) == 1
    await cached.delete(ConfigMap, key("cm"))
    assert await cached.find(ConfigMap, key("cm")) is None


@virtual_time
async def test_live_reads_go_past_the_cache() -> None:
    world = World()
    async with world.cache_running(Buoy):
        world.make("a")
        assert await world.cached.find(Buoy, key("a")) is None
        assert (await world.cached.live.get(Buoy, key("a"))).metadata.name == "a"


@virtual_time
async def test_writes_go_to_the_server() -> None:
    world = World()
    world.make("a")
    async with world.cache_running(Buoy):
        updated = await world.cached.apply_status(world.buoy("a"), BuoyStatus(depth=3))
        assert updated.status == BuoyStatus(depth=3)
        created = await world.cached.create(
            ConfigMapApply(metadata=ObjectMetaApply(name="cm", namespace=NAMESPACE), data={})
        )
        assert created.metadata.uid
