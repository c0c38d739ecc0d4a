"""Decoding of metadata, type metadata and DeleteOptions in all kinds."""

from __future__ import annotations

from typing import Any

from apiserver_cases.api import GROUP, Api, ApiResponse, Json, config_map, deployment, error_cases, gadget, widget

_APPLY = "application/apply-patch+yaml"
_OWNER = {"apiVersion": "v1", "kind": "ConfigMap", "name": "o", "uid": "u"}
_NON_OBJECTS: tuple[Any, ...] = (0, [], False, "x")
# Invalid values by field, each with the expected type.
_TYPE_ERRORS: dict[str, tuple[tuple[Any, str], ...]] = {
    "generateName": error_cases((0, "string"), (False, "string"), ([], "string"), ({}, "string")),
    "uid": error_cases((0, "types.UID"), ({}, "types.UID")),
    "labels": error_cases((0, "map[string]string"), ([], "map[string]string"), ({"a": []}, "string")),
    "finalizers": error_cases((0, "[]string"), ({}, "[]string"), ([5], "string")),
    "ownerReferences": error_cases(
        (False, "[]v1.OwnerReference"), ([5], "v1.OwnerReference"), ([{"uid": 5}], "types.UID")
    ),
    "managedFields": error_cases(
        ({}, "[]v1.ManagedFieldsEntry"),
        ([5], "v1.ManagedFieldsEntry"),
        ([{"operation": 5}], "v1.ManagedFieldsOperationType"),
        ([{"time": 5}], "string"),
    ),
    "generation": error_cases(("x", "int64"), (False, "int64"), (1.5, "int64")),
    "creationTimestamp": error_cases((0, "string"), ([], "string")),
    "deletionTimestamp": error_cases((False, "string"), ({}, "string")),
    "deletionGracePeriodSeconds": error_cases(("x", "int64"), ([], "int64")),
}


def _bodies(name: str = "a") -> tuple[tuple[str, Json], ...]:
    return ("configmaps", config_map(name)), ("gadgets", gadget(name))


def _with_metadata(body: Json, field: str, value: Any) -> Json:
    return {**body, "metadata": {**body["metadata"], field: value}}


async def _apply(api: Api, plural: str, body: Json, name: str = "a", **query: str) -> ApiResponse:
    query = {"fieldManager": "tester", "dryRun": "All", **query}
    return await api.call("PATCH", api.path(plural, name), body, query, _APPLY)


async def case_wrong_metadata_types_are_rejected(api: Api) -> None:
    for plural, body in _bodies():
        for field, values in _TYPE_ERRORS.items():
            for value, expected in values:
                rejected = await api.create(plural, _with_metadata(body, field, value), dryRun="All")
                rejected.expect_error(400, "BadRequest", f"of type {expected}")
                assert f".{field}" in rejected.message
        for value in _NON_OBJECTS:
            rejected = await api.create(plural, {**body, "metadata": value}, dryRun="All")
            rejected.expect_error(400, "BadRequest", "of type v1.ObjectMeta")
        rejected = await api.create(plural, _with_metadata(body, "creationTimestamp", "x"), dryRun="All")
        rejected.expect_error(
            400, "BadRequest", 'parsing time "x" as "2006-01-02T15:04:05Z07:00": cannot parse "x" as "2006"'
        )


async def case_wrong_metadata_types_in_patches_are_rejected(api: Api) -> None:
    for plural, body in _bodies():
        (await api.create(plural, body)).expect_success()
        for field, values in _TYPE_ERRORS.items():
            for value, expected in values:
                # Empty objects in a patch change nothing.
                if value != {}:
                    patch = {"metadata": {field: value}}
                    (await api.merge(plural, "a", patch, dryRun="All")).expect_error(
                        422, "Invalid", f"of type {expected}"
                    )


async def case_wrong_metadata_types_in_templates_are_rejected(api: Api) -> None:
    for field, values in _TYPE_ERRORS.items():
        for value, expected in values:
            body = deployment("a")
            body["spec"]["template"]["metadata"][field] = value
            text = f"of type {expected}"
            (await api.create("deployments", body, dryRun="All")).expect_error(400, "BadRequest", text)


async def case_unknown_metadata_fields(api: Api) -> None:
    for plural, body in _bodies():
        malformed = _with_metadata(body, "ownerReferences", [{**_OWNER, "odd": 1}])
        rejected = await api.create(plural, malformed, fieldValidation="Strict", dryRun="All")
        rejected.expect_error(
            400, "BadRequest", 'strict decoding error: unknown field "metadata.ownerReferences[0].odd"'
        )
        assert (await api.create(plural, malformed, dryRun="All")).expect_success().metadata["ownerReferences"] == [
            _OWNER
        ]


