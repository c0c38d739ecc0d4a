"""CachedClient: cached kinds are read from memory, others from the server."""

from __future__ import annotations

import pytest

from framework_support.apply_configurations import statefulset
from framework_support.controller_env import NAMESPACE, ControllerEnv, eventually, key
from framework_support.widget import Widget, WidgetStatus
from steersman.api.apply import core, meta, scheduling
from steersman.api.apps_v1 import StatefulSet
from steersman.api.core_v1 import ConfigMap
from steersman.api.scheduling_v1 import PriorityClass
from steersman.client import Client, HttpRequest, MergePatch
from steersman.errors import CacheNotSynced, Conflict, ConnectionFailed, Invalid, NotFound
from steersman.meta import FrozenDict, Object, ObjectKey, ObjectMeta, unstructured
from steersman_testing import matching, virtual_time


@pytest.mark.requirement("overview/cache-and-index")
@virtual_time
async def test_read_of_cached_kind_sends_no_request() -> None:
    world = ControllerEnv()
    world.create_widgets("a", "b", depth=2)
    async with world.running_cache(Widget):
        world.server.requests.clear()
        assert (await world.cached.get(Widget, key("a"))).spec.depth == 2
        assert len(await world.cached.list(Widget)) == 2
        assert len(await world.cached.list(Widget, namespace="lake")) == 0
        assert [b.metadata.name for b in await world.cached.list(Widget, where=lambda b: b.key == key("b"))] == ["b"]
        assert await world.cached.get_or_none(Widget, key("c")) is None
        with pytest.raises(NotFound, match='widgets "c" not found') as caught:
            await world.cached.get(Widget, key("c"))
        assert (caught.value.code, caught.value.reason) == (404, "NotFound")
        assert world.server.requests == []


@virtual_time
async def test_read_of_late_informer_waits_for_sync() -> None:
    world = ControllerEnv()
    world.create_widgets("a")
    async with world.running_cache():
        informer = world.cache.informer(Widget)
        assert not informer.has_synced
        assert (await world.cached.get(Widget, key("a"))).metadata.name == "a"
        world.cache.informer(ConfigMap)
        assert len(await world.cached.list(ConfigMap)) == 0


@virtual_time
async def test_read_of_unsynced_kind_raises() -> None:
    world = ControllerEnv()
    world.cache.informer(Widget)
    for read in (world.cached.get(Widget, key("a")), world.cached.list(Widget)):
        with pytest.raises(CacheNotSynced, match=r"10 s: widgets.shop.example.com \(no response yet\)"):
            await read


@virtual_time
async def test_read_of_uncached_kind_is_live() -> None:
    world = ControllerEnv()
    cached = world.cached
    assert await cached.get_or_none(ConfigMap, key("cm")) is None
    config = core.ConfigMap(metadata=meta.ObjectMeta(name="cm", namespace=NAMESPACE), data={"a": "b"})
    await cached.apply(config)
    assert (await cached.get(ConfigMap, key("cm"))).data["a"] == "b"
    assert len(await cached.list(ConfigMap, namespace=NAMESPACE)) == 1
    await cached.delete(ConfigMap, key("cm"))
    assert await cached.get_or_none(ConfigMap, key("cm")) is None


@virtual_time
async def test_live_client_bypasses_cache() -> None:
    world = ControllerEnv()
    async with world.running_cache(Widget):
        world.create_widgets("a")
        assert await world.cached.get_or_none(Widget, key("a")) is None
        assert (await world.cached.live.get(Widget, key("a"))).metadata.name == "a"


@virtual_time
async def test_writes_go_to_the_server() -> None:
    world = ControllerEnv()
    world.create_widgets("a")
    async with world.running_cache(Widget):
        updated = await world.cached.apply_status(world.read_widget("a"), WidgetStatus(depth=3))
        assert updated.status == WidgetStatus(depth=3)
        created = await world.cached.create(
            core.ConfigMap(metadata=meta.ObjectMeta(name="cm", namespace=NAMESPACE), data={})
        )
        assert created.metadata.uid


def cached_version(world: ControllerEnv, kind: type[Object], name: ObjectKey) -> str:
    """That of the cached object."""
    found = world.cache.informer(kind).store.get(name)
    return found.metadata.resource_version if found is not None else ""


def config_map_apply(name: str = "cm", **data: str) -> core.ConfigMap:
    return core.ConfigMap(metadata=meta.ObjectMeta(name=name, namespace=NAMESPACE), data=data)


@pytest.mark.requirement("design/create-or-update")
@virtual_time
async def test_apply_without_change_sends_no_request() -> None:
    world = ControllerEnv()
    async with world.running_cache(ConfigMap):
        cached = world.cached
        applied = await cached.apply(config_map_apply(a="1"))
        await eventually(lambda: world.cache.informer(ConfigMap).store.get(key("cm")) is not None)
        world.server.requests.clear()
        assert await cached.apply(config_map_apply(a="1")) == applied
        assert world.server.requests == []
        assert (await cached.apply(config_map_apply(a="2"))).data == {"a": "2"}
        assert len(world.server.writes) == 1


