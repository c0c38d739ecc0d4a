"""Detection of applies that would change nothing."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest

from framework_support.apply_configurations import NAMESPACE, all_apply_configurations, deployment, metadata, service
from framework_support.widget import Widget, WidgetApply, WidgetSpecApply, WidgetStatus, widget
from steersman.api.apply import core
from steersman.api.core_v1 import ConfigMap
from steersman.client import Client, MergePatch
from steersman.client.encode import status_document, with_owner
from steersman.client.managed_fields import apply_would_change
from steersman.meta import ApplyConfiguration, Object, ObjectKey, ObjectMeta, unstructured
from steersman_testing import InMemoryApiServer, virtual_time

MANAGER = "tester"
# The API server adds defaults to PVC templates, which are atomic: the stored value differs from the declared one.
DETECTABLE = [name for name in all_apply_configurations() if name != "a stateful set"]


@asynccontextmanager
async def connected_client() -> AsyncGenerator[Client]:
    server = InMemoryApiServer()
    server.register(Widget)
    yield Client(server, field_manager=MANAGER)


def would_change(config: ApplyConfiguration[Any], obj: Object) -> bool:
    return apply_would_change(with_owner(config), obj, MANAGER)


@pytest.mark.parametrize("name", DETECTABLE)
@virtual_time
async def test_apply_repeated_would_not_change(name: str) -> None:
    async with connected_client() as client:
        config = all_apply_configurations()[name]
        applied = await client.apply(config)
        assert not would_change(config, applied)
        assert (await client.apply(config)).metadata.resource_version == applied.metadata.resource_version


@pytest.mark.parametrize("name", DETECTABLE)
@virtual_time
async def test_apply_repeated_untyped_would_not_change(name: str) -> None:
    async with connected_client() as client:
        config = all_apply_configurations()[name]
        kind = unstructured(config.read_type.api_resource)
        untyped = kind.of(with_owner(config))
        applied = await client.apply(untyped)
        assert not apply_would_change(with_owner(untyped), applied, MANAGER)
        assert not apply_would_change(with_owner(untyped), await client.get(config.read_type, config.key), MANAGER)


@virtual_time
async def test_apply_with_server_defaults_would_change() -> None:
    async with connected_client() as client:
        config = all_apply_configurations()["a stateful set"]
        assert would_change(config, await client.apply(config))


@virtual_time
async def test_changed_added_or_removed_fields_would_change() -> None:
    async with connected_client() as client:
        config = core.ConfigMap(metadata=metadata("c", labels={"x": "1"}), data={"a": "1"})
        applied = await client.apply(config)
        for other in (
            core.ConfigMap(metadata=metadata("c", labels={"x": "1"}), data={"a": "2"}),
            core.ConfigMap(metadata=metadata("c", labels={"x": "1"}), data={"a": "1", "b": "1"}),
            core.ConfigMap(metadata=metadata("c", labels={"x": "1"}), data={}),
            core.ConfigMap(metadata=metadata("c", labels={"x": "1"})),
            core.ConfigMap(metadata=metadata("c"), data={"a": "1"}),
            core.ConfigMap(metadata=metadata("c", labels={"x": "1"}), data={"a": "1"}, immutable=False),
        ):
            assert would_change(other, applied), other


@virtual_time
async def test_items_of_lists_count_each() -> None:
    async with connected_client() as client:
        applied = await client.apply(service(80, 443))
        assert not would_change(service(80, 443), applied)
        assert would_change(service(80), applied)
        assert would_change(service(80, 443, 8080), applied)
        assert would_change(service(443, 80), applied), "the order is ours to decide"


@virtual_time
async def test_declared_default_is_a_change() -> None:
    async with connected_client() as client:
        body = with_owner(deployment())
        applied = await client.apply(deployment())
        containers = body["spec"]["template"]["spec"]["containers"]
        containers[0]["terminationMessagePath"] = "/dev/termination-log"
        assert apply_would_change(body, applied, MANAGER)


@virtual_time
async def test_apply_after_foreign_change_would_change() -> None:
    async with connected_client() as client:
        config = core.ConfigMap(metadata=metadata("c"), data={"a": "1"})
        key = ObjectKey(NAMESPACE, "c")
        await client.apply(config)
        added = await client.patch(ConfigMap, key, MergePatch({"data": {"b": "2"}}))
        assert not would_change(config, added), "another manager's field is no business of ours"
        stranger = MergePatch({"data": {"a": "2"}})
        changed = await client.patch(ConfigMap, key, stranger)
        assert would_change(config, changed)
        healed = await client.apply(config)
        assert not would_change(config, healed)


@virtual_time
async def test_other_manager_or_version_is_not_conclusive() -> None:
    async with connected_client() as client:
        config = core.ConfigMap(metadata=metadata("c"), data={"a": "1"})
        applied = await client.apply(config)
        assert apply_would_change(with_owner(config), applied, "somebody-else")
        assert apply_would_change(with_owner(config) | {"apiVersion": "v2"}, applied, MANAGER)
        created = await client.create(
            ConfigMap(metadata=ObjectMeta(name="d", namespace=NAMESPACE), data=applied.data)
        )
        assert apply_would_change(with_owner(config), created, MANAGER), "created, so never applied"


@virtual_time
async def test_owners_are_compared_too() -> None:
    async with connected_client() as client:
        owner = await client.apply(WidgetApply(metadata=metadata("owner"), spec=WidgetSpecApply(depth=1)))
        config = core.ConfigMap(metadata=metadata("c"), data={"a": "1"})
        applied = await client.apply(config, owner=owner)
        assert not apply_would_change(with_owner(config, owner), applied, MANAGER)
        assert would_change(config, applied)
        again = msgspec.structs.replace(owner, metadata=msgspec.structs.replace(owner.metadata, uid="another"))
        assert apply_would_change(with_owner(config, again), applied, MANAGER)


def test_with_owner_keeps_declared_owners() -> None:
    other = {"apiVersion": "v1", "kind": "Node", "name": "n", "uid": "1"}
    identity = {"name": "c", "namespace": NAMESPACE, "ownerReferences": [other]}
    untyped = unstructured(ConfigMap.api_resource).of({"metadata": identity})
    document = with_owner(untyped, widget(namespace=NAMESPACE))
    assert [owner["name"] for owner in document["metadata"]["ownerReferences"]] == ["n", "a"]


@virtual_time
async def test_status_apply_is_compared_separately() -> None:
    async with connected_client() as client:
        config = WidgetApply(metadata=metadata("b"), spec=WidgetSpecApply(depth=1))
        applied = await client.apply(config)
        status = WidgetStatus(depth=0, note="")
        described = await client.apply_status(applied, status)
        assert not apply_would_change(status_document(described, status), described, MANAGER, "status")
        assert not would_change(config, described)
        for other in (WidgetStatus(depth=1), WidgetStatus(depth=None), WidgetStatus(depth=0, note="x")):
            assert apply_would_change(status_document(described, other), described, MANAGER, "status"), other


@virtual_time
async def test_unstructured_apply_is_compared() -> None:
    async with connected_client() as client:
        kind = unstructured(ConfigMap.api_resource)
        content: dict[str, Any] = {"metadata": {"name": "c", "namespace": NAMESPACE}, "data": {"a": "1"}}
        applied = await client.apply(kind.of(content))
        assert not apply_would_change(with_owner(kind.of(content)), applied, MANAGER)
        for data in ({"a": "2"}, {"a": "1", "b": "1"}, {}):
            assert apply_would_change(with_owner(kind.of(content | {"data": data})), applied, MANAGER), data
