"""The reconcilers' client reads from the cache what is held there, and the rest live."""

from __future__ import annotations

import pytest

from framework_support.apply_configurations import statefulset
from framework_support.buoy import Buoy, BuoyStatus
from framework_support.world import NAMESPACE, World, eventually, key
from steersman.api.apply.core_v1 import ConfigMapApply
from steersman.api.apps_v1 import StatefulSet
from steersman.api.core_v1 import ConfigMap
from steersman.client import Client, HttpRequest, MergePatch
from steersman.errors import CacheNotSynced, Conflict, ConnectionFailed, Invalid, NotFound
from steersman.meta import FrozenDict, Object, ObjectKey, ObjectMeta, ObjectMetaApply, unstructured
from steersman_testing import matching, virtual_time


@virtual_time
async def test_held_kinds_cost_no_request() -> None:
    world = World()
    world.make("a", "b", depth=2)
    async with world.cache_running(Buoy):
        world.server.requests.clear()
        assert (await world.cached.get(Buoy, key("a"))).spec.depth == 2
        assert len(await world.cached.list(Buoy)) == 2
        assert len(await world.cached.list(Buoy, namespace="lake")) == 0
        assert [b.metadata.name for b in await world.cached.list(Buoy, where=lambda b: b.key == key("b"))] == ["b"]
        assert await world.cached.find(Buoy, key("c")) is None
        with pytest.raises(NotFound, match='buoys "c" not found') as caught:
            await world.cached.get(Buoy, key("c"))
        assert (caught.value.code, caught.value.reason) == (404, "NotFound")
        assert world.server.requests == []


@virtual_time
async def test_a_kind_whose_informer_comes_late_is_awaited() -> None:
    world = World()
    world.make("a")
    async with world.cache_running():
        informer = world.cache.informer(Buoy)
        assert not informer.has_synced
        assert (await world.cached.get(Buoy, key("a"))).metadata.name == "a"
        world.cache.informer(ConfigMap)
        assert len(await world.cached.list(ConfigMap)) == 0


@virtual_time
async def test_a_kind_that_does_not_come_is_an_error_and_not_absent() -> None:
    world = World()
    world.cache.informer(Buoy)
    for read in (world.cached.get(Buoy, key("a")), world.cached.list(Buoy)):
        with pytest.raises(CacheNotSynced, match=r"10 s: buoys.sea.example.com \(no answer yet\)"):
            await read


@virtual_time
async def test_others_are_read_live() -> None:
    world = World()
    cached = world.cached
    assert await cached.find(ConfigMap, key("cm")) is None
    config = ConfigMapApply(metadata=ObjectMetaApply(name="cm", namespace=NAMESPACE), data={"a": "b"})
    await cached.apply(config)
    assert (await cached.get(ConfigMap, key("cm"))).data["a"] == "b"
    assert len(await cached.list(ConfigMap, namespace=NAMESPACE)) == 1
    await cached.delete(ConfigMap, key("cm"))
    assert await cached.find(ConfigMap, key("cm")) is None


@virtual_time
async def test_live_reads_go_past_the_cache() -> None:
    world = World()
    async with world.cache_running(Buoy):
        world.make("a")
        assert await world.cached.find(Buoy, key("a")) is None
        assert (await world.cached.live.get(Buoy, key("a"))).metadata.name == "a"


@virtual_time
async def test_writes_go_to_the_server() -> None:
    world = World()
    world.make("a")
    async with world.cache_running(Buoy):
        updated = await world.cached.apply_status(world.buoy("a"), BuoyStatus(depth=3))
        assert updated.status == BuoyStatus(depth=3)
        created = await world.cached.create(
            ConfigMapApply(metadata=ObjectMetaApply(name="cm", namespace=NAMESPACE), data={})
        )
        assert created.metadata.uid


def version(world: World, kind: type[Object], name: ObjectKey) -> str:
    """That of the cached object."""
    found = world.cache.informer(kind).store.get(name)
    return found.metadata.resource_version if found is not None else ""


def config(name: str = "cm", **data: str) -> ConfigMapApply:
    return ConfigMapApply(metadata=ObjectMetaApply(name=name, namespace=NAMESPACE), data=data)


@virtual_time
async def test_an_apply_that_changes_nothing_costs_no_request() -> None:
    world = World()
    async with world.cache_running(ConfigMap):
        cached = world.cached
        applied = await cached.apply(config(a="1"))
        await eventually(lambda: world.cache.informer(ConfigMap).store.get(key("cm")) is not None)
        world.server.requests.clear()
        assert await cached.apply(config(a="1")) == applied
        assert world.server.requests == []
        assert (await cached.apply(config(a="2"))).data == {"a": "2"}
        assert len(world.server.writes) == 1


@pytest.mark.parametrize("precondition", ["uid", "resourceVersion"])
@virtual_time
async def test_an_apply_with_a_precondition_is_sent(precondition: str) -> None:
    world, kind = World(), unstructured(ConfigMap.api_resource)
    identity = {"name": "cm", "namespace": NAMESPACE}
    async with world.cache_running(kind):
        await world.cached.apply(kind.of({"metadata": identity, "data": {"a": "1"}}))
        with pytest.raises((Conflict, Invalid)):
            await world.cached.apply(kind.of({"metadata": identity | {precondition: "1"}, "data": {"a": "1"}}))