@virtual_time
async def test_apply_with_new_owner_is_sent_once() -> None:
    world = ControllerEnv()
    async with world.running_cache(ConfigMap):
        cached, store = world.cached, world.cache.informer(ConfigMap).store
        owner = await cached.apply(config_map_apply("owner"))
        await cached.apply(config_map_apply(a="1"))
        await eventually(lambda: store.get(key("cm")) is not None)
        owned = await cached.apply(config_map_apply(a="1"), owner=owner, adopt=True)
        assert owned.is_controlled_by(owner)
        await eventually(lambda: store.get(key("cm")) == owned)
        world.server.requests.clear()
        assert await cached.apply(config_map_apply(a="1"), owner=owner, adopt=True) == owned
        assert world.server.requests == []


@pytest.mark.parametrize("precondition", ["uid", "resourceVersion"])
@virtual_time
async def test_apply_with_precondition_is_sent(precondition: str) -> None:
    world, kind = ControllerEnv(), unstructured(ConfigMap.api_resource)
    identity = {"name": "cm", "namespace": NAMESPACE}
    async with world.running_cache(kind):
        await world.cached.apply(kind.of({"metadata": identity, "data": {"a": "1"}}))
        with pytest.raises((Conflict, Invalid)):
            await world.cached.apply(kind.of({"metadata": identity | {precondition: "1"}, "data": {"a": "1"}}))


@virtual_time
async def test_apply_on_stale_view_does_not_recreate() -> None:
    world = ControllerEnv()
    async with world.running_cache(ConfigMap):
        await world.cached.apply(config_map_apply(a="1"))
        await eventually(lambda: world.cache.informer(ConfigMap).store.get(key("cm")) is not None)
        # Immediately, so that the watch delivers no event before the apply is sent.
        world.server.handle(HttpRequest(method="DELETE", path=ConfigMap.api_resource.path(key("cm"))))
        with pytest.raises(Conflict, match="no existing object was found"):
            await world.cached.apply(config_map_apply(a="2"))
        assert world.server.read(ConfigMap, key("cm")) is None
        # The watch has caught up: the next apply creates the object again.
        await eventually(lambda: world.cache.informer(ConfigMap).store.get(key("cm")) is None)
        assert (await world.cached.apply(config_map_apply(a="2"))).data == {"a": "2"}


@virtual_time
async def test_apply_with_uid_of_replaced_object_conflicts() -> None:
    world = ControllerEnv()
    async with world.running_cache(ConfigMap):
        cached = world.cached
        first = await cached.apply(config_map_apply(a="1"))
        await eventually(lambda: world.cache.informer(ConfigMap).store.get(key("cm")) is not None)
        world.server.handle(HttpRequest(method="DELETE", path=ConfigMap.api_resource.path(key("cm"))))
        world.server.load(ConfigMap(metadata=ObjectMeta(name="cm", namespace=NAMESPACE), data=FrozenDict(b="1")))
        with pytest.raises(Conflict, match="field is immutable") as refused:
            await cached.apply(config_map_apply(a="2"))
        assert (refused.value.code, refused.value.reason) == (409, "Conflict")
        await eventually(lambda: cached_version(world, ConfigMap, key("cm")) != first.metadata.resource_version)
        assert (await cached.apply(config_map_apply(a="2"))).data == {"a": "2", "b": "1"}
        with pytest.raises(Conflict):
            await cached.apply(config_map_apply(a="2"), uid=first.metadata.uid)


@pytest.mark.requirement("overview/control-loop")
@virtual_time
async def test_drift_is_corrected_by_next_apply() -> None:
    world = ControllerEnv()
    async with world.running_cache(ConfigMap):
        cached = world.cached
        await cached.apply(config_map_apply(a="1"))
        other_client = Client(world.server, field_manager="stranger")
        drifted = await other_client.patch(ConfigMap, key("cm"), MergePatch({"data": {"a": "2"}}))
        await eventually(lambda: cached_version(world, ConfigMap, key("cm")) == drifted.metadata.resource_version)
        assert (await cached.apply(config_map_apply(a="1"))).data == {"a": "1"}


@virtual_time
async def test_apply_of_unchanged_status_sends_no_request() -> None:
    world = ControllerEnv()
    world.create_widgets("a")
    async with world.running_cache(Widget):
        cached = world.cached
        described = await cached.apply_status(world.read_widget("a"), WidgetStatus(depth=3))
        await eventually(lambda: world.cache.informer(Widget).store.get(key("a")) == described)
        world.server.requests.clear()
        assert await cached.apply_status(described, WidgetStatus(depth=3)) == described
        assert world.server.requests == []
        assert (await cached.apply_status(described, WidgetStatus(depth=0))).status == WidgetStatus(depth=0)


