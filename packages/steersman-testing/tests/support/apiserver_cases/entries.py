"""Entries of ``managedFields`` that come about in odd ways: what is empty or scaled, new schemas and versions."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager

from apiserver_cases.api import Api, Json, Reply, definition, deployment
from apiserver_cases.apply import managers
from apiserver_cases.hooks import Hook, configured
from apiserver_cases.waiting import served

_SLICE: Json = {
    "apiVersion": "discovery.k8s.io/v1",
    "kind": "EndpointSlice",
    "metadata": {"name": "a"},
    "addressType": "IPv4",
}


def _role(name: str, **fields: object) -> Json:
    return {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": {"name": name}, **fields}


async def case_an_empty_list_of_rules_is_owned(api: Api) -> None:
    made = await api.create("roles", _role("a", rules=[]), fieldManager="maker")
    assert managers(made) == {("maker", "Update", ""): {"f:rules": {}}}
    assert made.body["rules"] is None
    for name, fields in (("b", {"rules": None}), ("c", {})):
        assert managers(await api.create("roles", _role(name, **fields), fieldManager="maker")) == {}
    again = await api.put("roles", _role("a", rules=[]), fieldManager="putter")
    assert again.version != made.version
    assert managers(again) == {("putter", "Update", ""): {"f:rules": {}}}
    assert (await api.put("roles", _role("a"), fieldManager="another")).version == again.version
    assert managers(await api.merge("roles", "b", {"rules": []}, fieldManager="merger")) == {}


async def case_an_empty_list_of_endpoints_is_owned(api: Api) -> None:
    await api.create("endpointslices", _SLICE, fieldManager="maker")
    emptied = await api.merge("endpointslices", "a", {"endpoints": [], "ports": []}, fieldManager="two")
    assert managers(emptied)["two", "Update", ""] == {"f:endpoints": {}, "f:ports": {}}
    assert emptied.metadata["generation"] == 1
    filled = await api.merge("endpointslices", "a", {"endpoints": [{"addresses": ["10.0.0.1"]}]}, fieldManager="two")
    assert filled.metadata["generation"] == 2
    emptied = await api.merge("endpointslices", "a", {"endpoints": []}, fieldManager="three")
    assert managers(emptied)["three", "Update", ""] == {"f:endpoints": {}}


async def case_webhooks_are_told_of_an_empty_list(api: Api) -> None:
    hook = Hook()
    async with configured(api, hook):
        await api.create("roles", _role("a", rules=[]), fieldManager="maker")
        await api.merge("roles", "a", {"rules": []}, fieldManager="two")
    assert [r["object"]["rules"] for r in hook.requests] == [[], []]
    assert [r["oldObject"] and r["oldObject"]["rules"] for r in hook.requests] == [None, None]


async def _scaled(api: Api, plural: str, replicas: int, manager: str) -> Reply:
    """The object ``a`` after ``manager`` has set its scale."""
    (await api.merge(plural, "a", {"spec": {"replicas": replicas}}, "scale", fieldManager=manager)).ok()
    return await api.get(plural, "a")


async def case_a_scale_that_stays_takes_the_number_from_who_updated_it(api: Api) -> None:
    made = await api.create("deployments", deployment("a", replicas=2), fieldManager="maker")
    split = await _scaled(api, "deployments", 2, "scaler")
    entries = split.metadata["managedFields"]
    assert [(e["manager"], "subresource" in e, "time" in e) for e in entries] == [
        ("maker", False, False),
        ("maker", False, True),
    ]
    assert entries[0]["fieldsV1"] == {"f:spec": {"f:replicas": {}}}
    assert split.version != made.version
    again = await _scaled(api, "deployments", 2, "scaler")
    assert len(again.metadata["managedFields"]) == 1
    assert again.version != split.version
    assert (await _scaled(api, "deployments", 2, "scaler")).version == again.version
    # The number is nobody's now.
    assert set(managers(await _scaled(api, "deployments", 3, "scaler"))) == {("maker", "Update", "")}


async def case_two_entries_of_one_name_are_one_at_the_next_write(api: Api) -> None:
    await api.create("deployments", deployment("a", replicas=2), fieldManager="maker")
    split = await _scaled(api, "deployments", 2, "scaler")
    written = await api.put("deployments", split.body | {"metadata": {"name": "a"}}, fieldManager="putter")
    assert len(written.ok().metadata["managedFields"]) == 1
    assert written.version != split.version


async def case_a_scale_that_stays_leaves_the_number_to_who_applied_it(api: Api) -> None:
    made = await api.apply("deployments", deployment("a", replicas=2), "applier")
    assert (await _scaled(api, "deployments", 2, "scaler")).version == made.version
    scaled = await _scaled(api, "deployments", 3, "scaler")
    assert managers(scaled)["scaler", "Update", "scale"] == {"f:spec": {"f:replicas": {}}}
    (entry,) = [e for e in scaled.metadata["managedFields"] if e["manager"] == "scaler"]
    assert "time" not in entry
    assert (await _scaled(api, "deployments", 3, "another")).version == scaled.version
    shared = await api.apply("deployments", deployment("a", replicas=3), "applier")
    assert set(managers(shared)) == {("applier", "Apply", ""), ("scaler", "Update", "scale")}
    assert set(managers(await _scaled(api, "deployments", 0, "third"))) == {("applier", "Apply", "")}


async def case_the_scale_of_a_custom_resource_is_owned_so_too(api: Api) -> None:
    scaled = {"apiVersion": "cases.steersman.dev/v1", "kind": "Scaled", "metadata": {"name": "a"}}
    await api.create("scaleds", {**scaled, "spec": {"replicas": 2}}, fieldManager="maker")
    split = await _scaled(api, "scaleds", 2, "scaler")
    assert len(split.metadata["managedFields"]) == 2
    assert managers(await _scaled(api, "scaleds", 3, "scaler")) == {("maker", "Update", ""): {"f:spec": {}}}


_ITEM: Json = {"type": "object", "required": ["name"], "properties": {"name": {"type": "string"}}}
_KEYED: Json = {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]}
_TEXTS: Json = {"items": {"type": "string"}, "type": "array"}


def _lists(*, atomic: bool) -> Json:
    """A schema of a map, a set and a keyed list, each of them merged or replaced as a whole."""
    marker = {"type": "string", "default": str(atomic)}
    types: tuple[Json, Json, Json] = ({}, {"x-kubernetes-list-type": "set"}, _KEYED)
    if atomic:
        whole = {"x-kubernetes-list-type": "atomic"}
        types = {"x-kubernetes-map-type": "atomic"}, whole, whole
    return {
        "marker": marker,
        "texts": {"type": "object", "additionalProperties": {"type": "string"}, **types[0]},
        "tags": {**_TEXTS, **types[1]},
        "parts": {"type": "array", "items": _ITEM, **types[2]},
    }


@asynccontextmanager
async def _changed(api: Api, *, atomic: bool) -> AsyncGenerator[Callable[..., Awaitable[Reply]]]:
    """How to apply to ``a``, to which two have applied, by a definition whose lists have become ``atomic`` or not."""
    body = definition("Lister", {"spec": {"type": "object", "properties": _lists(atomic=not atomic)}}, {})
    group = body["spec"]["group"] = f"{api.namespace}.dev"
    name = body["metadata"]["name"] = f"listers.{group}"
    path = await served(api, body)

    async def apply(manager: str, spec: Json, **query: str) -> Reply:
        config = {"apiVersion": f"{group}/v1", "kind": "Lister", "metadata": {"name": "a"}, "spec": spec}
        query = {"fieldManager": manager, **query}
        return await api.call("PATCH", f"{path}/a", config, query, "application/apply-patch+yaml")

    (await apply("one", {"texts": {"k": "1"}, "tags": ["p"], "parts": [{"name": "a"}]})).ok()
    (await apply("two", {"texts": {"l": "2"}, "tags": ["q"], "parts": [{"name": "b"}]}, force="true")).ok()
    versions = definition("Lister", {"spec": {"type": "object", "properties": _lists(atomic=atomic)}}, {})["spec"]
    definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    patch = {"spec": {"versions": versions["versions"]}}
    (await api.call("PATCH", f"{definitions}/{name}", patch, None, "application/merge-patch+json")).ok()
    probe = {"apiVersion": f"{group}/v1", "kind": "Lister", "metadata": {"name": "probe"}, "spec": {}}
    async with asyncio.timeout(30):
        while (tried := await api.call("POST", path, probe, {"dryRun": "All"})).code != 201 or (
            tried.body["spec"]["marker"] != str(atomic)
        ):
            await asyncio.sleep(0.02)
    yield apply
    (await api.call("DELETE", f"{definitions}/{name}")).ok()


async def case_what_became_atomic_is_owned_as_a_whole(api: Api) -> None:
    async with _changed(api, atomic=True) as apply:
        refused = await apply("three", {"tags": ["p"]})
        assert {field for field, _ in refused.refused(409, "Conflict").causes()} == {".spec.tags"}
        left = (await apply("one", {})).ok()
        assert managers(left) == {
            ("two", "Apply", ""): {"f:spec": {"f:parts": {}, "f:tags": {}, "f:texts": {}}},
            ("one", "Apply", ""): {"f:spec": {}},
        }
        assert left.body["spec"]["tags"] == ["p", "q"]
        forced = (await apply("three", {"tags": ["r"]}, force="true")).ok()
        assert forced.body["spec"]["tags"] == ["r"]


async def case_what_became_granular_stays_owned_as_a_whole(api: Api) -> None:
    async with _changed(api, atomic=False) as apply:
        added = (await apply("three", {"tags": ["r"], "texts": {"m": "3"}})).ok()
        assert managers(added)["three", "Apply", ""] == {"f:spec": {"f:tags": {'v:"r"': {}}, "f:texts": {"f:m": {}}}}
        assert managers(added)["two", "Apply", ""] == {"f:spec": {"f:parts": {}, "f:tags": {}, "f:texts": {}}}
