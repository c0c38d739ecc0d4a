"""Informers shared by kind, started together, awaited with a reason."""

from __future__ import annotations

import asyncio

import pytest

from buoy import Buoy, wire
from scripted_transport import ScriptedTransport, listed, refusal
from steersman.api.core_v1 import Node, Pod
from steersman.cache import Cache, InformerOptions
from steersman.client import Client
from steersman.errors import CacheNotSynced
from steersman.testing.virtual_time import virtual_runtime, virtual_time


def cache_over(transport: ScriptedTransport, *namespaces: str) -> Cache:
    selected = InformerOptions(label_selector="x=y", field_selector="metadata.name!=z")
    return Cache(Client(transport), runtime=virtual_runtime(), namespaces=namespaces, options={Buoy: selected})


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
