"""Structural schemas, keyword by keyword: validation, defaults, pruning, ratcheting."""

from __future__ import annotations

from typing import Any

from apiserver_cases.api import GROUP, Api, Json, definition

_INTEGER: Json = {"type": "integer"}
_TEXT: Json = {"type": "string"}


def _list(items: Json, **more: Any) -> Json:
    return {"type": "array", "items": items, **more}


def _map(values: Json, **more: Any) -> Json:
    return {"type": "object", "additionalProperties": values, **more}


_SPEC: Json = {
    "type": "object",
    "properties": {
        "colour": _TEXT,
        "size": _INTEGER,
        "note": _TEXT,
        "above": {**_INTEGER, "minimum": 0, "exclusiveMinimum": True},
        "below": {"type": "number", "maximum": 1, "exclusiveMaximum": True},
        "even": {**_INTEGER, "multipleOf": 2},
        "level": {**_INTEGER, "enum": [1, 2, 3]},
        "flag": {"type": "boolean", "default": True},
        "few": _map(_TEXT, minProperties=1, maxProperties=2),
        "some": _list(_TEXT, minItems=1),
        "date": {**_TEXT, "format": "date"},
        "moment": {**_TEXT, "format": "date-time"},
        "address": {**_TEXT, "format": "ipv4"},
        "link": {**_TEXT, "format": "uri"},
        "bytes": {**_TEXT, "format": "byte"},
        "unknown": {**_TEXT, "format": "nobody-knows"},
        "small": {**_INTEGER, "format": "int32"},
        "either": {
            "type": "object",
            "properties": {"a": _TEXT, "b": _TEXT},
            "oneOf": [{"required": ["a"]}, {"required": ["b"]}],
        },
        "any": {
            "type": "object",
            "properties": {"a": _TEXT, "b": _TEXT},
            "anyOf": [{"required": ["a"]}, {"required": ["b"]}],
        },
        "all": {**_INTEGER, "allOf": [{"minimum": 2}, {"maximum": 4}]},
        "none": {**_TEXT, "not": {"enum": ["bad"]}},
        "share": {
            "x-kubernetes-int-or-string": True,
            "anyOf": [{"type": "integer"}, {"type": "string"}],
            "pattern": "^[0-9]+%$",
        },
        "tree": {
            "type": "object",
            "x-kubernetes-preserve-unknown-fields": True,
            "properties": {"known": {"type": "object", "properties": {"x": _INTEGER}}},
        },
        "object": {
            "type": "object",
            "x-kubernetes-embedded-resource": True,
            "x-kubernetes-preserve-unknown-fields": True,
        },
        "named": _map({"type": "object", "properties": {"on": {"type": "boolean", "default": False}}}),
        "keyed": _list(
            {
                "type": "object",
                "required": ["port"],
                "properties": {"port": _INTEGER, "protocol": {**_TEXT, "default": "TCP"}, "name": _TEXT},
            },
            **{"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["port", "protocol"]},
        ),
        "set": _list(_INTEGER, **{"x-kubernetes-list-type": "set"}),
        "whole": {
            "type": "object",
            "x-kubernetes-map-type": "atomic",
            "properties": {"a": _TEXT, "b": _TEXT},
        },
        "nothing": {"type": "object", "nullable": True, "properties": {"x": _INTEGER}},
        "deep": {
            "type": "object",
            "required": ["must"],
            "properties": {"must": _TEXT, "can": {**_TEXT, "default": "d"}},
        },
    },
}
CRD = definition("Sample", {"spec": _SPEC}, {})
CRD["spec"]["versions"][0]["selectableFields"] = [{"jsonPath": ".spec.colour"}, {"jsonPath": ".spec.size"}]


def sample(name: str, **spec: Any) -> Json:
    """Return a custom resource with many optional fields."""
    return {"apiVersion": f"{GROUP}/v1", "kind": "Sample", "metadata": {"name": name}, "spec": spec}


async def _expect_invalid(api: Api, text: str, **spec: Any) -> None:
    (await api.create("samples", sample("a", **spec))).expect_error(422, "Invalid", text)


async def _accepted_spec(api: Api, **spec: Any) -> Json:
    return (await api.create("samples", sample("a", **spec), dryRun="All")).expect_success().body["spec"]


async def case_bounds_can_be_exclusive(api: Api) -> None:
    await _accepted_spec(api, above=1, below=0.5)
    await _expect_invalid(api, "spec.above in body should be greater than 0", above=0)
    await _expect_invalid(api, "spec.below in body should be less than 1", below=1)


async def case_numbers_can_be_multiples(api: Api) -> None:
    await _accepted_spec(api, even=4)
    await _expect_invalid(api, "spec.even in body should be a multiple of 2", even=3)


async def case_numbers_can_be_enumerated(api: Api) -> None:
    await _accepted_spec(api, level=3)
    await _expect_invalid(api, "spec.level: Unsupported value: 4: supported values: ", level=4)


async def case_properties_are_counted(api: Api) -> None:
    await _accepted_spec(api, few={"a": "x"})
    await _expect_invalid(api, "spec.few in body should have at least 1 properties", few={})
    await _expect_invalid(api, "spec.few: Too many: 3: must have at most 2 items", few={"a": "", "b": "", "c": ""})


async def case_items_are_counted(api: Api) -> None:
    await _accepted_spec(api, some=["a"])
    await _expect_invalid(api, "spec.some in body should have at least 1 items", some=[])


async def case_formats_are_validated(api: Api) -> None:
    await _accepted_spec(api, date="2020-02-29", moment="2020-02-29T01:02:03Z", address="10.1.2.3", bytes="dGV4dA==")
    await _accepted_spec(api, link="https://example.com/x", unknown="whatever")
    for field, value in (("date", "2020-02-30"), ("moment", "yesterday"), ("address", "10.1.2"), ("bytes", "?")):
        await _expect_invalid(
            api,
            f'spec.{field} in body must be of type {_SPEC["properties"][field]["format"]}: "{value}"',
            **{field: value},
        )


async def case_integers_have_a_size(api: Api) -> None:
    await _accepted_spec(api, small=2**31 - 1)
    await _expect_invalid(api, "spec.small", small=2**31)


async def case_one_of_requires_one_alternative(api: Api) -> None:
    await _accepted_spec(api, either={"a": "x"})
    for value in ({}, {"a": "x", "b": "y"}):
        await _expect_invalid(api, '"spec.either" must validate one and only one schema (oneOf)', either=value)


async def case_any_of_requires_an_alternative(api: Api) -> None:
    await _accepted_spec(api, any={"a": "x", "b": "y"})
    await _expect_invalid(api, '"spec.any" must validate at least one schema (anyOf)', any={})


async def case_all_of_requires_every_part(api: Api) -> None:
    await _accepted_spec(api, all=3)
    await _expect_invalid(api, "spec.all in body should be greater than or equal to 2", all=1)
    await _expect_invalid(api, "spec.all in body should be less than or equal to 4", all=5)


async def case_not_rejects_matches(api: Api) -> None:
    await _accepted_spec(api, none="good")
    await _expect_invalid(api, '"spec.none" must not validate the schema (not)', none="bad")


async def case_int_or_string_has_a_pattern(api: Api) -> None:
    assert (await _accepted_spec(api, share=5))["share"] == 5
    assert (await _accepted_spec(api, share="5%"))["share"] == "5%"
    await _expect_invalid(api, "spec.share in body should match '^[0-9]+%$'", share="five")
    await _expect_invalid(api, "spec.share in body must be of type integer,string", share=1.5)


async def case_null_is_rejected_unless_nullable(api: Api) -> None:
    await _expect_invalid(api, "spec.some[0]: Invalid value: ", some=[None])
    await _expect_invalid(api, "spec.few in body should have at least 1 properties", few={"a": None})


async def case_unknown_fields_of_free_form_objects_are_kept(api: Api) -> None:
    tree = {"free": {"x": 1}, "known": {"x": 1, "odd": 2}}
    assert (await _accepted_spec(api, tree=tree))["tree"] == {"free": {"x": 1}, "known": {"x": 1}}


async def case_embedded_objects_have_a_kind(api: Api) -> None:
    whole = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x", "labels": {"a": "b"}}, "spec": {"y": 1}}
    assert (await _accepted_spec(api, object=whole))["object"] == whole
    await _expect_invalid(api, "spec.object.kind: Required value", object={"apiVersion": "v1"})
    await _expect_invalid(api, "spec.object.apiVersion: Required value", object={"kind": "Pod"})


async def case_defaults_are_set_at_every_depth(api: Api) -> None:
    spec = await _accepted_spec(api, named={"x": {}}, keyed=[{"port": 1}], deep={"must": "m"})
    assert spec["named"] == {"x": {"on": False}}
    assert spec["keyed"] == [{"port": 1, "protocol": "TCP"}]
    assert spec["deep"] == {"must": "m", "can": "d"}
    assert spec["flag"] is True


async def case_null_is_kept_where_it_is_allowed(api: Api) -> None:
    assert (await _accepted_spec(api, nothing=None))["nothing"] is None
    assert (await _accepted_spec(api, nothing={"x": 1}))["nothing"] == {"x": 1}
    assert "nothing" not in await _accepted_spec(api)


async def case_required_fields_are_validated_at_every_depth(api: Api) -> None:
    await _expect_invalid(api, "spec.deep.must: Required value", deep={})
    await _expect_invalid(api, "spec.keyed[0].port: Required value", keyed=[{"name": "x"}])


async def case_keys_with_defaults_identify_items(api: Api) -> None:
    await _accepted_spec(api, keyed=[{"port": 1}, {"port": 1, "protocol": "UDP"}])
    await _expect_invalid(
        api, "spec.keyed[1]: Duplicate value: ", keyed=[{"port": 1}, {"port": 1, "protocol": "TCP"}]
    )


async def case_sets_hold_a_value_once(api: Api) -> None:
    await _accepted_spec(api, set=[1, 2])
    await _expect_invalid(api, "spec.set[2]: Duplicate value: 1", set=[1, 2, 1])


async def case_atomic_objects_are_replaced_by_apply(api: Api) -> None:
    (await api.apply("samples", sample("a", whole={"a": "1"}), "one")).expect_success()
    rejected = await api.apply("samples", sample("a", whole={"b": "2"}), "two")
    assert rejected.expect_error(409, "Conflict").causes() == [(".spec.whole", "FieldManagerConflict")]
    forced = await api.apply("samples", sample("a", whole={"b": "2"}), "two", force=True)
    assert forced.expect_success().body["spec"]["whole"] == {"b": "2"}


async def case_wrong_types_are_reported(api: Api) -> None:
    wrong: list[tuple[str, Any, str, str]] = [
        ("size", "1", "integer", "string"),
        ("size", 1.5, "integer", "number"),
        ("flag", "true", "boolean", "string"),
        ("few", [], "object", "array"),
        ("some", {}, "array", "object"),
        ("below", True, "number", "boolean"),
        ("colour", 5, "string", "integer"),
    ]
    for field, value, expected, found in wrong:
        text = f'spec.{field}: Invalid value: "{found}": spec.{field} in body must be of type {expected}: "{found}"'
        await _expect_invalid(api, text, **{field: value})


async def case_errors_are_ordered(api: Api) -> None:
    rejected = await api.create("samples", sample("a", size="x", level=9, even=3, deep={}))
    fields = [f for f, _ in rejected.expect_error(422, "Invalid").causes() if f != "<nil>"]
    assert sorted(fields) == ["spec.deep.must", "spec.even", "spec.level", "spec.size"]


async def case_apply_by_keys_with_defaults(api: Api) -> None:
    await api.apply("samples", sample("a", keyed=[{"port": 1}]), "one")
    both = await api.apply("samples", sample("a", keyed=[{"port": 1, "protocol": "UDP"}]), "two")
    assert both.expect_success().body["spec"]["keyed"] == [
        {"port": 1, "protocol": "TCP"},
        {"port": 1, "protocol": "UDP"},
    ]


async def case_spec_of_wrong_type_is_rejected(api: Api) -> None:
    body = {**sample("a"), "spec": "text"}
    text = 'spec: Invalid value: "string": spec in body must be of type object: "string"'
    (await api.create("samples", body)).expect_error(422, "Invalid", text)
