"""Conversion between versions, without loss of fields."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Annotated, Any, Literal

import pytest
from msgspec.structs import replace

from steersman.api.batch_v1 import JobTemplateSpec
from steersman.client import Client, MergePatch
from steersman.errors import ConfigurationError, InternalError
from steersman.manager import Manager
from steersman.meta import (
    Field,
    FrozenDict,
    FrozenStruct,
    ObjectKey,
    Resource,
    Spec,
    Status,
    decode_builtins,
    resource,
    unstructured,
)
from steersman.webhook import Conversion, ConversionFailed, Spoke, WebhookServerOptions, copy_fields
from steersman.webhook.conversion import CONVERT_PATH, HUB_ANNOTATION
from steersman.webhook.field_copying import to_explicit_builtins
from steersman_manifests.crd import definition
from steersman_testing import InMemoryApiServer, virtual_runtime, virtual_time
from steersman_testing.conversions import assert_round_trips
from steersman_testing.webhooks import serve_webhooks


class Door(FrozenStruct):
    name: str
    width: Annotated[int, Field(ge=-9)] = 1
    colour: Annotated[str, Field(max_length=40)] = "brown"


class ShopSpecV2(Spec):
    domain: str
    doors: tuple[Door, ...] = ()
    tier: Literal["small", "large", "huge"] = "small"
    labels: FrozenDict[str, str] = FrozenDict()


class DoorV1(FrozenStruct):
    name: str
    width: Annotated[int, Field(ge=-9)] = 1


class ShopSpecV1(Spec):
    host: str
    doors: tuple[DoorV1, ...] = ()
    big: bool = False


@resource(group="example.com", version="v2", plural="shops")
class ShopV2(Resource[ShopSpecV2, Status]):
    """A shop."""


@resource(group="example.com", version="v1", plural="shops")
class ShopV1(Resource[ShopSpecV1, Status]):
    """A shop."""


ShopV1.api_resource = ShopV1.api_resource._replace(kind="Shop")
ShopV2.api_resource = ShopV2.api_resource._replace(kind="Shop")


def to_v2(old: ShopV1) -> ShopV2:
    doors = tuple(Door(name=d.name, width=d.width) for d in old.spec.doors)
    spec = ShopSpecV2(domain=old.spec.host, doors=doors, tier="large" if old.spec.big else "small")
    return ShopV2(metadata=old.metadata, spec=spec, status=old.status)


def to_v1(new: ShopV2) -> ShopV1:
    doors = tuple(DoorV1(name=d.name, width=d.width) for d in new.spec.doors)
    spec = ShopSpecV1(host=new.spec.domain, doors=doors, big=new.spec.tier != "small")
    return ShopV1(metadata=new.metadata, spec=spec, status=new.status)


SHOPS = Conversion(ShopV2, Spoke(ShopV1, to_hub=to_v2, from_hub=to_v1))
KEY = ObjectKey("default", "till")
METADATA = {"name": "till", "namespace": "default", "uid": "7", "labels": {"a": "b"}}


def shop(version: str, **spec: Any) -> dict[str, Any]:
    return {"apiVersion": f"example.com/{version}", "kind": "Shop", "metadata": METADATA, "spec": spec}


def test_shops_round_trip_between_versions() -> None:
    assert_round_trips(SHOPS)


def test_spoke_annotation_keeps_hub_fields() -> None:
    hub = shop("v2", domain="x", tier="huge", doors=[{"name": "a", "colour": "red"}, {"name": "b", "colour": "blue"}])
    spoke = SHOPS.convert(hub, "example.com/v1")
    assert spoke["spec"] == {"host": "x", "big": True, "doors": [{"name": n, "width": 1} for n in "ab"]}
    assert spoke["metadata"]["labels"] == METADATA["labels"]
    assert json.loads(spoke["metadata"]["annotations"][HUB_ANNOTATION]) == {"spec": hub["spec"]}
    assert SHOPS.convert(spoke, "example.com/v2") == hub

    spoke["spec"] = {"host": "y", "big": True, "doors": [{"name": "b", "width": 3}, {"name": "c"}]}
    assert SHOPS.convert(spoke, "example.com/v2")["spec"] == {
        "domain": "y",
        "tier": "huge",
        "doors": [{"name": "b", "colour": "blue", "width": 3}, {"name": "c"}],
    }
    spoke["spec"]["big"] = False
    assert SHOPS.convert(spoke, "example.com/v2")["spec"]["tier"] == "small"


def test_conversion_writes_defaults() -> None:
    converted = SHOPS.convert(shop("v1", host="x"), "example.com/v2")
    assert converted["spec"] == {"domain": "x", "tier": "small"}
    assert "annotations" not in converted["metadata"]


@pytest.mark.parametrize(
    ("document", "message"),
    [
        (shop("v1", host="x", colour="red"), "field spec.colour is unknown in ShopV1 v1 and would be lost"),
        (shop("v1", host="x", doors=[{"name": "a", "lock": {}}]), r"field spec.doors\[0\].lock"),
        (shop("v1", host=3), "object does not match ShopV1 v1: Expected `str`"),
        (shop("v3", host="x"), "unknown version example.com/v3"),
        (
            {**shop("v1", host="x"), "metadata": {**METADATA, "annotations": {HUB_ANNOTATION: "{"}}},
            "is not valid JSON",
        ),
    ],
)
def test_lossy_conversion_is_rejected(document: dict[str, Any], message: str) -> None:
    with pytest.raises(ConversionFailed, match=message):
        SHOPS.convert(document, "example.com/v2")


def test_edited_annotation_is_validated() -> None:
    spoke = shop("v1", host="x", doors=[{"name": "a"}])
    for spec, message in (
        ({"domain": "x", "tier": "vast"}, "Invalid enum value 'vast'"),
        ({"domain": "x", "colour": "red"}, "field spec.colour is unknown"),
        (
            {"domain": "x", "doors": [{"name": "a", "colour": "r" * 41}]},
            r"steersman.dev/hub makes the object invalid: .spec.doors\[0\].colour must be at most 40 characters long",
        ),
    ):
        annotations = {HUB_ANNOTATION: json.dumps({"spec": spec})}
        written = {**spoke, "metadata": {**METADATA, "annotations": annotations}}
        with pytest.raises(ConversionFailed, match=message):
            SHOPS.convert(written, "example.com/v2")


def test_hub_losing_spoke_fields_is_detected() -> None:
    def wide(old: ShopV1) -> ShopV2:
        shop = to_v2(old)
        doors = tuple(replace(d, width=d.width - 10) for d in shop.spec.doors)
        return replace(shop, spec=replace(shop.spec, doors=doors))

    def narrow(new: ShopV2) -> ShopV1:
        shop = to_v1(new)
        doors = tuple(replace(d, width=d.width + 10) for d in shop.spec.doors)
        return replace(shop, spec=replace(shop.spec, doors=doors))

    with pytest.raises(AssertionError, match=r"v1 becomes a v2 that the API server would reject: .*must be at least"):
        assert_round_trips(Conversion(ShopV2, Spoke(ShopV1, to_hub=wide, from_hub=narrow)))


class Old(FrozenStruct):
    first_name: str
    doors: tuple[DoorV1, ...] = ()
    size: int | None = 5
    labels: FrozenDict[str, str] = FrozenDict()
    deleted: str = ""


class New(FrozenStruct):
    first_name: str
    doors: tuple[Door, ...] = ()
    size: int | None = 7
    labels: FrozenDict[str, str] = FrozenDict()
    height: int


def test_conversion_keeps_absent_builtin_fields_absent() -> None:
    assert to_explicit_builtins(JobTemplateSpec()) == {}
    template = decode_builtins({"metadata": {"labels": {"a": "b"}}, "spec": {"backoffLimit": 0}}, JobTemplateSpec)
    assert to_explicit_builtins(template) == {"metadata": {"labels": {"a": "b"}}, "spec": {"backoffLimit": 0}}


class Otherwise(FrozenStruct):
    doors: tuple[str, ...] = ()


def test_copy_fields_converts_equal_names() -> None:
    old = Old(first_name="a", doors=(DoorV1(name="d"),), labels=FrozenDict(x="y"))
    assert copy_fields(old, New, height=3) == New(
        first_name="a", doors=(Door(name="d"),), size=5, labels=FrozenDict(x="y"), height=3
    )
    with pytest.raises(ConversionFailed, match=r"cannot convert Old to New: .*height"):
        copy_fields(old, New)
    with pytest.raises(ConversionFailed, match="firstname"):
        copy_fields(old, New, height=3, firstname="b")
    with pytest.raises(ConversionFailed, match=r"field doors does not match: .*Expected `str`"):
        copy_fields(New(first_name="a", doors=(Door(name="d"),), height=3), Otherwise)


def test_lossy_conversion_is_detected_by_round_trip() -> None:
    def forgets_doors(old: ShopV1) -> ShopV2:
        return ShopV2(metadata=old.metadata, spec=ShopSpecV2(domain=old.spec.host), status=old.status)

    def forgets_status(new: ShopV2) -> ShopV1:
        return replace(to_v1(new), status=Status())

    def always_big(new: ShopV2) -> ShopV1:
        shop = to_v1(new)
        return replace(shop, spec=replace(shop.spec, big=True))

    for up, down, message in (
        (forgets_doors, to_v1, "v1 through v2 is changed: spec.(doors|big) is lost"),
        (to_v2, forgets_status, "is changed: .*status.* is lost"),
        (to_v2, always_big, "v1 through v2 is changed: .*spec.big is True"),
    ):
        with pytest.raises(AssertionError, match=message):
            assert_round_trips(Conversion(ShopV2, Spoke(ShopV1, to_hub=up, from_hub=down)))


def test_versions_are_of_one_kind() -> None:
    with pytest.raises(ConfigurationError, match="is not another version of"):
        Conversion(ShopV2, Spoke(ShopV2, to_hub=lambda s: s, from_hub=lambda s: s))
    with pytest.raises(ConfigurationError, match="two spokes of one version"):
        Conversion(ShopV2, *SHOPS.spokes.values(), *SHOPS.spokes.values())


def test_total_body_limit_admits_the_largest_review() -> None:
    manager = Manager(InMemoryApiServer(virtual_runtime()), runtime=virtual_runtime())
    manager.conversion(SHOPS)
    webhooks = manager.webhooks
    assert webhooks.max_total_body_size >= 2 * webhooks.max_body_size(CONVERT_PATH) > 0


def street() -> SimpleNamespace:
    """An API server that stores v2 and serves both versions."""
    runtime = virtual_runtime()
    server = InMemoryApiServer(runtime)
    manager = Manager(server, runtime=runtime)
    manager.conversion(SHOPS)
    crd, old = definition(ShopV2), definition(ShopV1)
    crd["spec"]["versions"].append({**old["spec"]["versions"][0], "storage": False})
    serving = WebhookServerOptions(service="webhooks", namespace="default")
    crd["spec"]["conversion"] = manager.webhooks.conversion_webhook(serving).to_wire()
    crd["spec"]["names"] = {"kind": "Shop", "plural": "shops"}
    crd["metadata"]["name"] = "shops.example.com"
    serve_webhooks(server, manager)
    server.load(crd)
    return SimpleNamespace(server=server, manager=manager, client=Client(server, field_manager="user"))


@virtual_time
async def test_old_client_update_keeps_new_fields() -> None:
    world = street()
    old, new = unstructured(ShopV1.api_resource), unstructured(ShopV2.api_resource)
    await world.client.create(new.of(shop("v2", domain="x", tier="huge", doors=[{"name": "a", "colour": "red"}])))
    await world.client.patch(old, KEY, MergePatch({"spec": {"host": "y"}}))
    found = await world.client.get(new, KEY)
    assert found.content["spec"] == {
        "domain": "y",
        "tier": "huge",
        "doors": ({"name": "a", "width": 1, "colour": "red"},),
    }
    assert not found.metadata.annotations
    assert [o.content["spec"]["host"] for o in (await world.client.list(old)).items] == ["y"]


@virtual_time
async def test_failing_conversion_names_object_without_values() -> None:
    world = street()

    def broken(new: ShopV2) -> ShopV1:
        raise ValueError("hunter2")

    new = unstructured(ShopV2.api_resource)
    await world.client.create(new.of(shop("v2", domain="x")))
    world.manager.webhooks.conversions[0].spokes["example.com/v1"].from_hub = broken
    with pytest.raises(InternalError, match="Shop default/till: conversion failed; see the logs") as caught:
        await world.client.get(unstructured(ShopV1.api_resource), KEY)
    assert "hunter2" not in str(caught.value)