async def case_nulls_within_metadata_are_empty(api: Api) -> None:
    for plural, body in _bodies():
        created = await api.create(plural, _with_metadata(body, "labels", {"a": None}), dryRun="All")
        assert created.expect_success().metadata["labels"] == {"a": ""}
        for field in ("finalizers", "ownerReferences"):
            rejected = await api.create(plural, _with_metadata(body, field, [None]), dryRun="All")
            rejected.expect_error(422, "Invalid", f"metadata.{field}")


async def case_wrong_applied_metadata_types_are_rejected(api: Api) -> None:
    wrong: tuple[tuple[str, Any], ...] = (
        ("generateName", 5),
        ("labels", {"a": 5}),
        ("finalizers", 5),
        ("finalizers", [5]),
        ("finalizers", [None]),
        ("ownerReferences", [5]),
        ("ownerReferences", [None]),
        ("ownerReferences", [{"uid": 5}]),
        ("managedFields", [5]),
        ("generation", "x"),
        ("odd", 1),
    )
    for plural, body in _bodies():
        for field, value in wrong:
            rejected = await _apply(api, plural, _with_metadata(body, field, value))
            rejected.expect_error(500, "", "failed to create typed patch object (")
        for value in _NON_OBJECTS:
            rejected = await _apply(api, plural, {**body, "metadata": value})
            rejected.expect_error(500, "", ".metadata: expected map, got ")


async def case_applied_metadata_nulls_are_dropped(api: Api) -> None:
    for plural, body in _bodies():
        for field in (
            "generateName",
            "ownerReferences",
            "resourceVersion",
            "labels",
            "finalizers",
            "managedFields",
            "uid",
        ):
            (await _apply(api, plural, _with_metadata(body, field, None))).expect_success()
        created = await _apply(api, plural, _with_metadata(body, "labels", {"a": None}))
        assert created.expect_success().metadata["labels"] == {"a": ""}


async def case_uncounted_generation_is_kept(api: Api) -> None:
    created = (await api.create("configmaps", config_map("a", generation=5))).expect_success()
    assert created.metadata["generation"] == 5
    changed = (
        await api.merge("configmaps", "a", {"metadata": {"generation": 7}, "data": {"k": "v"}})
    ).expect_success()
    assert changed.metadata["generation"] == 5
    assert (
        await api.create("gadgets", {**gadget("a", spec={})} | {"metadata": {"name": "a", "generation": 5}})
    ).expect_success()


async def case_type_meta_fields_are_strings(api: Api) -> None:
    for plural, body in _bodies():
        (await api.create(plural, body)).expect_success()
        for field in ("apiVersion", "kind"):
            for value, name in error_cases(
                (5, "number"), (True, "bool"), ([5], "array"), ({}, "object"), (0, "number")
            ):
                wrong = {**body, field: value}
                text = "couldn't get version/kind; json parse error: json: cannot unmarshal "
                text += f"{name} into Go struct field .{field} of type string"
                (await api.create(plural, wrong, dryRun="All")).expect_error(400, "BadRequest", text)
                (await api.put(plural, wrong, dryRun="All")).expect_error(400, "BadRequest", text)
                (await api.merge(plural, "a", {field: value or [5]}, dryRun="All")).expect_error(422, "Invalid")
                (await api.delete(plural, "no", {field: value})).expect_error(400, "BadRequest", text)
                (await _apply(api, plural, wrong)).expect_error(400, "BadRequest", "invalid object type: ")
        (await api.delete(plural, "no", {"apiVersion": "a/b/c"})).expect_error(
            400, "BadRequest", "unexpected GroupVersion"
        )


async def case_delete_options_require_media_type(api: Api) -> None:
    path = api.path("configmaps", "no")
    for body in (b"null", b"{}", b"propagationPolicy: Foreground", b" "):
        (await api.call("DELETE", path, body, None, "application/yaml")).expect_error(404, "NotFound")
    (await api.call("DELETE", path, b"null")).expect_error(404, "NotFound")
    for body in (b"5", b"[]", b'"x"'):
        for content_type in ("application/json", "application/yaml"):
            rejected = await api.call("DELETE", path, body, None, content_type)
            rejected.expect_error(
                400, "BadRequest", "couldn't get version/kind; json parse error: json: cannot unmarshal "
            )
    (await api.call("DELETE", path, b"a: b")).expect_error(
        400, "BadRequest", "couldn't get version/kind; json parse error"
    )
    (await api.call("DELETE", path, b"{}", None, "text/plain")).expect_error(415, "UnsupportedMediaType")