@virtual_time
async def test_what_is_gone_is_not_made_again_by_an_apply_on_an_old_view() -> None:
    world = World()
    async with world.cache_running(ConfigMap):
        await world.cached.apply(config(a="1"))
        await eventually(lambda: world.cache.informer(ConfigMap).store.get(key("cm")) is not None)
        # At once, so that the watch tells nothing before the apply is on its way.
        world.server.answer(HttpRequest(method="DELETE", path=ConfigMap.api_resource.path(key("cm"))))
        with pytest.raises(Conflict, match="no existing object was found"):
            await world.cached.apply(config(a="2"))
        assert world.server.read(ConfigMap, key("cm")) is None
        # Now it has: whoever decides anew decides upon what there is.
        await eventually(lambda: world.cache.informer(ConfigMap).store.get(key("cm")) is None)
        assert (await world.cached.apply(config(a="2"))).data == {"a": "2"}


@virtual_time
async def test_a_namesake_is_not_taken_for_what_was_read() -> None:
    world = World()
    async with world.cache_running(ConfigMap):
        cached = world.cached
        first = await cached.apply(config(a="1"))
        await eventually(lambda: world.cache.informer(ConfigMap).store.get(key("cm")) is not None)
        world.server.answer(HttpRequest(method="DELETE", path=ConfigMap.api_resource.path(key("cm"))))
        world.server.load(ConfigMap(metadata=ObjectMeta(name="cm", namespace=NAMESPACE), data=FrozenDict(b="1")))
        with pytest.raises(Conflict, match="field is immutable") as refused:
            await cached.apply(config(a="2"))
        assert (refused.value.code, refused.value.reason) == (409, "Conflict")
        await eventually(lambda: version(world, ConfigMap, key("cm")) != first.metadata.resource_version)
        assert (await cached.apply(config(a="2"))).data == {"a": "2", "b": "1"}
        with pytest.raises(Conflict):
            await cached.apply(config(a="2"), uid=first.metadata.uid)


@virtual_time
async def test_drift_is_healed_by_the_next_apply() -> None:
    world = World()
    async with world.cache_running(ConfigMap):
        cached = world.cached
        await cached.apply(config(a="1"))
        stranger = Client(world.server, field_manager="stranger")
        drifted = await stranger.patch(ConfigMap, key("cm"), MergePatch({"data": {"a": "2"}}))
        await eventually(lambda: version(world, ConfigMap, key("cm")) == drifted.metadata.resource_version)
        assert (await cached.apply(config(a="1"))).data == {"a": "1"}


@virtual_time
async def test_a_status_that_is_there_costs_no_request() -> None:
    world = World()
    world.make("a")
    async with world.cache_running(Buoy):
        cached = world.cached
        described = await cached.apply_status(world.buoy("a"), BuoyStatus(depth=3))
        await eventually(lambda: world.cache.informer(Buoy).store.get(key("a")) == described)
        world.server.requests.clear()
        assert await cached.apply_status(described, BuoyStatus(depth=3)) == described
        assert world.server.requests == []
        assert (await cached.apply_status(described, BuoyStatus(depth=0))).status == BuoyStatus(depth=0)


@virtual_time
async def test_what_the_server_completes_is_applied_once() -> None:
    world = World()
    async with world.cache_running(StatefulSet):
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
        await eventually(lambda: version(world, StatefulSet, applied.key) == changed.metadata.resource_version)
        await cached.apply(statefulset())
        assert len(world.server.writes) == 3


@virtual_time
async def test_who_scales_and_applies_does_not_apply_for_ever() -> None:
    world = World()
    async with world.cache_running(StatefulSet):
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
async def test_what_was_written_is_read_before_the_watch_tells() -> None:
    world = World()
    async with world.cache_running(ConfigMap):
        cached = world.cached
        await cached.apply(config(a="1"))
        assert (await cached.get(ConfigMap, key("cm"))).data == {"a": "1"}
        await cached.delete(ConfigMap, key("cm"))
        assert await cached.find(ConfigMap, key("cm")) is None


@virtual_time
async def test_a_write_with_an_unknown_outcome_is_looked_up() -> None:
    world = World()
    async with world.cache_running(ConfigMap):
        cached = world.cached
        world.server.fail_next(matching("PATCH", "/configmaps/"), ConnectionFailed("lost"), when="after")
        with pytest.raises(ConnectionFailed):
            await cached.apply(config(a="1"))
        assert (await cached.get(ConfigMap, key("cm"))).data == {"a": "1"}
        world.server.fail_next(matching("PATCH", "/configmaps/"), ConnectionFailed("lost"), when="after")
        with pytest.raises(ConnectionFailed):
            await cached.apply(config(a="2"))
        assert [c.data["a"] for c in await cached.list(ConfigMap, namespace=NAMESPACE)] == ["2"]


@virtual_time
async def test_dependents_are_found_by_their_owner() -> None:
    world = World()
    world.make("a", "b")
    for cached_kinds in ((Buoy, ConfigMap), (Buoy,)):
        async with world.cache_running(*cached_kinds):
            cached = world.cached
            for name in ("a", "b"):
                await cached.apply(config(f"of-{name}", x="y"), owner=world.buoy(name))
            found = await cached.list(ConfigMap, owner=world.buoy("a"))
            assert [c.metadata.name for c in found] == ["of-a"]
            assert await cached.list(ConfigMap, owner=world.buoy("a"), namespace="lake") == ()


@virtual_time
async def test_objects_are_found_by_an_index() -> None:
    world = World()
    world.make("deep", depth=9)
    world.make("shallow", depth=1)
    world.cache.informer(Buoy).store.add_index("depth", lambda buoy: (str(buoy.spec.depth),))
    async with world.cache_running(Buoy):
        assert [b.metadata.name for b in await world.cached.list(Buoy, index=("depth", "9"))] == ["deep"]
        assert await world.cached.list(Buoy, index=("depth", "9"), where=lambda b: b.spec.depth < 9) == ()
        with pytest.raises(KeyError):
            await world.cached.list(Buoy, index=("width", "9"))
        with pytest.raises(ValueError, match="ConfigMap is not cached"):
            await world.cached.list(ConfigMap, index=("depth", "9"))
