"""Special entries of ``managedFields``: empty values, scales, schema changes and versions."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager

from apiserver_cases.api import Api, ApiResponse, Json, definition, deployment
from apiserver_cases.apply import fields_by_manager
from apiserver_cases.hooks import WebhookStub, served_webhook
from apiserver_cases.waiting import create_and_wait

_SLICE: Json = {
    "apiVersion": "discovery.k8s.io/v1",
    "kind": "EndpointSlice",
    "metadata": {"name": "a"},
    "addressType": "IPv4",
}


def _role(name: str, **fields: object) -> Json:
    return {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": {"name": name}, **fields}


async def case_an_empty_list_of_rules_is_owned(api: Api) -> None:
    created = await api.create("roles", _role("a", rules=[]), fieldManager="maker")
    assert fields_by_manager(created) == {("maker", "Update", ""): {"f:rules": {}}}
    assert created.body["rules"] is None
    for name, fields in (("b", {"rules": None}), ("c", {})):
        assert fields_by_manager(await api.create("roles", _role(name, **fields), fieldManager="maker")) == {}
    again = await api.put("roles", _role("a", rules=[]), fieldManager="putter")
    assert again.resource_version != created.resource_version
    assert fields_by_manager(again) == {("putter", "Update", ""): {"f:rules": {}}}
    assert (await api.put("roles", _role("a"), fieldManager="another")).resource_version == again.resource_version
    assert fields_by_manager(await api.merge("roles", "b", {"rules": []}, fieldManager="merger")) == {}


async def case_an_empty_list_of_endpoints_is_owned(api: Api) -> None:
    await api.create("endpointslices", _SLICE, fieldManager="maker")
    emptied = await api.merge("endpointslices", "a", {"endpoints": [], "ports": []}, fieldManager="two")
    assert fields_by_manager(emptied)["two", "Update", ""] == {"f:endpoints": {}, "f:ports": {}}
    assert emptied.metadata["generation"] == 1
    filled = await api.merge("endpointslices", "a", {"endpoints": [{"addresses": ["10.0.0.1"]}]}, fieldManager="two")
    assert filled.metadata["generation"] == 2
    emptied = await api.merge("endpointslices", "a", {"endpoints": []}, fieldManager="three")
    assert fields_by_manager(emptied)["three", "Update", ""] == {"f:endpoints": {}}


async def case_webhooks_receive_empty_lists(api: Api) -> None:
    hook = WebhookStub()
    async with served_webhook(api, hook):
        await api.create("roles", _role("a", rules=[]), fieldManager="maker")
        await api.merge("roles", "a", {"rules": []}, fieldManager="two")
    assert [r["object"]["rules"] for r in hook.requests] == [[], []]
    assert [r["oldObject"] and r["oldObject"]["rules"] for r in hook.requests] == [None, None]


async def _scale_by(api: Api, plural: str, replicas: int, manager: str) -> ApiResponse:
    """Return the object ``a`` after ``manager`` has set its scale."""
    (await api.merge(plural, "a", {"spec": {"replicas": replicas}}, "scale", fieldManager=manager)).expect_success()
    return await api.get(plural, "a")


async def case_unchanged_scale_takes_replicas_from_updater(api: Api) -> None:
    created = await api.create("deployments", deployment("a", replicas=2), fieldManager="maker")
    split = await _scale_by(api, "deployments", 2, "scaler")
    entries = split.metadata["managedFields"]
    assert [(e["manager"], "subresource" in e, "time" in e) for e in entries] == [
        ("maker", False, False),
        ("maker", False, True),
    ]
    assert entries[0]["fieldsV1"] == {"f:spec": {"f:replicas": {}}}
    assert split.resource_version != created.resource_version
    again = await _scale_by(api, "deployments", 2, "scaler")
    assert len(again.metadata["managedFields"]) == 1
    assert again.resource_version != split.resource_version
    assert (await _scale_by(api, "deployments", 2, "scaler")).resource_version == again.resource_version
    # The replicas have no manager now.
    assert set(fields_by_manager(await _scale_by(api, "deployments", 3, "scaler"))) == {("maker", "Update", "")}


async def case_duplicate_entries_merge_at_next_write(api: Api) -> None:
    await api.create("deployments", deployment("a", replicas=2), fieldManager="maker")
    split = await _scale_by(api, "deployments", 2, "scaler")
    written = await api.put("deployments", split.body | {"metadata": {"name": "a"}}, fieldManager="putter")
    assert len(written.expect_success().metadata["managedFields"]) == 1
    assert written.resource_version != split.resource_version


async def case_unchanged_scale_leaves_replicas_to_applier(api: Api) -> None:
    created = await api.apply("deployments", deployment("a", replicas=2), "applier")
    assert (await _scale_by(api, "deployments", 2, "scaler")).resource_version == created.resource_version
    scaled = await _scale_by(api, "deployments", 3, "scaler")
    assert fields_by_manager(scaled)["scaler", "Update", "scale"] == {"f:spec": {"f:replicas": {}}}
    (entry,) = [e for e in scaled.metadata["managedFields"] if e["manager"] == "scaler"]
    assert "time" not in entry
    assert (await _scale_by(api, "deployments", 3, "another")).resource_version == scaled.resource_version
    shared = await api.apply("deployments", deployment("a", replicas=3), "applier")
    assert set(fields_by_manager(shared)) == {("applier", "Apply", ""), ("scaler", "Update", "scale")}
    assert set(fields_by_manager(await _scale_by(api, "deployments", 0, "third"))) == {("applier", "Apply", "")}


async def case_custom_scale_ownership(api: Api) -> None:
    scaled = {"apiVersion": "cases.steersman.dev/v1", "kind": "Scaled", "metadata": {"name": "a"}}
    await api.create("scaleds", {**scaled, "spec": {"replicas": 2}}, fieldManager="maker")
    split = await _scale_by(api, "scaleds", 2, "scaler")
    assert len(split.metadata["managedFields"]) == 2
    assert fields_by_manager(await _scale_by(api, "scaleds", 3, "scaler")) == {
        ("maker", "Update", ""): {"f:spec": {}}
    }


_ITEM: Json = {"type": "object", "required": ["name"], "properties": {"name": {"type": "string"}}}
_KEYED: Json = {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]}
_TEXTS: Json = {"items": {"type": "string"}, "type": "array"}


def _list_schemas(*, atomic: bool) -> Json:
    """Return schemas of a map, a set and a keyed list.

    They are atomic or not.
    """
    marker = {"type": "string", "default": str(atomic)}
    types: tuple[Json, Json, Json] = ({}, {"x-kubernetes-list-type": "set"}, _KEYED)
    if atomic:
        atomic_list = {"x-kubernetes-list-type": "atomic"}
        types = {"x-kubernetes-map-type": "atomic"}, atomic_list, atomic_list
    return {
        "marker": marker,
        "texts": {"type": "object", "additionalProperties": {"type": "string"}, **types[0]},
        "tags": {**_TEXTS, **types[1]},
        "parts": {"type": "array", "items": _ITEM, **types[2]},
    }


@asynccontextmanager
async def _with_changed_schema(api: Api, *, atomic: bool) -> AsyncGenerator[Callable[..., Awaitable[ApiResponse]]]:
    """Return a function that applies to ``a`` after a schema change.

    Two managers have applied to it before.
    """
    body = definition("Lister", {"spec": {"type": "object", "properties": _list_schemas(atomic=not atomic)}}, {})
    group = body["spec"]["group"] = f"{api.namespace}.dev"
    name = body["metadata"]["name"] = f"listers.{group}"
    path = await create_and_wait(api, body)

    async def apply(manager: str, spec: Json, **query: str) -> ApiResponse:
        config = {"apiVersion": f"{group}/v1", "kind": "Lister", "metadata": {"name": "a"}, "spec": spec}
        query = {"fieldManager": manager, **query}
        return await api.call("PATCH", f"{path}/a", config, query, "application/apply-patch+yaml")

    (await apply("one", {"texts": {"k": "1"}, "tags": ["p"], "parts": [{"name": "a"}]})).expect_success()
    (
        await apply("two", {"texts": {"l": "2"}, "tags": ["q"], "parts": [{"name": "b"}]}, force="true")
    ).expect_success()
    versions = definition("Lister", {"spec": {"type": "object", "properties": _list_schemas(atomic=atomic)}}, {})[
        "spec"
    ]
    definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    patch = {"spec": {"versions": versions["versions"]}}
    (await api.call("PATCH", f"{definitions}/{name}", patch, None, "application/merge-patch+json")).expect_success()
    probe = {"apiVersion": f"{group}/v1", "kind": "Lister", "metadata": {"name": "probe"}, "spec": {}}
    async with asyncio.timeout(30):
        while (dry_run := await api.call("POST", path, probe, {"dryRun": "All"})).code != 201 or (
            dry_run.body["spec"]["marker"] != str(atomic)
        ):
            await asyncio.sleep(0.02)
    yield apply
    (await api.call("DELETE", f"{definitions}/{name}")).expect_success()


async def case_new_atomic_values_are_owned_as_a_whole(api: Api) -> None:
    async with _with_changed_schema(api, atomic=True) as apply:
        rejected = await apply("three", {"tags": ["p"]})
        assert {field for field, _ in rejected.expect_error(409, "Conflict").causes()} == {".spec.tags"}
        left = (await apply("one", {})).expect_success()
        assert fields_by_manager(left) == {
            ("two", "Apply", ""): {"f:spec": {"f:parts": {}, "f:tags": {}, "f:texts": {}}},
            ("one", "Apply", ""): {"f:spec": {}},
        }
        assert left.body["spec"]["tags"] == ["p", "q"]
        forced = (await apply("three", {"tags": ["r"]}, force="true")).expect_success()
        assert forced.body["spec"]["tags"] == ["r"]


async def case_new_granular_values_stay_owned_as_a_whole(api: Api) -> None:
    async with _with_changed_schema(api, atomic=False) as apply:
        added = (await apply("three", {"tags": ["r"], "texts": {"m": "3"}})).expect_success()
        assert fields_by_manager(added)["three", "Apply", ""] == {
            "f:spec": {"f:tags": {'v:"r"': {}}, "f:texts": {"f:m": {}}}
        }
        assert fields_by_manager(added)["two", "Apply", ""] == {
            "f:spec": {"f:parts": {}, "f:tags": {}, "f:texts": {}}
        }