async def case_duplicate_yaml_keys_are_rejected_in_strict_mode(api: Api) -> None:
    for plural, body in _bodies():
        text = f"apiVersion: {body['apiVersion']}\nkind: {body['kind']}\nmetadata:\n  name: a\n"
        for line, repeated in ((5, "  labels: {l: x, l: z}\n"), (5, f"kind: {body['kind']}\n")):
            key = "l" if "labels" in repeated else "kind"
            said = f'yaml: unmarshal errors:\n  line {line}: key "{key}" already set in map'
            query = {"dryRun": "All", "fieldManager": "tester"}
            strict = {**query, "fieldValidation": "Strict"}
            sent = (text + repeated).encode()
            rejected = await api.call("POST", api.path(plural), sent, strict, "application/yaml")
            rejected.expect_error(400, "BadRequest", f"strict decoding error: {said}")
            (await api.call("POST", api.path(plural), sent, query, "application/yaml")).expect_success()
            rejected = await api.call("PATCH", api.path(plural, "a"), sent, strict, _APPLY)
            rejected.expect_error(
                400, "BadRequest", f"error strict decoding YAML: error converting YAML to JSON: {said}"
            )
            (await api.call("PATCH", api.path(plural, "a"), sent, query, _APPLY)).expect_success()


_YAML_SCALARS: dict[str, Any] = {
    **dict.fromkeys(("y", "Y", "yes", "on", "TRUE"), True),
    **dict.fromkeys(("n", "N", "No", "off", "False"), False),
    **dict.fromkeys(("~", "null"), None),
    **dict.fromkeys(("2020-01-01", "=", "12:30", "1e400", "oN"), ""),
    "0o7": 7,
    "017": 15,
    "0x1F": 31,
    "0b11": 3,
    "1_000": 1000,
    "1e3": 1000,
    "1.0": 1,
    ".5": 0.5,
    "+1": 1,
}


async def case_yaml_words_and_numbers(api: Api) -> None:
    lines = [f"    k{n}: {word}" for n, word in enumerate(_YAML_SCALARS)]
    head = [f"apiVersion: {GROUP}/v1", "kind: Widget", "metadata: {name: a}", "spec:", "  size: 1", "  free:"]
    text = "\n".join([*head, *lines, "    1: x", "    true: z", ""])
    created = await api.call("POST", api.path("widgets"), text.encode(), {}, "application/yaml")
    found: Json = created.expect_success().body["spec"]["free"]
    reported = {word: found.get(f"k{n}") for n, word in enumerate(_YAML_SCALARS)}
    assert reported == {word: word if value == "" else value for word, value in _YAML_SCALARS.items()}
    assert (found["1"], found["true"]) == ("x", "z")


async def case_patch_cannot_remove_api_version(api: Api) -> None:
    (await api.create("configmaps", config_map("a"))).expect_success()
    for patch in ({"apiVersion": None}, {"apiVersion": ""}, {"apiVersion": None, "kind": None}):
        rejected = await api.merge("configmaps", "a", patch)
        rejected.expect_error(400, "BadRequest", "was undeterminable: name must be provided")
    (await api.merge("configmaps", "a", {"kind": None})).expect_success()


async def case_applied_times_of_custom_resources_are_ignored(api: Api) -> None:
    for value in ("x", "", 5, True, "2020-01-01"):
        body = widget("a")
        body["metadata"]["creationTimestamp"] = value
        assert (await api.apply("widgets", body)).expect_success().metadata["creationTimestamp"] != value


async def case_applied_deletion_timestamp_is_owned(api: Api) -> None:
    for value in ("x", 5, None):
        body = widget("a")
        body["metadata"]["deletionTimestamp"] = value
        created = (await api.apply("widgets", body)).expect_success()
        assert "deletionTimestamp" not in created.metadata
        (entry,) = created.metadata["managedFields"]
        assert entry["fieldsV1"]["f:metadata"] == {"f:deletionTimestamp": {}}
        (await api.delete("widgets", "a")).expect_success()


async def case_applied_times_are_scalars(api: Api) -> None:
    for name in ("creationTimestamp", "deletionTimestamp"):
        for value, formatted in (
            ({}, "map[]"),
            ({"b": 1, "a": [None, True]}, "map[a:[<nil> true] b:1]"),
            (["x", 2], "[x 2]"),
        ):
            body = widget("a")
            body["metadata"][name] = value
            rejected = await api.apply("widgets", body)
            rejected.expect_error(500, "", f".metadata.{name}: expected any scalar, got &{{{formatted}}}")
