"""create_or_patch sends the difference only, and keeps unknown fields."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from framework_support.controller_env import NAMESPACE, ControllerEnv, key
from framework_support.widget import Widget, WidgetSpec
from steersman.api.core_v1 import ConfigMap
from steersman.cache import Cache, InformerOptions
from steersman.client import JsonPatch
from steersman.controller import create_or_patch
from steersman.errors import Conflict
from steersman.meta import (
    FrozenDict,
    FrozenStruct,
    ObjectMeta,
    Resource,
    Spec,
    Status,
    resource,
    unstructured,
)
from steersman.meta.json_patch import diff
from steersman_testing import virtual_time
from steersman_testing.apiserver.fields.patches import json_patch


def new_config_map(name: str) -> ConfigMap:
    return ConfigMap(metadata=ObjectMeta(name=name, namespace=NAMESPACE))


def with_data(**data: str) -> Any:
    def mutate(config: ConfigMap) -> ConfigMap:
        return replace(config, data=FrozenDict({**config.data, **data}))

    return mutate


@pytest.mark.requirement("design/create-or-update", "overview/create-or-update")
@virtual_time
async def test_create_or_patch_creates_patches_or_skips() -> None:
    world = ControllerEnv()
    async with world.running_cache(ConfigMap):
        made, outcome = await create_or_patch(world.cached, new_config_map("c"), with_data(a="1"))
        assert (outcome, made.data) == ("created", {"a": "1"})
        made, outcome = await create_or_patch(world.cached, new_config_map("c"), with_data(b="2"))
        assert (outcome, made.data) == ("patched", {"a": "1", "b": "2"})
        world.server.requests.clear()
        made, outcome = await create_or_patch(world.cached, new_config_map("c"), with_data(b="2"))
        assert (outcome, made.data) == ("unchanged", {"a": "1", "b": "2"})
        assert world.server.requests == []


@pytest.mark.requirement("programming/conflict")
@virtual_time
async def test_create_or_patch_concurrent_change_conflicts() -> None:
    world = ControllerEnv()
    world.create_widgets("b")
    read = world.read_widget("b")

    async def find(*_: Any) -> Widget:
        return read

    cached = world.cached
    cached.get_or_none = find  # pyright: ignore[reportAttributeAccessIssue]
    await world.client.patch(Widget, key("b"), JsonPatch([{"op": "replace", "path": "/spec/depth", "value": 7}]))
    with pytest.raises(Conflict):
        await create_or_patch(cached, read, lambda widget: replace(widget, spec=WidgetSpec(depth=2)))
    assert world.read_widget("b").spec.depth == 7


@virtual_time
async def test_create_or_patch_keeps_transformed_fields() -> None:
    world = ControllerEnv()
    stripped = InformerOptions(transform=lambda config: replace(config, data=FrozenDict()))
    world.cache = Cache(world.client, runtime=world.runtime)
    world.cache.configure(ConfigMap, stripped)
    async with world.running_cache(ConfigMap):
        for data, expected in (({"a": "1"}, "created"), ({"b": "2"}, "patched"), ({"b": "2"}, "unchanged")):
            made, outcome = await create_or_patch(world.cached, new_config_map("c"), with_data(**data))
            assert outcome == expected
        assert made.data == {"a": "1", "b": "2"}


@virtual_time
async def test_create_or_patch_rejects_rename() -> None:
    world = ControllerEnv()
    with pytest.raises(ValueError, match="cannot be renamed"):
        await create_or_patch(world.cached, new_config_map("c"), lambda _: new_config_map("d"))


class Berth(FrozenStruct):
    """A part of a Quay with fewer fields than the server has."""

    name: str = ""
    depth: int = 1


class QuaySpec(Spec):
    """The spec of a Quay."""

    berths: tuple[Berth, ...] = ()


@resource(group="shop.example.com", version="v1")
class Quay(Resource[QuaySpec, Status]):
    """A kind that has become newer than this type."""


@pytest.mark.parametrize("kept", [("a", "b", "c"), ("b", "c"), ("a", "c"), ("new", "b"), ("a", "new", "b", "c")])
@virtual_time
async def test_create_or_patch_keeps_unknown_item_fields(kept: tuple[str, ...]) -> None:
    world = ControllerEnv()
    # Served without a schema, and so with any field.
    world.server.register(Quay.api_resource)
    berths = [{"name": name, "depth": ord(name), "fromTheFuture": name} for name in "abc"]
    identity = {"name": "q", "namespace": NAMESPACE}
    world.server.load(
        {"apiVersion": "shop.example.com/v1", "kind": "Quay", "metadata": identity, "spec": {"berths": berths}}
    )

    def mutate(quay: Quay) -> Quay:
        known = {berth.name: replace(berth, depth=berth.depth + 1) for berth in quay.spec.berths}
        wanted = tuple(known.get(name, Berth(name=name)) for name in kept)
        return replace(quay, spec=replace(quay.spec, berths=wanted))

    empty_quay = Quay(metadata=ObjectMeta(name="q", namespace=NAMESPACE), spec=QuaySpec())
    await create_or_patch(world.cached, empty_quay, mutate)
    quay = world.server.read(unstructured(Quay.api_resource), key("q"))
    assert quay is not None
    assert [(berth["name"], berth.get("fromTheFuture", "new")) for berth in quay.content["spec"]["berths"]] == [
        (name, name) for name in kept
    ]


documents = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.text("ab/~", max_size=2),
    lambda inner: (
        st.lists(inner | st.fixed_dictionaries({"name": st.sampled_from("abc"), "x": inner}), max_size=4)
        | st.dictionaries(st.text("ab/~", max_size=2), inner, max_size=4)
    ),
    max_leaves=12,
)


@given(old=documents, new=documents)
def test_patch_turns_old_into_new(old: Any, new: Any) -> None:
    before, after = {"metadata": {"name": "x"}, "o": old}, {"metadata": {"name": "x"}, "o": new}
    made = json_patch(before, diff(before, after))
    # As text, since to Python 1 equals True.
    assert json.dumps(made, sort_keys=True) == json.dumps(after, sort_keys=True)
