"""Informers shared by kind, started together, awaited with a reason."""

from __future__ import annotations

import asyncio
import gc
from typing import Any

import pytest

from framework_support.controller_env import NAMESPACE, ControllerEnv, drain_event_loop, key
from framework_support.transports import ScriptedTransport, error_response, list_response
from framework_support.widget import Widget, widget, widget_document
from steersman.api.core_v1 import Node, Pod
from steersman.cache import Cache, IndexedStore, InformerEvent, InformerOptions
from steersman.client import Client
from steersman.errors import CacheNotSynced
from steersman.meta import OwnerReference
from steersman.observability.metrics import registry
from steersman_testing.virtual_clock import virtual_runtime, virtual_time


def new_cache(transport: ScriptedTransport, *namespaces: str) -> Cache:
    selected = InformerOptions(label_selector="x=y", field_selector="metadata.name!=z")
    cache = Cache(Client(transport), runtime=virtual_runtime(), namespaces=namespaces)
    cache.configure(Widget, selected)
    return cache


@virtual_time
async def test_one_informer_a_kind_in_the_one_namespace() -> None:
    transport = ScriptedTransport([list_response(widget_document("a"), version="5"), list_response(version="5")])
    cache = new_cache(transport, "orders")
    assert cache.informer(Widget) is cache.informer(Widget)
    cache.informer(Node)
    assert (cache.existing_informer(Widget) is not None, cache.existing_informer(Pod)) == (True, None)
    assert not cache.has_synced
    cache.start()
    await cache.wait_for_sync()
    assert cache.has_synced
    assert len(cache.informer(Widget).store) == 1
    widgets, nodes = (r for _, r in transport.requests if "watch" not in r.query)
    assert widgets.path == "/apis/shop.example.com/v1/namespaces/orders/widgets"
    assert (widgets.query["labelSelector"], widgets.query["fieldSelector"]) == ("x=y", "metadata.name!=z")
    assert nodes.path == "/api/v1/nodes"
    assert "labelSelector" not in nodes.query
    await cache.stop()
    assert not cache.has_synced
    assert transport.open_streams == 0


@virtual_time
async def test_late_informer_is_started_at_once() -> None:
    transport = ScriptedTransport([list_response(version="5")])
    cache = new_cache(transport)
    cache.start()
    assert cache.has_synced
    cache.informer(Widget)
    assert not cache.has_synced
    await cache.wait_for_sync()
    await cache.stop()


@virtual_time
async def test_wait_for_sync_timeout_names_kind_and_reason() -> None:
    cache = new_cache(ScriptedTransport([list_response(version="5"), *[error_response(403, "Forbidden")] * 100]))
    for kind in (Pod, Widget, Node):
        cache.informer(kind)
    cache.start()
    with pytest.raises(CacheNotSynced) as caught:
        await cache.wait_for_sync(timeout=30)
    message = str(caught.value)
    assert message.startswith("not synced after 30 s: ")
    assert "widgets.shop.example.com (RBAC must allow get, list and watch: scripted Forbidden)" in message
    assert "pods" not in message
    assert asyncio.get_running_loop().time() == pytest.approx(30)
    await cache.stop()


@virtual_time
async def test_wait_for_sync_without_response_is_reported() -> None:
    cache = new_cache(ScriptedTransport())
    cache.informer(Widget)
    cache.start()
    with pytest.raises(CacheNotSynced, match=r"widgets\.shop\.example\.com \(no response yet\)"):
        await cache.wait_for_sync(timeout=1)
    await cache.stop()


@virtual_time
async def test_wait_for_sync_missing_crd_differs_from_forbidden() -> None:
    cache = new_cache(ScriptedTransport([error_response(404, "NotFound")] * 100))
    cache.informer(Widget)
    cache.start()
    with pytest.raises(CacheNotSynced, match="its CustomResourceDefinition is not installed"):
        await cache.wait_for_sync(timeout=10)
    await cache.stop()


@pytest.mark.requirement("programming/resync")
@virtual_time
async def test_resync_redelivers_objects_with_jitter() -> None:
    world = ControllerEnv()
    world.create_widgets(*(f"widget-{n}" for n in range(250)))
    cache = Cache(world.client, runtime=world.runtime)
    cache.configure(Widget, InformerOptions(resync=600))
    events: list[tuple[float, InformerEvent[Widget]]] = []
    cache.start()
    cache.informer(Widget).subscribe(lambda change: events.append((asyncio.get_running_loop().time(), change)))
    await cache.wait_for_sync()
    await drain_event_loop()
    events.clear()
    await asyncio.sleep(1300)
    assert len(events) == 500
    assert all(change.is_resync and change.old is change.new for _, change in events)
    first, second = events[0][0], events[-1][0]
    assert 540 <= first <= 660
    assert 540 <= second - first <= 660
    assert second - first != first
    await cache.stop()


@virtual_time
async def test_cache_metrics_report_objects_and_size() -> None:
    world = ControllerEnv()
    world.create_widgets("a", "b")

    def cache_metrics() -> tuple[float | None, ...]:
        names = ("steersman_cache_objects", "steersman_cache_bytes", "steersman_cache_staleness_seconds")
        return tuple(registry.get_sample_value(name, {"kind": "Widget"}) for name in names)

    gc.collect()  # Other tests' informers are measured for as long as they live.
    async with world.running_cache(Widget):
        objects, size, _ = cache_metrics()
        assert objects == 2
        assert size is not None
        assert 400 < size < 4000
        await asyncio.sleep(45)
        assert cache_metrics()[2] == pytest.approx(45)
        await asyncio.sleep(30)
        assert cache_metrics()[2] == pytest.approx(15)
        await world.client.delete(Widget, key("a"))
        await drain_event_loop()
        assert cache_metrics()[:2] == (1, pytest.approx(size / 2, rel=0.1))


@virtual_time
async def test_owner_index_finds_controlled_objects() -> None:
    owner = OwnerReference(api_version="v1", kind="X", name="x", uid="the-owner", controller=True)
    other = OwnerReference(api_version="v1", kind="X", name="y", uid="no-controller")
    store: IndexedStore[Widget] = IndexedStore()
    for name, owners in (("a", (other, owner)), ("b", (other,)), ("c", ())):
        store.put(widget(name, owners=owners))
    assert [o.metadata.name for o in store.by_index("owner", "the-owner")] == ["a"]
    store.put(widget("d", owners=(owner,)))
    store.put(widget("a", 2))
    assert [o.metadata.name for o in store.by_index("owner", "the-owner")] == ["d"]
    assert store.by_index("owner", "no-controller") == ()
    with pytest.raises(ValueError, match="'owner' exists"):
        store.add_index("owner", lambda _: ())


@virtual_time
async def test_cache_interns_equal_parts_of_large_objects() -> None:
    world = ControllerEnv()
    for name in ("a", "b"):
        document = wire_pod(name)
        world.server.load(document)
    async with world.running_cache(Pod):
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