@virtual_time
async def test_apply_with_server_defaults_is_sent_once() -> None:
    world = ControllerEnv()
    async with world.running_cache(StatefulSet):
        cached = world.cached
        applied = await cached.apply(statefulset())
        await eventually(lambda: world.cache.informer(StatefulSet).store.get(applied.key) is not None)
        await cached.apply(statefulset())
        world.server.requests.clear()
        status = {"status": {"replicas": 1}}
        await Client(world.server).patch(StatefulSet, applied.key, MergePatch(status), subresource="status")
        await cached.apply(statefulset())
        assert len(world.server.writes) == 1, "a change of the status says nothing against what was applied"
        labelled = MergePatch({"metadata": {"labels": {"x": "y"}}})
        changed = await Client(world.server).patch(StatefulSet, applied.key, labelled)
        await eventually(lambda: cached_version(world, StatefulSet, applied.key) == changed.metadata.resource_version)
        await cached.apply(statefulset())
        assert len(world.server.writes) == 3


@virtual_time
async def test_apply_and_scale_converge() -> None:
    world = ControllerEnv()
    async with world.running_cache(StatefulSet):
        cached = world.cached
        declared = await cached.apply(statefulset())
        await cached.live.scale(StatefulSet, declared.key, 3)
        await cached.apply(statefulset())
        await cached.apply(statefulset())
        world.server.requests.clear()
        assert await cached.apply(statefulset())
        assert world.server.requests == []
        assert (await cached.get(StatefulSet, declared.key)).spec.replicas


@virtual_time
async def test_own_write_is_read_before_watch_event() -> None:
    world = ControllerEnv()
    async with world.running_cache(ConfigMap):
        cached = world.cached
        await cached.apply(config_map_apply(a="1"))
        assert (await cached.get(ConfigMap, key("cm"))).data == {"a": "1"}
        await cached.delete(ConfigMap, key("cm"))
        assert await cached.get_or_none(ConfigMap, key("cm")) is None


@virtual_time
async def test_write_with_unknown_outcome_is_read_uncached() -> None:
    world = ControllerEnv()
    async with world.running_cache(ConfigMap):
        cached = world.cached
        world.server.fail_next(matching("PATCH", "/configmaps/"), ConnectionFailed("lost"), when="after")
        with pytest.raises(ConnectionFailed):
            await cached.apply(config_map_apply(a="1"))
        assert (await cached.get(ConfigMap, key("cm"))).data == {"a": "1"}
        world.server.fail_next(matching("PATCH", "/configmaps/"), ConnectionFailed("lost"), when="after")
        with pytest.raises(ConnectionFailed):
            await cached.apply(config_map_apply(a="2"))
        assert [c.data["a"] for c in await cached.list(ConfigMap, namespace=NAMESPACE)] == ["2"]


@virtual_time
async def test_list_by_owner_returns_dependents() -> None:
    world = ControllerEnv()
    world.create_widgets("a", "b")
    for cached_kinds in ((Widget, ConfigMap), (Widget,)):
        async with world.running_cache(*cached_kinds):
            cached = world.cached
            for name in ("a", "b"):
                await cached.apply(config_map_apply(f"of-{name}", x="y"), owner=world.read_widget(name))
            found = await cached.list(ConfigMap, owner=world.read_widget("a"))
            assert [c.metadata.name for c in found] == ["of-a"]
            assert await cached.list(ConfigMap, owner=world.read_widget("a"), namespace="lake") == ()


@pytest.mark.requirement("overview/cache-and-index")
@virtual_time
async def test_objects_are_found_by_an_index() -> None:
    world = ControllerEnv()
    world.create_widgets("deep", depth=9)
    world.create_widgets("shallow", depth=1)
    world.cache.informer(Widget).store.add_index("depth", lambda widget: (str(widget.spec.depth),))
    async with world.running_cache(Widget):
        assert [b.metadata.name for b in await world.cached.list(Widget, index=("depth", "9"))] == ["deep"]
        assert await world.cached.list(Widget, index=("depth", "9"), where=lambda b: b.spec.depth < 9) == ()
        with pytest.raises(KeyError):
            await world.cached.list(Widget, index=("width", "9"))
        with pytest.raises(ValueError, match="ConfigMap is not cached"):
            await world.cached.list(ConfigMap, index=("depth", "9"))


@virtual_time
async def test_apply_restores_field_when_generation_is_constant() -> None:
    world = ControllerEnv()
    config = scheduling.PriorityClass(metadata=meta.ObjectMeta(name="urgent"), value=5, description="ours")
    async with world.running_cache(PriorityClass):
        cached = world.cached
        for _ in range(2):
            await cached.apply(config)
        other = Client(world.server, field_manager="other")
        await other.patch(PriorityClass, config.key, MergePatch({"description": "theirs"}))
        await world.cache.catch_up()
        assert (await cached.get(PriorityClass, config.key)).metadata.generation == 1
        assert (await cached.apply(config)).description == "ours"
