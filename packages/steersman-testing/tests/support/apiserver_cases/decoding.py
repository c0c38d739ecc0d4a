"""Bodies: formats, types, unknown and repeated fields (``fieldValidation``)."""

from __future__ import annotations

import json
from typing import Any

from apiserver_cases.api import Api, Json, config_map, deployment, widget


async def case_bodies_can_be_yaml(api: Api) -> None:
    text = b"apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: a\ndata:\n  k: v\n"
    made = await api.call("POST", api.path("configmaps"), text, None, "application/yaml")
    assert made.expect_success().body["data"] == {"k": "v"}
    text = b"apiVersion: cases.steersman.dev/v1\nkind: Widget\nmetadata:\n  name: a\nspec:\n  size: 1\n"
    made = await api.call("POST", api.path("widgets"), text, None, "application/yaml")
    assert made.expect_success().body["spec"]["size"] == 1


async def case_yaml_without_json_form_is_rejected(api: Api) -> None:
    for version, kind, plural in (("v1", "ConfigMap", "configmaps"), ("cases.steersman.dev/v1", "Widget", "widgets")):
        text = f"apiVersion: {version}\nkind: {kind}\nmetadata:\n  name: a\nnull: 1\n".encode()
        created = await api.call("POST", api.path(plural), text, None, "application/yaml")
        created.expect_error(400, "BadRequest")
        query, media = {"fieldManager": "me"}, "application/apply-patch+yaml"
        applied = await api.call("PATCH", api.path(plural, "a"), text, query, media)
        applied.expect_error(400, "BadRequest")


async def case_unknown_media_types_are_rejected(api: Api) -> None:
    for plural, body in (("configmaps", config_map("a")), ("widgets", widget("a"))):
        rejected = await api.call("POST", api.path(plural), body, None, "text/plain")
        rejected.expect_error(415, "UnsupportedMediaType")


async def case_malformed_json_bodies_are_rejected(api: Api) -> None:
    for plural in ("configmaps", "widgets"):
        for text in (b"{", b"", b"[]", b'"a"'):
            rejected = await api.call("POST", api.path(plural), text)
            assert (rejected.code, rejected.reason) == (400, "BadRequest"), text


async def case_malformed_json_patches_are_rejected(api: Api) -> None:
    await api.create("configmaps", config_map("a"))
    for content_type in ("application/merge-patch+json", "application/json-patch+json"):
        rejected = await api.call("PATCH", api.path("configmaps", "a"), b"{", None, content_type)
        rejected.expect_error(400, "BadRequest")
    rejected = await api.call("PATCH", api.path("configmaps", "a"), {}, None, "application/json-patch+json")
    rejected.expect_error(400, "BadRequest")


async def case_unknown_fields_of_built_in_kinds_are_dropped(api: Api) -> None:
    body = deployment("a")
    body["spec"]["odd"] = 1
    body["spec"]["template"]["spec"]["containers"][0]["odd"] = {"x": 1}
    for query in ({}, {"fieldValidation": "Ignore"}, {"fieldValidation": "Warn"}):
        made = (await api.create("deployments", {**body, "odd": 1}, dryRun="All", **query)).expect_success()
        assert "odd" not in json.dumps(made.body)


async def case_unknown_fields_of_built_in_kinds_are_rejected_in_strict_mode(api: Api) -> None:
    body = deployment("a")
    body["spec"]["odd"] = 1
    body["spec"]["template"]["spec"]["containers"][0]["odd"] = 1
    rejected = await api.create("deployments", {**body, "more": 1}, fieldValidation="Strict")
    rejected.expect_error(
        400, "BadRequest", 'Deployment in version "v1" cannot be handled as a Deployment: strict decoding'
    )
    for path in ("more", "spec.odd", "spec.template.spec.containers[0].odd"):
        assert f'unknown field "{path}"' in rejected.message


async def case_strict_mode_is_kept_on_updates(api: Api) -> None:
    for plural, body in (("configmaps", config_map("a")), ("widgets", widget("a"))):
        made = (await api.create(plural, body)).expect_success()
        rejected = await api.put(plural, {**made.body, "odd": 1}, fieldValidation="Strict")
        rejected.expect_error(400, "BadRequest", 'strict decoding error: unknown field "odd"')
        rejected = await api.merge(plural, "a", {"odd": 1}, fieldValidation="Strict")
        rejected.expect_error(422, "Invalid", 'strict decoding error: unknown field "odd"')


async def case_duplicate_fields_are_rejected_in_strict_mode(api: Api) -> None:
    text = b'{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"},"data":{"k":"1","k":"2"}}'
    query = {"fieldValidation": "Strict"}
    rejected = await api.call("POST", api.path("configmaps"), text, query)
    rejected.expect_error(400, "BadRequest", 'strict decoding error: duplicate field "data.k"')
    made = await api.call("POST", api.path("configmaps"), text, {"fieldValidation": "Ignore"})
    assert made.expect_success().body["data"] == {"k": "2"}


