"""Which namespaces and objects an informer holds, and in what form."""

from __future__ import annotations

import asyncio

import pytest
from msgspec.structs import replace
from structlog.testing import capture_logs

from framework_support.buoy import Buoy, BuoySpec
from framework_support.world import World, settle
from steersman.api.core_v1 import ConfigMap, Node, Secret
from steersman.cache import Cache, InformerOptions, Selection
from steersman.cache.options import scopes_of
from steersman.client import Client
from steersman.errors import ConfigurationError
from steersman.meta import ObjectKey
from steersman_testing import InMemoryApiServer, virtual_runtime, virtual_time


def watched(options: InformerOptions, *namespaces: str) -> list[str]:
    return [scope.namespace for scope in scopes_of(Buoy, options, namespaces)]


def test_the_namespaces_are_those_of_the_kind_or_else_those_of_the_cache() -> None:
    assert watched(InformerOptions()) == [""]
    assert watched(InformerOptions(), "a", "b", "a") == ["a", "b"]
    assert watched(InformerOptions(namespaces=("c",)), "a") == ["c"]
    assert watched(InformerOptions(namespaces=()), "a") == [""]
    assert watched(InformerOptions(by_namespace={"d": Selection()}), "a") == ["d"]
    assert [scope.namespace for scope in scopes_of(Node, InformerOptions(), ("a",))] == [""]


def test_options_that_contradict_themselves_are_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"Buoy: by_namespace names \['b'\], which are not watched"):
        watched(InformerOptions(namespaces=("a",), by_namespace={"b": Selection()}))
    with pytest.raises(ConfigurationError, match="a namespace has no name"):
        watched(InformerOptions(namespaces=("a", "")))


def test_all_secrets_are_held_only_by_those_who_say_so() -> None:
    with pytest.raises(ConfigurationError, match="all_secrets=True"):
        scopes_of(Secret, InformerOptions(), ("a",))
    with pytest.raises(ConfigurationError, match="all Secrets"):
        scopes_of(Secret, InformerOptions(label_selector="x", by_namespace={"a": Selection()}), ())
    for options in (InformerOptions(all_secrets=True), InformerOptions(field_selector="type=Opaque")):
        assert scopes_of(Secret, options, ())


@virtual_time
async def test_several_namespaces_share_one_store_and_each_list_replaces_its_own_part() -> None:
    server = InMemoryApiServer(virtual_runtime())
    server.register(Buoy)
    for namespace in ("a", "b", "c"):
        server.load({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})
        for name in ("small", "large"):
            metadata = {"name": name, "namespace": namespace, "labels": {"size": name}}
            server.load({"apiVersion": "sea.example.com/v1", "kind": "Buoy", "metadata": metadata, "spec": {}})
    large = Selection(label_selector="size=large", transform=lambda o: replace(o, spec=BuoySpec(depth=99)))
    options = InformerOptions(namespaces=("a", "b"), by_namespace={"b": large})
    client = Client(server)
    cache = Cache(client, runtime=virtual_runtime())
    cache.configure(Buoy, options)
    informer = cache.informer(Buoy)
    cache.start()
    await cache.wait_for_sync()
    assert {(str(o.key), o.spec.depth) for o in informer.store} == {("a/small", 1), ("a/large", 1), ("b/large", 99)}

    server.break_watches(Buoy)
    await client.delete(Buoy, ObjectKey("a", "small"))
    server.compact()
    await asyncio.sleep(60)
    assert {str(o.key) for o in informer.store} == {"a/large", "b/large"}
    await cache.stop()


@virtual_time
async def test_a_transform_decides_what_is_stored() -> None:
    server = InMemoryApiServer(virtual_runtime())
    client = Client(server)
    options = InformerOptions(transform=lambda o: replace(o, data={}))
    cache = Cache(client, runtime=virtual_runtime())
    cache.configure(ConfigMap, options)
    for name in ("listed", "watched"):
        body = {"metadata": {"name": name, "namespace": "default"}, "data": {"large": "x" * 1000}}
        server.load({"apiVersion": "v1", "kind": "ConfigMap", **body})
        if name == "listed":
            cache.informer(ConfigMap)
            cache.start()
            await cache.wait_for_sync()
            await settle()
    await settle()
    assert {o.metadata.name: o.data for o in cache.informer(ConfigMap).store} == {"listed": {}, "watched": {}}
    await cache.stop()


@virtual_time
async def test_an_object_that_cannot_be_transformed_is_held_whole() -> None:
    def shallow(obj: Buoy) -> Buoy:
        if obj.metadata.name == "b":
            raise LookupError("no such thing")
        return replace(obj, spec=BuoySpec())

    world = World()
    cache = Cache(world.client, runtime=world.runtime)
    cache.configure(Buoy, InformerOptions(transform=shallow))
    store = cache.informer(Buoy).store
    world.make("a", "b", depth=5)
    with capture_logs() as lines:
        cache.start()
        await cache.wait_for_sync()
        world.make("c", depth=5)
        await settle()
    assert {o.metadata.name: o.spec.depth for o in store} == {"a": 1, "b": 5, "c": 1}
    assert [line["object"] for line in lines if "transform" in line["event"]] == ["sea/b"]
    await cache.stop()


def test_options_come_before_the_informer() -> None:
    cache = Cache(Client(InMemoryApiServer(virtual_runtime())), runtime=virtual_runtime())
    cache.informer(Buoy)
    with pytest.raises(ConfigurationError, match="the informer of Buoy is there already: configure it before"):
        cache.configure(Buoy, InformerOptions(label_selector="x=y"))
