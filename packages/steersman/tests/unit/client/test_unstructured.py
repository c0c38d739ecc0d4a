"""Unstructured and metadata-only kinds in the client and the cache."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from framework_support.controller_env import NAMESPACE, ControllerEnv, drain_event_loop, key
from framework_support.widget import Widget
from steersman.api.core_v1 import ConfigMap, Secret
from steersman.client import MergePatch
from steersman.controller import Request, RequestReconciler, Result
from steersman.errors import NotFound
from steersman.manager import Manager, ManagerOptions
from steersman.meta import ApiResource, ObjectKey, Unstructured, metadata_only, unstructured
from steersman_testing import virtual_time

UnstructuredBuoy = unstructured(Widget.api_resource)
UnstructuredConfigMap = unstructured(ConfigMap.api_resource)
BuoyMetadata = metadata_only(Widget)


def load_buoy(world: ControllerEnv, name: str = "a", **metadata: Any) -> None:
    document = {"apiVersion": "shop.example.com/v1", "kind": "Widget"}
    world.server.load(
        {**document, "metadata": {"name": name, "namespace": NAMESPACE, **metadata}, "spec": {"depth": 3}}
    )


def test_unstructured_type_is_cached_per_kind() -> None:
    assert metadata_only(Secret) is metadata_only(ApiResource("", "v1", "Secret", "secrets"))
    assert unstructured(Secret.api_resource) is unstructured(Secret.api_resource)
    assert metadata_only(Secret) is not metadata_only(Widget)
    assert BuoyMetadata.api_resource == UnstructuredBuoy.api_resource == Widget.api_resource


@virtual_time
async def test_unstructured_object_has_complete_content() -> None:
    world = ControllerEnv()
    load_buoy(world, labels={"l": "x"})
    obj = await world.client.get(UnstructuredBuoy, key("a"))
    assert obj.metadata.labels == {"l": "x"}
    assert obj.content["spec"] == {"depth": 3}
    assert obj.content["kind"] == "Widget"
    assert (await world.client.list(UnstructuredBuoy)).items == (obj,)


@virtual_time
async def test_unstructured_list_items_have_kind() -> None:
    world = ControllerEnv()
    kind = unstructured(Secret.api_resource)
    world.server.load({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s", "namespace": NAMESPACE}})
    (found,) = (await world.client.list(kind, namespace=NAMESPACE)).items
    assert (found.content["apiVersion"], found.content["kind"]) == ("v1", "Secret")


@virtual_time
async def test_unstructured_content_is_deeply_immutable_and_quiet() -> None:
    world = ControllerEnv()
    load_buoy(world)
    obj = await world.client.get(UnstructuredBuoy, key("a"))
    with pytest.raises(TypeError):
        obj.content["spec"]["depth"] = 4
    with pytest.raises(TypeError):
        obj.content["spec"] = {}
    assert "depth" not in repr(obj)


@virtual_time
async def test_unstructured_keeps_only_own_managed_fields() -> None:
    world = ControllerEnv()
    load_buoy(world)
    changed = await world.client.patch(UnstructuredBuoy, key("a"), MergePatch({"spec": {"depth": 5}}))
    managers = [e["manager"] for e in changed.content["metadata"]["managedFields"]]
    assert managers == ["tester"] == [e.manager for e in changed.metadata.managed_fields]


@virtual_time
async def test_metadata_only_kind_requests_partial_metadata() -> None:
    world = ControllerEnv()
    load_buoy(world, labels={"l": "x"})
    obj = await world.client.get(BuoyMetadata, key("a"))
    assert (obj.key, obj.metadata.labels) == (key("a"), {"l": "x"})
    assert (await world.client.list(BuoyMetadata)).items == (obj,)
    assert all("as=PartialObjectMetadata" in r.accept for r in world.server.requests if r.method == "GET")


@virtual_time
async def test_metadata_is_changed_by_a_patch() -> None:
    world = ControllerEnv()
    load_buoy(world)
    changed = await world.client.patch(BuoyMetadata, key("a"), MergePatch({"metadata": {"labels": {"l": "y"}}}))
    assert changed.metadata.labels == {"l": "y"}
    assert world.read_widget("a").spec.depth == 3


@virtual_time
@pytest.mark.parametrize("kind", [UnstructuredBuoy, BuoyMetadata], ids=["unstructured", "metadata"])
async def test_cache_stores_untyped_kinds(kind: Any) -> None:
    world = ControllerEnv()
    load_buoy(world, labels={"l": "x"})
    async with world.running_cache(kind):
        load_buoy(world, "b")
        await drain_event_loop()
        found = await world.cached.get(kind, key("b"))
        assert type(found) is kind
        assert found.key == ObjectKey(NAMESPACE, "b")
        await world.client.delete(kind, key("a"))
        await drain_event_loop()
        with pytest.raises(NotFound):
            await world.cached.get(kind, key("a"))


class ConfigMapReconciler(RequestReconciler[Unstructured]):
    """Maintains one ConfigMap per widget and watches only its metadata."""

    async def reconcile(self, request: Request) -> Result:
        widget = await self.client.get(UnstructuredBuoy, request)
        metadata = {"name": request.name, "namespace": request.namespace}
        config = UnstructuredConfigMap.of(
            {"metadata": metadata, "data": {"depth": str(widget.content["spec"]["depth"])}}
        )
        await self.client.live.apply(config, owner=widget)
        return Result()


@virtual_time
async def test_controllers_reconcile_and_own_untyped_kinds() -> None:
    world = ControllerEnv()
    manager = Manager(world.server, ManagerOptions(name="mooring"), world.runtime)
    manager.controller(UnstructuredBuoy).owns(metadata_only(ConfigMap)).complete(ConfigMapReconciler)
    running = asyncio.create_task(manager.run())
    load_buoy(world)
    await world.runtime.clock.sleep(1)
    made = world.server.read(ConfigMap, key("a"))
    assert made is not None
    assert made.data == {"depth": "3"}
    assert made.controller_reference is not None
    await world.client.delete(ConfigMap, key("a"))
    await world.runtime.clock.sleep(1)
    again = world.server.read(ConfigMap, key("a"))
    assert again is not None
    assert again.metadata.uid != made.metadata.uid
    manager.stop()
    await running
