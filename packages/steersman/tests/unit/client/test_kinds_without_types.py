"""Kinds read as plain JSON, or by their metadata alone, from the client to the cache."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from framework_support.buoy import Buoy
from framework_support.world import NAMESPACE, World, key, settle
from steersman.api.core_v1 import ConfigMap, Secret
from steersman.client import MergePatch
from steersman.controller import Reconciler, Request, Result
from steersman.errors import NotFound
from steersman.manager import Manager, ManagerOptions
from steersman.meta import ApiResource, ObjectKey, Unstructured, metadata_only, unstructured
from steersman_testing import virtual_time

Raw = unstructured(Buoy.api_resource)
Config = unstructured(ConfigMap.api_resource)
Outline = metadata_only(Buoy)


def make(world: World, name: str = "a", **metadata: Any) -> None:
    document = {"apiVersion": "sea.example.com/v1", "kind": "Buoy"}
    world.server.load(
        {**document, "metadata": {"name": name, "namespace": NAMESPACE, **metadata}, "spec": {"depth": 3}}
    )


def test_the_same_kind_is_the_same_type() -> None:
    assert metadata_only(Secret) is metadata_only(ApiResource("", "v1", "Secret", "secrets"))
    assert unstructured(Secret.api_resource) is unstructured(Secret.api_resource)
    assert metadata_only(Secret) is not metadata_only(Buoy)
    assert Outline.api_resource == Raw.api_resource == Buoy.api_resource


@virtual_time
async def test_an_unstructured_object_is_all_that_the_server_sent() -> None:
    world = World()
    make(world, labels={"l": "x"})
    obj = await world.client.get(Raw, key("a"))
    assert obj.metadata.labels == {"l": "x"}
    assert obj.content["spec"] == {"depth": 3}
    assert obj.content["kind"] == "Buoy"
    assert (await world.client.list(Raw)).items == (obj,)


@virtual_time
async def test_items_of_lists_of_built_in_kinds_name_their_kind() -> None:
    world = World()
    kind = unstructured(Secret.api_resource)
    world.server.load({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s", "namespace": NAMESPACE}})
    (found,) = (await world.client.list(kind, namespace=NAMESPACE)).items
    assert (found.content["apiVersion"], found.content["kind"]) == ("v1", "Secret")


@virtual_time
async def test_unstructured_content_is_deeply_immutable_and_quiet() -> None:
    world = World()
    make(world)
    obj = await world.client.get(Raw, key("a"))
    with pytest.raises(TypeError):
        obj.content["spec"]["depth"] = 4
    with pytest.raises(TypeError):
        obj.content["spec"] = {}
    assert "depth" not in repr(obj)


@virtual_time
async def test_of_managed_fields_only_our_own_are_kept() -> None:
    world = World()
    make(world)
    changed = await world.client.patch(Raw, key("a"), MergePatch({"spec": {"depth": 5}}))
    managers = [e["manager"] for e in changed.content["metadata"]["managedFields"]]
    assert managers == ["tester"] == [e.manager for e in changed.metadata.managed_fields]


@virtual_time
async def test_metadata_alone_is_asked_for_and_decoded() -> None:
    world = World()
    make(world, labels={"l": "x"})
    obj = await world.client.get(Outline, key("a"))
    assert (obj.key, obj.metadata.labels) == (key("a"), {"l": "x"})
    assert (await world.client.list(Outline)).items == (obj,)
    assert all("as=PartialObjectMetadata" in r.accept for r in world.server.requests if r.method == "GET")


@virtual_time
async def test_metadata_is_changed_by_a_patch() -> None:
    world = World()
    make(world)
    changed = await world.client.patch(Outline, key("a"), MergePatch({"metadata": {"labels": {"l": "y"}}}))
    assert changed.metadata.labels == {"l": "y"}
    assert world.buoy("a").spec.depth == 3


@virtual_time
@pytest.mark.parametrize("kind", [Raw, Outline], ids=["unstructured", "metadata"])
async def test_the_cache_holds_them(kind: Any) -> None:
    world = World()
    make(world, labels={"l": "x"})
    async with world.cache_running(kind):
        make(world, "b")
        await settle()
        found = await world.cached.get(kind, key("b"))
        assert type(found) is kind
        assert found.key == ObjectKey(NAMESPACE, "b")
        await world.client.delete(kind, key("a"))
        await settle()
        with pytest.raises(NotFound):
            await world.cached.get(kind, key("a"))


class Mooring(Reconciler[Unstructured]):
    """Keeps one ConfigMap per buoy, of which it watches only the metadata."""

    async def reconcile(self, request: Request) -> Result:
        buoy = await self.client.get(Raw, request)
        metadata = {"name": request.name, "namespace": request.namespace}
        config = Config.of({"metadata": metadata, "data": {"depth": str(buoy.content["spec"]["depth"])}})
        await self.client.live.apply(config, owner=buoy)
        return Result()


@virtual_time
async def test_controllers_reconcile_and_own_them() -> None:
    world = World()
    manager = Manager(world.server, ManagerOptions(name="mooring"), world.runtime)
    manager.controller(Raw).owns(metadata_only(ConfigMap)).complete(Mooring)
    running = asyncio.create_task(manager.run())
    make(world)
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