async def case_unknown_field_validation_is_rejected(api: Api) -> None:
    rejected = await api.create("configmaps", config_map("a"), fieldValidation="Odd")
    rejected.expect_error(422, "Invalid", 'fieldValidation: Unsupported value: "Odd": supported values: ')


async def case_wrong_types_are_rejected(api: Api) -> None:
    wrong: list[tuple[str, Json, str]] = [
        ("configmaps", {**config_map("a"), "data": {"k": 1}}, "ConfigMap.data of type string"),
        ("configmaps", {**config_map("a"), "immutable": "yes"}, "ConfigMap.immutable of type bool"),
        ("deployments", deployment("a", replicas="3"), "DeploymentSpec.spec.replicas of type int32"),
        ("deployments", deployment("a", paused=1), "DeploymentSpec.spec.paused of type bool"),
    ]
    for plural, body, text in wrong:
        rejected = await api.create(plural, body)
        rejected.expect_error(400, "BadRequest", f"Go struct field {text}")
        assert "json: cannot unmarshal " in rejected.message


async def case_wrong_types_are_rejected_in_patches(api: Api) -> None:
    await api.create("deployments", deployment("a"))
    rejected = await api.merge("deployments", "a", {"spec": {"replicas": "3"}})
    assert rejected.code in (400, 422), rejected.body
    assert "json: cannot unmarshal string into Go struct field DeploymentSpec.spec.replicas" in rejected.message


async def case_objects_in_place_of_lists_are_rejected(api: Api) -> None:
    wrong: list[tuple[Json, str]] = [
        ({"selector": []}, "json: cannot unmarshal array into Go struct field DeploymentSpec.spec.selector of type"),
        (
            {"template": "x"},
            "json: cannot unmarshal string into Go struct field DeploymentSpec.spec.template of type",
        ),
    ]
    for spec, text in wrong:
        (await api.create("deployments", deployment("a", **spec))).expect_error(400, "BadRequest", text)


async def case_whole_numbers_may_be_written_as_floats(api: Api) -> None:
    text = json.dumps(widget("a")).replace('"size": 1', '"size": 1.0').encode()
    made = await api.call("POST", api.path("widgets"), text)
    assert made.expect_success().body["spec"]["size"] == 1


async def case_metadata_of_custom_resources_has_types(api: Api) -> None:
    wrong: list[tuple[str, Any]] = [("annotations", {"a": 1}), ("finalizers", "x"), ("labels", [])]
    for field, value in wrong:
        body = widget("a", **{field: value})
        rejected = await api.create("widgets", body)
        rejected.expect_error(400, "BadRequest", f"ObjectMeta.{field} of type")


async def case_bodies_have_a_limit(api: Api) -> None:
    rejected = await api.create("configmaps", config_map("a", {"k": "x" * (3 * 1024 * 1024 + 1)}))
    rejected.expect_error(413, "RequestEntityTooLarge", "limit is 3145728")


async def case_config_maps_hold_one_mebibyte(api: Api) -> None:
    rejected = await api.create("configmaps", config_map("a", {"k": "x" * (1024 * 1024 + 1)}))
    rejected.expect_error(422, "Invalid", "Too long: may not be more than 1048576 bytes")


async def case_secrets_hold_base64(api: Api) -> None:
    body = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "a"}, "data": {"k": "not base64!"}}
    rejected = await api.create("secrets", body)
    rejected.expect_error(400, "BadRequest", "illegal base64 data at input byte 3")


async def case_responses_can_be_yaml(api: Api) -> None:
    await api.create("configmaps", config_map("a", {"k": "v"}))
    actual = await api.call("GET", api.path("configmaps", "a"), accept="application/yaml")
    assert actual.code == 200
    assert "kind: ConfigMap\n" in actual.message


async def case_unknown_accept_types_are_rejected(api: Api) -> None:
    await api.create("configmaps", config_map("a"))
    actual = await api.call("GET", api.path("configmaps", "a"), accept="text/html")
    actual.expect_error(406, "NotAcceptable")


async def case_times_are_validated(api: Api) -> None:
    body: Json = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "a"}}
    rejected = await api.create("leases", {**body, "spec": {"renewTime": "yesterday"}})
    rejected.expect_error(400, "BadRequest", "cannot parse")
    made = await api.create("leases", {**body, "spec": {"renewTime": "2020-01-02T03:04:05.678901Z"}})
    assert made.expect_success().body["spec"]["renewTime"] == "2020-01-02T03:04:05.678901Z"
