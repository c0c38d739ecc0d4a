"""The cache observes every mutating verb of the client."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from framework_support.apply_configurations import statefulset
from framework_support.controller_env import NAMESPACE, ControllerEnv, drain_event_loop, key
from framework_support.transports import HoldableTransport
from framework_support.widget import Widget, WidgetApply, WidgetSpecApply, WidgetStatus
from steersman.api.apply import meta
from steersman.api.apps_v1 import StatefulSet
from steersman.api.core_v1 import Pod, ServiceAccount
from steersman.cache import Cache, CachedClient
from steersman.client import Client, MergePatch
from steersman.client.encode import with_type_meta
from steersman.meta import Object, ObjectKey, ObjectMeta, encode, unstructured
from steersman_testing import virtual_time

UNSTRUCTURED = unstructured(Widget.api_resource)
STATEFULSET = statefulset().key
POD_DOCUMENT = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "a", "namespace": NAMESPACE},
    "spec": {"containers": [{"name": "c", "image": "i"}]},
}


def widget_config(name: str) -> WidgetApply:
    return WidgetApply(metadata=meta.ObjectMeta(name=name, namespace=NAMESPACE), spec=WidgetSpecApply(depth=7))


async def update_widget(client: Client) -> None:
    document = (await client.get(UNSTRUCTURED, key("a"))).to_dict()
    await client.update(UNSTRUCTURED.of({**document, "spec": {"depth": 7}}))


async def apply_widget_status(client: Client) -> None:
    await client.apply_status(await client.get(Widget, key("a")), WidgetStatus(depth=7))


# A call for each coroutine of the client.
CALLS: dict[str, Callable[[Client], Awaitable[Any]]] = {
    "apply": lambda client: client.apply(widget_config("a")),
    "apply_encoded": lambda client: client.apply_encoded(
        Widget, key("a"), encode(with_type_meta(widget_config("a")))
    ),
    "apply_status": apply_widget_status,
    "create": lambda client: client.create(widget_config("b")),
    "create_token": lambda client: client.create_token(key("default")),
    "delete": lambda client: client.delete(Widget, key("a")),
    "delete_collection": lambda client: client.delete_collection(Widget, namespace=NAMESPACE),
    "evict": lambda client: client.evict(key("a")),
    "get": lambda client: client.get(Widget, key("a")),
    "get_scale": lambda client: client.get_scale(StatefulSet, STATEFULSET),
    "list": lambda client: client.list(Widget),
    "patch": lambda client: client.patch(Widget, key("a"), MergePatch({"spec": {"depth": 7}})),
    "raw": lambda client: client.raw("/version"),
    "scale": lambda client: client.scale(StatefulSet, STATEFULSET, 7),
    "update": update_widget,
}
# The response of create_token is a token; no stored object changes.
CHANGES_NO_OBJECT = {"create_token"}
OBJECTS: tuple[tuple[type[Object], ObjectKey], ...] = (
    (Widget, key("a")),
    (Widget, key("b")),
    (Pod, key("a")),
    (StatefulSet, STATEFULSET),
)


def test_calls_cover_every_coroutine_of_the_client() -> None:
    coroutines = inspect.getmembers(Client, inspect.iscoroutinefunction)
    assert {name for name, _ in coroutines if not name.startswith("_")} == set(CALLS)


@pytest.mark.parametrize("verb", CALLS)
@virtual_time
async def test_cached_read_follows_mutating_verb(verb: str) -> None:
    env = ControllerEnv()
    transport = HoldableTransport(env.server)
    cache = Cache(Client(transport, field_manager="tester"), runtime=env.runtime)
    cached = CachedClient(Client(transport, field_manager="tester", observer=cache), cache)
    env.create_widgets("a")
    env.server.load(POD_DOCUMENT)
    env.server.load(ServiceAccount(metadata=ObjectMeta(name="default", namespace=NAMESPACE)))
    await env.client.apply(statefulset())
    for kind in (Widget, Pod, StatefulSet):
        cache.informer(kind)
    cache.start()
    await cache.wait_for_sync()
    await drain_event_loop()
    transport.hold_watches()
    before = stored_versions(env)
    env.server.requests.clear()
    await CALLS[verb](cached.live)
    is_write = any(request.method != "GET" for request in env.server.requests)
    assert (stored_versions(env) != before) == (is_write and verb not in CHANGES_NO_OBJECT)
    for kind, name in OBJECTS:
        assert version(await cached.get_or_none(kind, name)) == version(env.server.read(kind, name)), name
    await cache.stop()


def stored_versions(env: ControllerEnv) -> list[str]:
    return [version(env.server.read(kind, name)) for kind, name in OBJECTS]


def version(obj: Object | None) -> str:
    return obj.metadata.resource_version if obj is not None else ""


@virtual_time
async def test_cached_read_follows_write_of_another_field_manager() -> None:
    env = ControllerEnv()
    async with env.running_cache(Widget):
        cached = env.cached
        await cached.apply(widget_config("a"))
        await cached.live.with_field_manager("tester/b").patch(Widget, key("a"), MergePatch({"spec": {"depth": 8}}))
        assert cached.live.field_manager == "tester"
        assert (await cached.get(Widget, key("a"))).spec.depth == 8
        assert [entry.manager for entry in env.read_widget("a").metadata.managed_fields] == ["tester/b"]
