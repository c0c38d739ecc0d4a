"""Apply with an owner: foreign objects are not taken over."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from msgspec.structs import replace

from framework_support.controller_env import NAMESPACE, ControllerEnv, key
from framework_support.gadget import Gadget, GadgetSpec
from steersman.api.apply import core, meta, rbac
from steersman.api.core_v1 import ConfigMap, Namespace
from steersman.api.rbac_v1 import ClusterRole
from steersman.cache import InformerOptions
from steersman.errors import AlreadyOwned, ConnectionFailed, NotOwned
from steersman.meta import ApplyConfiguration, FrozenStruct, ObjectKey, ObjectMeta, metadata_only, unstructured
from steersman_testing import matching, virtual_time

CM = key("cm")
FILTERED = InformerOptions(label_selector="app=shop")


def config_map(**data: str) -> core.ConfigMap:
    return core.ConfigMap(metadata=meta.ObjectMeta(name="cm", namespace=NAMESPACE), data=data or {"a": "1"})


def load_config_map(world: ControllerEnv, owner: str | None = None, **labels: str) -> None:
    """A ConfigMap of another client. ``owner`` is the name of the widget that controls it."""
    metadata: dict[str, Any] = {"name": "cm", "namespace": NAMESPACE, "labels": labels}
    if owner is not None:
        uid = world.read_widget(owner).metadata.uid
        reference = {"apiVersion": "shop.example.com/v1", "kind": "Widget", "name": owner, "uid": uid}
        metadata["ownerReferences"] = [reference | {"controller": True}]
    world.server.load({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"a": "0"}})


def sent(world: ControllerEnv) -> list[str]:
    return [request.method for request in world.server.requests if "watch" not in request.query]


CACHES = pytest.mark.parametrize(
    ("kinds", "options"),
    [((ConfigMap,), None), ((ConfigMap,), FILTERED), ((), None), ((metadata_only(ConfigMap),), None)],
    ids=["cached", "filtered", "uncached", "metadata"],
)


@CACHES
@virtual_time
async def test_apply_over_uncontrolled_object_raises(kinds: Any, options: InformerOptions | None) -> None:
    world = ControllerEnv()
    world.create_widgets("a")
    load_config_map(world)
    if options is not None:
        world.cache.configure(ConfigMap, options)
    async with world.running_cache(*kinds):
        with pytest.raises(NotOwned, match="ConfigMap orders/cm exists without a controller, and Widget a does not"):
            await world.cached.apply(config_map(), owner=world.read_widget("a"))
        assert (found := world.server.read(ConfigMap, CM)) is not None and found.data == {"a": "0"}
        adopted = await world.cached.apply(config_map(), owner=world.read_widget("a"), adopt=True)
        assert adopted.is_controlled_by(world.read_widget("a"))


@pytest.mark.parametrize("adopt", [False, True])
@CACHES
@virtual_time
async def test_apply_over_object_of_other_controller_raises(
    kinds: Any, options: InformerOptions | None, adopt: bool
) -> None:
    world = ControllerEnv()
    world.create_widgets("a", "b")
    load_config_map(world, owner="b")
    if options is not None:
        world.cache.configure(ConfigMap, options)
    async with world.running_cache(*kinds):
        with pytest.raises(AlreadyOwned, match="Widget b"):
            await world.cached.apply(config_map(), owner=world.read_widget("a"), adopt=adopt)
        assert (found := world.server.read(ConfigMap, CM)) is not None and found.data == {"a": "0"}


@virtual_time
async def test_apply_over_object_of_recreated_owner_raises() -> None:
    world = ControllerEnv()
    world.create_widgets("a")
    load_config_map(world, owner="a")
    earlier = world.read_widget("a")
    recreated = replace(earlier, metadata=replace(earlier.metadata, uid="recreated"))
    with pytest.raises(AlreadyOwned, match="controlled by an earlier Widget a: wait"):
        await world.cached.apply(config_map(), owner=recreated)


@CACHES
@virtual_time
async def test_two_owners_at_once_do_not_share_a_name(kinds: Any, options: InformerOptions | None) -> None:
    world = ControllerEnv()
    world.create_widgets("a", "b")
    if options is not None:
        world.cache.configure(ConfigMap, options)
    async with world.running_cache(*kinds):
        # Two clients, as two controllers have.
        applies = [world.cached.apply(config_map(a=name), owner=world.read_widget(name)) for name in "ab"]
        first, second = await asyncio.gather(*applies, return_exceptions=True)
        assert isinstance(second, AlreadyOwned)
        assert isinstance(first, ConfigMap)
        assert (found := world.server.read(ConfigMap, CM)) is not None and found.data == {"a": "a"}


@virtual_time
async def test_failed_apply_releases_its_name() -> None:
    world = ControllerEnv()
    world.create_widgets("a", "b")
    world.server.fail_next(matching("PATCH", "/configmaps/"), ConnectionFailed("lost"), when="before")
    with pytest.raises(ConnectionFailed):
        await world.cached.apply(config_map(), owner=world.read_widget("a"))
    applied = await world.cached.apply(config_map(), owner=world.read_widget("b"))
    assert applied.is_controlled_by(world.read_widget("b"))


@virtual_time
async def test_apply_of_uncached_kind_reads_metadata_once() -> None:
    world = ControllerEnv()
    world.create_widgets("a")
    cached, owner = world.cached, world.read_widget("a")
    world.server.requests.clear()
    for value in "123":
        await cached.apply(config_map(a=value), owner=owner)
    assert sent(world) == ["GET", "PATCH", "PATCH", "PATCH"]
    assert "PartialObjectMetadata" in world.server.requests[0].accept


@virtual_time
async def test_apply_of_cached_kind_reads_nothing() -> None:
    world = ControllerEnv()
    world.create_widgets("a")
    async with world.running_cache(ConfigMap):
        cached, owner = world.cached, world.read_widget("a")
        world.server.requests.clear()
        for value in "12":
            await cached.apply(config_map(a=value), owner=owner)
        assert sent(world) == ["PATCH", "PATCH"]


@virtual_time
async def test_apply_after_failed_apply_checks_again() -> None:
    world = ControllerEnv()
    world.create_widgets("a")
    cached, owner = world.cached, world.read_widget("a")
    world.server.fail_next(matching("PATCH", "/configmaps/"), ConnectionFailed("lost"), when="before")
    with pytest.raises(ConnectionFailed):
        await cached.apply(config_map(), owner=owner)
    load_config_map(world)
    with pytest.raises(NotOwned):
        await cached.apply(config_map(), owner=owner)


@pytest.mark.parametrize("options", [None, FILTERED])
@virtual_time
async def test_later_object_of_the_same_name_is_checked_again(options: InformerOptions | None) -> None:
    world = ControllerEnv()
    world.create_widgets("a")
    cached, owner = world.cached, world.read_widget("a")
    if options is not None:
        world.cache.configure(ConfigMap, options)
    async with world.running_cache(*((ConfigMap,) if options else ())):
        await cached.apply(config_map(), owner=owner)
        await world.client.delete(ConfigMap, CM)
        load_config_map(world)
        for _ in range(2):
            with pytest.raises(NotOwned):
                await cached.apply(config_map(a="2"), owner=owner)
        assert (found := world.server.read(ConfigMap, CM)) is not None and found.data == {"a": "0"}
        await world.client.delete(ConfigMap, CM)
        assert (await cached.apply(config_map(a="2"), owner=owner)).is_controlled_by(owner)


@virtual_time
async def test_deleted_object_is_created_again() -> None:
    world = ControllerEnv()
    world.create_widgets("a")
    cached, owner = world.cached, world.read_widget("a")
    await cached.apply(config_map(), owner=owner)
    await world.client.delete(ConfigMap, CM)
    assert (await cached.apply(config_map(), owner=owner)).is_controlled_by(owner)


@virtual_time
async def test_is_controlled_by_compares_uid_of_controller() -> None:
    world = ControllerEnv()
    world.create_widgets("a", "b")
    load_config_map(world, owner="a")
    found = world.server.read(ConfigMap, CM)
    assert found is not None
    assert found.is_controlled_by(world.read_widget("a"))
    assert not found.is_controlled_by(world.read_widget("b"))
    assert not world.read_widget("a").is_controlled_by(world.read_widget("a"))


@pytest.mark.parametrize("kinds", [(ConfigMap,), ()], ids=["cached", "uncached"])
@virtual_time
async def test_list_by_labels_returns_matching_objects(kinds: Any) -> None:
    world = ControllerEnv()
    world.create_widgets("a", "b")
    load_config_map(world, owner="a", app="shop", tier="web")
    async with world.running_cache(*kinds):
        cached = world.cached
        for labels, count in (({"app": "shop"}, 1), ({"app": "shop", "tier": "web"}, 1), ({"app": "x"}, 0)):
            assert len(await cached.list(ConfigMap, labels=labels)) == count
        assert len(await cached.list(ConfigMap, labels={"app": "shop"}, owner=world.read_widget("a"))) == 1
        assert await cached.list(ConfigMap, labels={"app": "shop"}, owner=world.read_widget("b")) == ()


@virtual_time
async def test_namespace_of_cluster_scoped_object_is_ignored() -> None:
    world = ControllerEnv()
    world.create_widgets("a")
    role = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "reader"}}
    world.server.load(role)
    declared = rbac.ClusterRole(metadata=meta.ObjectMeta(name="reader", namespace=NAMESPACE))
    async with world.running_cache(ClusterRole):
        with pytest.raises(NotOwned, match="ClusterRole reader exists without a controller"):
            await world.cached.apply(declared, owner=await world.client.get(Namespace, ObjectKey("", NAMESPACE)))
        with pytest.raises(ValueError, match="namespace"):
            await world.cached.apply(declared, owner=world.read_widget("a"), adopt=True)


class GadgetSpecApply(FrozenStruct):
    text: str


class GadgetApply(ApplyConfiguration[Gadget]):
    read_type = Gadget
    spec: GadgetSpecApply


GADGET = GadgetApply(metadata=meta.ObjectMeta(name="g", namespace=NAMESPACE), spec=GadgetSpecApply(text="ours"))
UNDECODABLE = {
    "apiVersion": Gadget.api_resource.api_version,
    "kind": "Gadget",
    "metadata": {"name": "g", "namespace": NAMESPACE},
    "spec": {"replicas": "many", "text": "theirs"},
}


@pytest.mark.parametrize("found_by", ["list", "watch", "relist"])
@virtual_time
async def test_apply_over_undecodable_object_raises(found_by: str) -> None:
    world = ControllerEnv()
    world.create_widgets("a")
    world.server.register(Gadget.api_resource)
    owner, untyped = world.read_widget("a"), unstructured(Gadget.api_resource)
    if found_by != "watch":
        world.server.load(UNDECODABLE)
    async with world.running_cache(Gadget):
        if found_by == "watch":
            world.server.load(UNDECODABLE)
        if found_by == "relist":
            world.cache.informer(Gadget).reflectors[0].relist()
        await asyncio.sleep(1)
        with pytest.raises(NotOwned):
            await world.cached.apply(GADGET, owner=owner)
        assert (await world.client.get(untyped, key("g"))).to_dict()["spec"] == UNDECODABLE["spec"]
        await world.client.delete(untyped, key("g"))
        await asyncio.sleep(1)
        assert (await world.cached.apply(GADGET, owner=owner)).is_controlled_by(owner)


@virtual_time
async def test_object_is_complete_once_it_decodes() -> None:
    world = ControllerEnv()
    world.server.register(Gadget.api_resource)
    world.server.load(UNDECODABLE)
    informer = world.cache.informer(Gadget)
    async with world.running_cache():
        assert not informer.is_complete(key("g"))
        sink = informer.sinks[0]
        sink.init(replace_all=False)
        assert not informer.is_complete(key("g"))
        assert sink.init_done("1000")
        assert informer.is_complete(key("g"))
        sink.decode_failed(key("g"))
        assert not informer.is_complete(key("g"))
        sink.apply(
            Gadget(metadata=ObjectMeta(name="g", namespace=NAMESPACE, resource_version="1001"), spec=GadgetSpec()), 1
        )
        assert informer.is_complete(key("g"))
