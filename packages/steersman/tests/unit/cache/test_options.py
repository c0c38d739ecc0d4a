"""Which namespaces and objects an informer holds, and in what form."""

from __future__ import annotations

import asyncio

import pytest
from msgspec.structs import replace
from structlog.testing import capture_logs

from framework_support.controller_env import ControllerEnv, drain_event_loop
from framework_support.widget import Widget, WidgetSpec
from steersman.api.core_v1 import ConfigMap, Node, Secret
from steersman.cache import Cache, InformerOptions, Selection
from steersman.cache.options import scopes_of
from steersman.client import Client
from steersman.errors import ConfigurationError
from steersman.meta import ObjectKey
from steersman_testing import InMemoryApiServer, virtual_runtime, virtual_time


def watched_namespaces(options: InformerOptions, *namespaces: str) -> list[str]:
    return [scope.namespace for scope in scopes_of(Widget, options, namespaces)]


def test_kind_namespaces_override_cache_namespaces() -> None:
    assert watched_namespaces(InformerOptions()) == [""]
    assert watched_namespaces(InformerOptions(), "a", "b", "a") == ["a", "b"]
    assert watched_namespaces(InformerOptions(namespaces=("c",)), "a") == ["c"]
    assert watched_namespaces(InformerOptions(namespaces=()), "a") == [""]
    assert watched_namespaces(InformerOptions(by_namespace={"d": Selection()}), "a") == ["d"]
    assert [scope.namespace for scope in scopes_of(Node, InformerOptions(), ("a",))] == [""]


def test_contradictory_options_are_rejected() -> None:
    with pytest.raises(ConfigurationError, match=r"Widget: by_namespace contains \['b'\], missing in namespaces"):
        watched_namespaces(InformerOptions(namespaces=("a",), by_namespace={"b": Selection()}))
    with pytest.raises(ConfigurationError, match="a namespace is empty"):
        watched_namespaces(InformerOptions(namespaces=("a", "")))


def test_all_secrets_requires_explicit_option() -> None:
    with pytest.raises(ConfigurationError, match="all_secrets=True"):
        scopes_of(Secret, InformerOptions(), ("a",))
    with pytest.raises(ConfigurationError, match="all Secrets"):
        scopes_of(Secret, InformerOptions(label_selector="x", by_namespace={"a": Selection()}), ())
    for options in (InformerOptions(all_secrets=True), InformerOptions(field_selector="type=Opaque")):
        assert scopes_of(Secret, options, ())


@pytest.mark.requirement("user/namespaces")
@virtual_time
async def test_namespaces_share_store_and_lists_are_scoped() -> None:
    server = InMemoryApiServer(virtual_runtime())
    server.register(Widget)
    for namespace in ("a", "b", "c"):
        server.load({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})
        for name in ("small", "large"):
            metadata = {"name": name, "namespace": namespace, "labels": {"size": name}}
            server.load({"apiVersion": "shop.example.com/v1", "kind": "Widget", "metadata": metadata, "spec": {}})
    large = Selection(label_selector="size=large", transform=lambda o: replace(o, spec=WidgetSpec(depth=99)))
    options = InformerOptions(namespaces=("a", "b"), by_namespace={"b": large})
    client = Client(server)
    cache = Cache(client, runtime=virtual_runtime())
    cache.configure(Widget, options)
    informer = cache.informer(Widget)
    cache.start()
    await cache.wait_for_sync()
    assert {(str(o.key), o.spec.depth) for o in informer.store} == {("a/small", 1), ("a/large", 1), ("b/large", 99)}

    server.break_watches(Widget)
    await client.delete(Widget, ObjectKey("a", "small"))
    server.compact()
    await asyncio.sleep(60)
    assert {str(o.key) for o in informer.store} == {"a/large", "b/large"}
    await cache.stop()


@virtual_time
async def test_transform_is_applied_before_storing() -> None:
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
            await drain_event_loop()
    await drain_event_loop()
    assert {o.metadata.name: o.data for o in cache.informer(ConfigMap).store} == {"listed": {}, "watched": {}}
    await cache.stop()


@virtual_time
async def test_failing_transform_stores_original_object() -> None:
    def drop_spec(obj: Widget) -> Widget:
        if obj.metadata.name == "b":
            raise LookupError("no such thing")
        return replace(obj, spec=WidgetSpec())

    world = ControllerEnv()
    cache = Cache(world.client, runtime=world.runtime)
    cache.configure(Widget, InformerOptions(transform=drop_spec))
    store = cache.informer(Widget).store
    world.create_widgets("a", "b", depth=5)
    with capture_logs() as lines:
        cache.start()
        await cache.wait_for_sync()
        world.create_widgets("c", depth=5)
        await drain_event_loop()
    assert {o.metadata.name: o.spec.depth for o in store} == {"a": 1, "b": 5, "c": 1}
    assert [line["object"] for line in lines if "transform" in line["event"]] == ["orders/b"]
    await cache.stop()


def test_configure_after_informer_raises() -> None:
    cache = Cache(Client(InMemoryApiServer(virtual_runtime())), runtime=virtual_runtime())
    cache.informer(Widget)
    with pytest.raises(ConfigurationError, match="informer of Widget exists already: call configure"):
        cache.configure(Widget, InformerOptions(label_selector="x=y"))
