"""CustomResourceDefinitions: validation, defaults, updates and deletion."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from apiserver_cases.api import Api, ApiResponse, Json

_PATH = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
_SCHEMA: Json = {
    "type": "object",
    "properties": {"spec": {"type": "object", "properties": {"x": {"type": "string"}}}},
}


def _definition(group: str, **spec: Any) -> Json:
    versions = [{"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": _SCHEMA}}]
    merged_spec: Json = {
        "group": group,
        "scope": "Namespaced",
        "names": {"kind": "Thing", "plural": "things"},
        "versions": versions,
        **spec,
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{merged_spec['names']['plural']}.{group}"},
        "spec": merged_spec,
    }


def _group(api: Api) -> str:
    return f"{api.namespace}.example.com"


async def _expect_invalid(api: Api, body: Json, *texts: str) -> ApiResponse:
    response = (await api.call("POST", _PATH, body, {"dryRun": "All"})).expect_error(422, "Invalid")
    for text in texts:
        assert text in response.message, response.message
    return response


async def _poll(call: Callable[[], Awaitable[ApiResponse]], condition: Callable[[ApiResponse], bool]) -> ApiResponse:
    """Return the first response that is ``done``.

    The real server observes changes of definitions after a moment.
    """
    async with asyncio.timeout(30):
        while not condition(reply := await call()):
            await asyncio.sleep(0.05)
    return reply


async def _create_and_wait(api: Api, body: Json) -> str:
    """Create a definition and return the path of its served objects."""
    (await api.call("POST", _PATH, body)).expect_success()
    spec = body["spec"]
    scope = f"namespaces/{api.namespace}/" if spec["scope"] == "Namespaced" else ""
    path = f"/apis/{spec['group']}/{spec['versions'][0]['name']}/{scope}{spec['names']['plural']}"
    await _poll(lambda: api.call("GET", path), lambda r: r.code == 200)
    return path


def _thing(group: str, name: str = "a", **spec: Any) -> Json:
    return {"apiVersion": f"{group}/v1", "kind": "Thing", "metadata": {"name": name}, "spec": spec}


def _schema(**spec: Any) -> list[Json]:
    schema = {"type": "object", "properties": {"spec": {"type": "object", **spec}}}
    return [{"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}]


async def case_one_version_is_stored(api: Api) -> None:
    schema = {"openAPIV3Schema": _SCHEMA}
    for stored in ((True, True), (False, False)):
        versions = [
            {"name": f"v{i}", "served": True, "storage": s, "schema": schema} for i, s in enumerate(stored, start=1)
        ]
        await _expect_invalid(api, _definition(_group(api), versions=versions), "spec.versions: Invalid value: ")


async def case_version_names_are_unique(api: Api) -> None:
    schema = {"openAPIV3Schema": _SCHEMA}
    versions = [{"name": "v1", "served": True, "storage": s, "schema": schema} for s in (True, False)]
    await _expect_invalid(api, _definition(_group(api), versions=versions), "must contain unique version names")
    versions = [{"name": "V_1", "served": True, "storage": True, "schema": schema}]
    await _expect_invalid(
        api, _definition(_group(api), versions=versions), 'spec.versions[0].name: Invalid value: "V_1"'
    )


async def case_definition_names_are_validated(api: Api) -> None:
    names = {"kind": "Thing", "plural": "Things"}
    await _expect_invalid(api, _definition(_group(api), names=names), 'spec.names.plural: Invalid value: "Things"')
    names = {"kind": "Thing", "plural": "things", "singular": "Thing"}
    await _expect_invalid(api, _definition(_group(api), names=names), 'spec.names.singular: Invalid value: "Thing"')
    names = {"kind": "Thing", "plural": "things", "shortNames": ["T"]}
    await _expect_invalid(api, _definition(_group(api), names=names), 'spec.names.shortNames[0]: Invalid value: "T"')
    names = {"kind": "Thing", "plural": "things", "listKind": "Thing"}
    await _expect_invalid(api, _definition(_group(api), names=names), "kind and listKind may not be the same")


async def case_scope_is_cluster_or_namespaced(api: Api) -> None:
    text = 'spec.scope: Unsupported value: "Odd": supported values: "Cluster", "Namespaced"'
    await _expect_invalid(api, _definition(_group(api), scope="Odd"), text)


async def case_schemas_must_be_structural(api: Api) -> None:
    place = "spec.validation.openAPIV3Schema.properties[spec].properties[x]"
    for schema, text in (
        ({}, f"{place}.type: Required value: must not be empty for specified object fields"),
        ({"type": "array"}, f"{place}.items: Required value: must be specified"),
        (
            {"type": "object", "properties": {"a": {"type": "string"}}, "additionalProperties": {"type": "string"}},
            f"{place}.additionalProperties: Forbidden: additionalProperties and properties are mutual exclusive",
        ),
        (
            {"type": "string", "uniqueItems": True},
            f"{place}.uniqueItems: Forbidden: uniqueItems cannot be set to true",
        ),
        ({"type": "odd"}, f'{place}.type: Unsupported value: "odd": supported values: '),
        ({"type": "string", "anyOf": [{"type": "string"}]}, f"{place}.anyOf[0].type: Forbidden: must be empty"),
    ):
        await _expect_invalid(api, _definition(_group(api), versions=_schema(properties={"x": schema})), text)


async def case_map_lists_are_validated(api: Api) -> None:
    place = "spec.validation.openAPIV3Schema.properties[spec].properties[x]"
    item: Json = {"type": "object", "properties": {"name": {"type": "string"}}}
    by_name: Json = {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]}
    for schema, text in (
        (
            {"type": "array", "items": item, "x-kubernetes-list-type": "map"},
            f"{place}.x-kubernetes-list-map-keys: Required value: must not be empty if x-kubernetes-list-type is map",
        ),
        (
            {"type": "array", "items": item, **by_name},
            f"{place}.items.properties[name].default: Required value: this property is in x-kubernetes-list-map-keys",
        ),
        (
            {"type": "array", "items": {"type": "object"}, "x-kubernetes-list-type": "set"},
            f"{place}.items.x-kubernetes-map-type: Invalid value: ",
        ),
        (
            {"type": "array", "items": item, "x-kubernetes-list-type": "odd"},
            f'{place}.x-kubernetes-list-type: Unsupported value: "odd": supported values: "atomic", "set", "map"',
        ),
    ):
        await _expect_invalid(api, _definition(_group(api), versions=_schema(properties={"x": schema})), text)


async def case_defaults_must_be_valid(api: Api) -> None:
    place = "spec.validation.openAPIV3Schema.properties[spec].properties[x].default"
    for schema, text in (
        ({"type": "integer", "default": "a"}, f'{place}: Invalid value: "string":  in body must be of type integer'),
        (
            {"type": "object", "properties": {}, "default": {"odd": 1}},
            f'{place}: Invalid value: {{"odd":1}}: must not have unknown fields',
        ),
        ({"type": "string", "maxLength": 1, "default": "ab"}, f"{place}: Too long: may not be more than 1 byte"),
    ):
        await _expect_invalid(api, _definition(_group(api), versions=_schema(properties={"x": schema})), text)


async def case_schema_restricts_names_only(api: Api) -> None:
    def versions(properties: Json) -> list[Json]:
        schema = {"type": "object", "properties": {"metadata": {"type": "object", "properties": properties}}}
        return [{"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}]

    labels = {"labels": {"type": "object", "additionalProperties": {"type": "string"}}}
    text = "must not specify anything other than name and generateName, but metadata is implicitly specified"
    await _expect_invalid(api, _definition(_group(api), versions=versions(labels)), text)
    path = await _create_and_wait(
        api, _definition(_group(api), versions=versions({"name": {"type": "string", "maxLength": 3}}))
    )
    rejected = await api.call("POST", path, _thing(_group(api), "long"))
    rejected.expect_error(422, "Invalid", "metadata.name: Too long: may not be more than 3 bytes")


async def case_preserve_unknown_fields_is_rejected(api: Api) -> None:
    text = "spec.preserveUnknownFields: Invalid value: true: cannot set to true, set x-kubernetes-preserve-unknown"
    await _expect_invalid(api, _definition(_group(api), preserveUnknownFields=True), text)


async def case_definition_is_defaulted(api: Api) -> None:
    await _create_and_wait(api, _definition(_group(api)))
    found = (await api.call("GET", f"{_PATH}/things.{_group(api)}")).expect_success().body
    assert found["spec"]["conversion"] == {"strategy": "None"}
    assert found["spec"]["names"] == {
        "kind": "Thing",
        "listKind": "ThingList",
        "plural": "things",
        "singular": "thing",
    }
    assert found["status"]["acceptedNames"] == found["spec"]["names"]
    assert found["metadata"]["generation"] == 1


async def case_conflicting_names_are_not_accepted(api: Api) -> None:
    await _create_and_wait(api, _definition(_group(api)))
    names = {"kind": "Thing", "plural": "others"}
    (await api.call("POST", _PATH, _definition(_group(api), names=names))).expect_success()

    def judged(reply: ApiResponse) -> bool:
        return any(c["type"] == "NamesAccepted" for c in reply.body.get("status", {}).get("conditions") or ())

    found = await _poll(lambda: api.call("GET", f"{_PATH}/others.{_group(api)}"), judged)
    conditions = {c["type"]: (c["status"], c["reason"]) for c in found.body["status"]["conditions"]}
    assert conditions == {
        "NamesAccepted": ("False", "ListKindConflict"),
        "Established": ("False", "NotAccepted"),
    }
    path = f"/apis/{_group(api)}/v1/namespaces/{api.namespace}/others"
    assert (await api.call("GET", path)).code == 404


async def case_cluster_scoped_kinds_are_served(api: Api) -> None:
    path = await _create_and_wait(api, _definition(_group(api), scope="Cluster"))
    created = (await api.call("POST", path, _thing(_group(api)))).expect_success()
    assert "namespace" not in created.metadata
    assert (await api.call("GET", f"{path}/a")).expect_success().body == created.body
    nested = f"/apis/{_group(api)}/v1/namespaces/{api.namespace}/things"
    assert (await api.call("GET", nested)).code == 404


async def case_versions_that_are_not_served_are_not_found(api: Api) -> None:
    schema = {"openAPIV3Schema": _SCHEMA}
    versions = [
        {"name": "v2", "served": True, "storage": False, "schema": schema},
        {"name": "v1", "served": False, "storage": True, "schema": schema},
    ]
    path = await _create_and_wait(api, _definition(_group(api), versions=versions))
    assert (await api.call("GET", path.replace("/v2/", "/v1/"))).code == 404
    body = {**_thing(_group(api)), "apiVersion": f"{_group(api)}/v2"}
    assert (await api.call("POST", path, body)).expect_success().body["apiVersion"] == f"{_group(api)}/v2"


async def case_group_kind_and_scope_are_immutable(api: Api) -> None:
    await _create_and_wait(api, _definition(_group(api)))
    name = f"{_PATH}/things.{_group(api)}"
    for patch, field in (
        ({"scope": "Cluster"}, "spec.scope"),
        ({"group": "other.example.com"}, "spec.group"),
        ({"names": {"plural": "others"}}, "spec.names.plural"),
        ({"names": {"kind": "Other"}}, "spec.names.kind"),
    ):
        rejected = await api.call("PATCH", name, {"spec": patch}, None, "application/merge-patch+json")
        assert field in {f for f, _ in rejected.expect_error(422, "Invalid").causes()}
        assert "field is immutable" in rejected.message


async def case_changed_schema_takes_effect(api: Api) -> None:
    group = _group(api)
    path = await _create_and_wait(api, _definition(group))
    (await api.call("POST", path, _thing(group, "old", x="long text"))).expect_success()
    versions = _schema(properties={"x": {"type": "string", "maxLength": 4}, "y": {"type": "string", "default": "d"}})
    patch = {"spec": {"versions": versions}}
    changed = await api.call("PATCH", f"{_PATH}/things.{group}", patch, None, "application/merge-patch+json")
    assert changed.expect_success().metadata["generation"] == 2
    probe = _thing(group, "probe", x="long text")
    rejected = await _poll(lambda: api.call("POST", path, probe, {"dryRun": "All"}), lambda r: r.code != 201)
    rejected.expect_error(422, "Invalid", "spec.x: Too long: may not be more than 4 bytes")
    (await api.call("POST", path, _thing(group, "new"))).expect_success()
    assert (await api.call("GET", f"{path}/new")).body["spec"] == {"y": "d"}


async def case_stored_objects_are_read_by_current_schema(api: Api) -> None:
    group = _group(api)
    path = await _create_and_wait(api, _definition(group))
    (await api.call("POST", path, _thing(group, "old", x="text"))).expect_success()
    versions = _schema(properties={"y": {"type": "string", "default": "d"}})
    patch = {"spec": {"versions": versions}}
    (await api.call("PATCH", f"{_PATH}/things.{group}", patch, None, "application/merge-patch+json")).expect_success()
    found = await _poll(lambda: api.call("GET", f"{path}/old"), lambda r: "y" in r.body.get("spec", {}))
    assert found.body["spec"] == {"y": "d"}
    listed = (await api.call("GET", path)).expect_success()
    assert [i["spec"] for i in listed.body["items"]] == [{"y": "d"}]


async def case_unchanged_invalid_values_stay(api: Api) -> None:
    group = _group(api)
    path = await _create_and_wait(api, _definition(group))
    (await api.call("POST", path, _thing(group, "old", x="long text"))).expect_success()
    versions = _schema(properties={"x": {"type": "string", "maxLength": 4}, "y": {"type": "string"}})
    patch = {"spec": {"versions": versions}}
    (await api.call("PATCH", f"{_PATH}/things.{group}", patch, None, "application/merge-patch+json")).expect_success()
    probe = _thing(group, "probe", x="long text")
    await _poll(lambda: api.call("POST", path, probe, {"dryRun": "All"}), lambda r: r.code == 422)
    kept = await api.call("PATCH", f"{path}/old", {"spec": {"y": "1"}}, None, "application/merge-patch+json")
    assert kept.expect_success().body["spec"] == {"x": "long text", "y": "1"}
    rejected = await api.call(
        "PATCH", f"{path}/old", {"spec": {"x": "other text"}}, None, "application/merge-patch+json"
    )
    rejected.expect_error(422, "Invalid", "spec.x: Too long: may not be more than 4 bytes")


async def case_deleted_definition_deletes_its_objects(api: Api) -> None:
    group = _group(api)
    path = await _create_and_wait(api, _definition(group))
    (await api.call("POST", path, _thing(group))).expect_success()
    (await api.call("DELETE", f"{_PATH}/things.{group}")).expect_success()
    await _poll(lambda: api.call("GET", f"{_PATH}/things.{group}"), lambda r: r.code == 404)
    deleted = await _poll(lambda: api.call("GET", path), lambda r: r.code == 404)
    assert deleted.message == "404 page not found\n"


async def case_deletion_is_reported(api: Api) -> None:
    group = _group(api)
    path = await _create_and_wait(api, _definition(group))
    held = _thing(group)
    held["metadata"]["finalizers"] = ["example.com/hold"]
    (await api.call("POST", path, held)).expect_success()
    deleting = (await api.call("DELETE", f"{_PATH}/things.{group}")).expect_success()
    assert "customresourcecleanup.apiextensions.k8s.io" in deleting.metadata["finalizers"]

    def terminating(reply: ApiResponse) -> bool:
        return any(c["type"] == "Terminating" for c in reply.body["status"]["conditions"])

    await _poll(lambda: api.call("GET", f"{_PATH}/things.{group}"), terminating)
    rejected = await _poll(lambda: api.call("POST", path, _thing(group, "b")), lambda r: r.code != 201)
    rejected.expect_error(403, "Forbidden", "create not allowed while custom resource definition is terminating")
    released = {"metadata": {"finalizers": None}}
    await api.call("PATCH", f"{path}/a", released, None, "application/merge-patch+json")
    await _poll(lambda: api.call("GET", f"{_PATH}/things.{group}"), lambda r: r.code == 404)


async def case_custom_resources_during_deletion(api: Api) -> None:
    group = _group(api)
    path = await _create_and_wait(api, _definition(group))
    for name in "ab":
        held = _thing(group, name)
        held["metadata"]["finalizers"] = ["example.com/hold"]
        (await api.call("POST", path, held)).expect_success()
    await api.call("DELETE", f"{_PATH}/things.{group}")
    await _poll(lambda: api.call("POST", path, _thing(group, "c"), {"dryRun": "All"}), lambda r: r.code != 201)
    await _poll(
        lambda: api.call("GET", path), lambda r: all("deletionTimestamp" in i["metadata"] for i in r.body["items"])
    )
    merge, apply = "application/merge-patch+json", "application/apply-patch+yaml"
    text = "create not allowed while custom resource definition is terminating"
    nameless = {**_thing(group), "metadata": {"generateName": "g-"}}
    for body in (nameless, _thing(group, "Bad_name"), _thing(group, "a")):
        (await api.call("POST", path, body)).expect_error(403, "Forbidden", text)
    nowhere = f"/apis/{group}/v1/namespaces/nowhere-to-be-found/things"
    (await api.call("POST", nowhere, _thing(group, "a"))).expect_error(403, "Forbidden", text)
    (await api.call("PATCH", f"{path}/c", _thing(group, "c"), {"fieldManager": "m"}, apply)).expect_error(
        403, "Forbidden"
    )
    (await api.call("PUT", f"{path}/c", _thing(group, "c"))).expect_error(404, "NotFound")
    (await api.call("PATCH", f"{path}/c", {}, {}, merge)).expect_error(404, "NotFound")
    (
        await api.call("PATCH", f"{path}/a", _thing(group, "a", x="applied"), {"fieldManager": "m"}, apply)
    ).expect_success()
    merged = (await api.call("PATCH", f"{path}/a", {"spec": {"x": "merged"}}, {}, merge)).expect_success()
    (await api.call("PUT", f"{path}/a", {**merged.body, "spec": {"x": "put"}})).expect_success()
    assert len((await api.call("GET", path)).expect_success().body["items"]) == 2
    (resource,) = (await api.call("GET", f"/apis/{group}/v1")).expect_success().body["resources"]
    assert sorted(resource["verbs"]) == ["delete", "deletecollection", "get", "list", "watch"]
    (await api.call("DELETE", f"{path}/a")).expect_success()
    (await api.call("DELETE", path)).expect_success()
    for name in "ab":
        await api.call("PATCH", f"{path}/{name}", {"metadata": {"finalizers": None}}, None, merge)
    await _poll(lambda: api.call("GET", f"{_PATH}/things.{group}"), lambda r: r.code == 404)


async def case_stored_versions_are_kept(api: Api) -> None:
    group = _group(api)
    schema = {"openAPIV3Schema": _SCHEMA}
    versions = [{"name": n, "served": True, "storage": n == "v1", "schema": schema} for n in ("v1", "v2")]
    await _create_and_wait(api, _definition(group, versions=versions))
    for version in versions:
        version["storage"] = version["name"] == "v2"
    name, content_type = f"{_PATH}/things.{group}", "application/merge-patch+json"
    (await api.call("PATCH", name, {"spec": {"versions": versions}}, None, content_type)).expect_success()
    found = (await api.call("GET", name)).expect_success().body
    assert found["status"]["storedVersions"] == ["v1", "v2"]
    rejected = await api.call("PATCH", name, {"spec": {"versions": versions[1:]}}, None, content_type)
    rejected.expect_error(422, "Invalid", 'status.storedVersions[0]: Invalid value: "v1": missing from spec.versions')


async def case_status_is_written_separately(api: Api) -> None:
    group = _group(api)
    body = _definition(group)
    body["status"] = {"acceptedNames": {"kind": "X", "plural": "x"}, "conditions": [], "storedVersions": ["v9"]}
    await _create_and_wait(api, body)
    found = (await api.call("GET", f"{_PATH}/things.{group}")).expect_success().body
    assert found["status"]["storedVersions"] == ["v1"]
    assert found["status"]["acceptedNames"]["plural"] == "things"


async def case_short_names_and_categories_are_discovered(api: Api) -> None:
    names = {"kind": "Thing", "plural": "things", "shortNames": ["th"], "categories": ["all"]}
    await _create_and_wait(api, _definition(_group(api), names=names))
    # Two components serve and discover objects. Each observes definitions on its own.
    found = await _poll(lambda: api.call("GET", f"/apis/{_group(api)}/v1"), lambda r: r.code == 200)
    (reported,) = found.body["resources"]
    assert (reported["shortNames"], reported["categories"]) == (["th"], ["all"])


async def case_unknown_fields_of_a_definition_are_rejected_in_strict_mode(api: Api) -> None:
    body = _definition(_group(api), odd=1)
    rejected = await api.call("POST", _PATH, body, {"fieldValidation": "Strict"})
    rejected.expect_error(400, "BadRequest", 'strict decoding error: unknown field "spec.odd"')
