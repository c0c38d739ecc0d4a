"""Informers shared by kind, started together, awaited with a reason."""

from __future__ import annotations

import asyncio
import gc
from typing import Any

import pytest

from framework_support.buoy import Buoy, buoy, wire
from framework_support.scripted_transport import ScriptedTransport, listed, refusal
from framework_support.world import NAMESPACE, World, key, settle
from steersman.api.core_v1 import Node, Pod
from steersman.cache import Cache, Change, InformerOptions, Store
from steersman.client import Client
from steersman.errors import CacheNotSynced
from steersman.meta import OwnerReference
from steersman.observability.metrics import registry
from steersman_testing.virtual_clock import virtual_runtime, virtual_time


def cache_over(transport: ScriptedTransport, *namespaces: str) -> Cache:
    selected = InformerOptions(label_selector="x=y", field_selector="metadata.name!=z")
    cache = Cache(Client(transport), runtime=virtual_runtime(), namespaces=namespaces)
    cache.configure(Buoy, selected)
    return cache


@virtual_time
async def test_one_informer_a_kind_in_the_one_namespace() -> None:
    transport = ScriptedTransport([listed(wire("a"), version="5"), listed(version="5")])
    cache = cache_over(transport, "sea")
    assert cache.informer(Buoy) is cache.informer(Buoy)
    cache.informer(Node)
    assert (cache.holds(Buoy), cache.holds(Pod)) == (True, False)
    assert not cache.has_synced
    cache.start()
    await cache.wait_for_sync()
    assert cache.has_synced
    assert len(cache.informer(Buoy).store) == 1
    buoys, nodes = (r for _, r in transport.requests if "watch" not in r.query)
    assert buoys.path == "/apis/sea.example.com/v1/namespaces/sea/buoys"
    assert (buoys.query["labelSelector"], buoys.query["fieldSelector"]) == ("x=y", "metadata.name!=z")
    assert nodes.path == "/api/v1/nodes"
    assert "labelSelector" not in nodes.query
    await cache.stop()
    assert not cache.has_synced
    assert transport.open_streams == 0


@virtual_time
async def test_an_informer_that_comes_late_is_started_at_once() -> None:
    transport = ScriptedTransport([listed(version="5")])
    cache = cache_over(transport)
    cache.start()
    assert cache.has_synced
    cache.informer(Buoy)
    assert not cache.has_synced
    await cache.wait_for_sync()
    await cache.stop()


@virtual_time
async def test_who_waits_in_vain_learns_which_kind_and_why() -> None:
    cache = cache_over(ScriptedTransport([listed(version="5"), *[refusal(403, "Forbidden")] * 100]))
    for kind in (Pod, Buoy, Node):
        cache.informer(kind)
    cache.start()
    with pytest.raises(CacheNotSynced) as caught:
        await cache.wait_for_sync(timeout=30)
    message = str(caught.value)
    assert message.startswith("not synced after 30 s: ")
    assert "buoys.sea.example.com (RBAC must allow get, list and watch: scripted Forbidden)" in message
    assert "pods" not in message
    assert asyncio.get_running_loop().time() == pytest.approx(30)
    await cache.stop()


@virtual_time
async def test_a_silent_server_is_told_from_a_refusal() -> None:
    cache = cache_over(ScriptedTransport())
    cache.informer(Buoy)
    cache.start()
    with pytest.raises(CacheNotSynced, match=r"buoys\.sea\.example\.com \(no answer yet\)"):
        await cache.wait_for_sync(timeout=1)
    await cache.stop()


@virtual_time
async def test_a_missing_definition_is_told_from_missing_rights() -> None:
    cache = cache_over(ScriptedTransport([refusal(404, "NotFound")] * 100))
    cache.informer(Buoy)
    cache.start()
    with pytest.raises(CacheNotSynced, match="its CustomResourceDefinition is not installed"):
        await cache.wait_for_sync(timeout=10)
    await cache.stop()


@virtual_time
async def test_resync_tells_of_every_object_again_about_when_it_should() -> None:
    world = World()
    world.make(*(f"buoy-{n}" for n in range(250)))
    cache = Cache(world.client, runtime=world.runtime)
    cache.configure(Buoy, InformerOptions(resync=600))
    told: list[tuple[float, Change[Buoy]]] = []
    cache.start()
    cache.informer(Buoy).subscribe(lambda change: told.append((asyncio.get_running_loop().time(), change)))
    await cache.wait_for_sync()
    await settle()
    told.clear()
    await asyncio.sleep(1300)
    assert len(told) == 500
    assert all(change.resync and change.old is change.new for _, change in told)
    first, second = told[0][0], told[-1][0]
    assert 540 <= first <= 660
    assert 540 <= second - first <= 660
    assert second - first != first
    await cache.stop()


@virtual_time
async def test_what_is_held_can_be_measured() -> None:
    world = World()
    world.make("a", "b")

    def measured() -> tuple[float | None, ...]:
        names = ("steersman_cache_objects", "steersman_cache_bytes", "steersman_cache_staleness_seconds")
        return tuple(registry.get_sample_value(name, {"kind": "Buoy"}) for name in names)

    gc.collect()  # Other tests' informers are measured for as long as they live.
    async with world.cache_running(Buoy):
        objects, size, _ = measured()
        assert objects == 2
        assert size is not None
        assert 400 < size < 4000
        await asyncio.sleep(45)
        assert measured()[2] == pytest.approx(45)
        await asyncio.sleep(30)
        assert measured()[2] == pytest.approx(15)
        await world.client.delete(Buoy, key("a"))
        await settle()
        assert measured()[:2] == (1, pytest.approx(size / 2, rel=0.1))


@virtual_time
async def test_what_an_object_controls_can_be_looked_up() -> None:
    owner = OwnerReference(api_version="v1", kind="X", name="x", uid="the-owner", controller=True)
    other = OwnerReference(api_version="v1", kind="X", name="y", uid="no-controller")
    store: Store[Buoy] = Store()
    for name, owners in (("a", (other, owner)), ("b", (other,)), ("c", ())):
        store.put(buoy(name, owners=owners))
    assert [o.metadata.name for o in store.by_index("owner", "the-owner")] == ["a"]
    store.put(buoy("d", owners=(owner,)))
    store.put(buoy("a", 2))
    assert [o.metadata.name for o in store.by_index("owner", "the-owner")] == ["d"]
    assert store.by_index("owner", "no-controller") == ()
    with pytest.raises(ValueError, match="'owner' exists"):
        store.add_index("owner", lambda _: ())


@virtual_time
async def test_large_objects_share_what_is_equal() -> None:
    world = World()
    for name in ("a", "b"):
        document = wire_pod(name)
        world.server.load(document)
    async with world.cache_running(Pod):
        first, second = (world.cache.informer(Pod).store.get(key(name)) for name in ("a", "b"))
        assert first is not None
        assert second is not None
        assert first.metadata.name != second.metadata.name
        assert first.spec.containers[0].env is second.spec.containers[0].env


def wire_pod(name: str) -> dict[str, Any]:
    env = [{"name": f"NAME_{number}", "value": "x" * 40} for number in range(40)]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {"containers": [{"name": "c", "image": "i", "env": env}]},
    }
