"""What a definition's OpenAPI schemas may say, besides being structural.

Source: ``ValidateCustomResourceDefinitionOpenAPISchema`` in ``pkg/apis/apiextensions/validation/validation.go``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from steersman_cel.evaluation import RULES
from steersman_testing.apiserver.definitions.structural import nested_schemas, subschemas, unsupported_field
from steersman_testing.apiserver.failures import FieldError, forbidden_field, invalid_value, required, shown
from steersman_testing.apiserver.schemas.paths import PathError, find_place
from steersman_testing.apiserver.values import JsonObject, is_list, is_map, list_at, map_at

_TYPES = ("array", "boolean", "integer", "number", "object", "string")
_REASONS = ("FieldValueDuplicate", "FieldValueForbidden", "FieldValueInvalid", "FieldValueRequired")
_META_FIELDS = ("metadata", "kind", "apiVersion")
_UNSUPPORTED = ("id", "additionalItems", "patternProperties", "definitions", "dependencies", "$ref")


@dataclass(frozen=True, slots=True)
class Scope:
    """What holds at one place of a schema.

    Attributes:
        no_defaults: why defaults are forbidden here; empty where they are allowed.
        inside_meta: whether this is a resource's metadata, kind or apiVersion.
        uncorrelated: the place from which on old and new values cannot be told together; empty where they can.
        times: how many values there are at most; None where a list or a map around has no limit.
        checks_rules: checks the CEL rules at a place that is otherwise sound; None where rules are not looked at.
    """

    no_defaults: str = ""
    inside_meta: bool = False
    uncorrelated: str = ""
    times: int | None = 1
    checks_rules: Callable[[JsonObject, str, Scope], Iterator[FieldError]] | None = None


def unsupported_type(kind: str, path: str) -> FieldError:
    """The refusal of a type that OpenAPI does not have."""
    return not_supported(f"{path}.type", kind, _TYPES)


def not_supported(path: str, value: Any, supported: tuple[str, ...]) -> FieldError:
    """The refusal of a value that is none of ``supported``."""
    listed = ", ".join(f'"{s}"' for s in supported)
    return FieldError(
        path, "FieldValueNotSupported", f"Unsupported value: {shown(value)}: supported values: {listed}"
    )


def schema_errors(schema: JsonObject, path: str, scope: Scope) -> list[FieldError]:
    """What is wrong with ``schema``: first its form at all depths, then its rules."""
    form, rules = _check(schema, path, scope, root=True)
    return form + rules


def _check(
    schema: JsonObject, path: str, scope: Scope, *, root: bool = False
) -> tuple[list[FieldError], list[FieldError]]:
    form = [*_keywords(schema, path, scope)]
    rules: list[FieldError] = []
    for inner, place, inner_scope in _below(schema, path, scope, root=root):
        inner_form, inner_rules = _check(inner, place, inner_scope)
        form += inner_form
        rules += inner_rules
    form += [*_extensions(schema, path), *_list_map(schema, path), *_list_items(schema, path)]
    form += [*_rule_forms(schema, path)]
    if not form and scope.checks_rules is not None and schema.get(RULES):
        rules += [*scope.checks_rules(schema, path, scope)]
    return form, rules


def _times(schema: JsonObject, around: int | None) -> int | None:
    """How many values there are at most below ``schema``, of which there are as many as ``around`` says."""
    most = 1
    if schema.get("type") == "array":
        most = schema.get("maxItems")
    elif schema.get("type") == "object" and "additionalProperties" in schema:
        most = schema.get("maxProperties")
    return None if around is None or most is None else around * max(most, 0)


def _below(schema: JsonObject, path: str, scope: Scope, *, root: bool) -> Iterator[tuple[JsonObject, str, Scope]]:
    scope = replace(scope, times=_times(schema, scope.times))
    if is_map(additional := schema.get("additionalProperties")):
        reason = "inside additionalProperties applying to object metadata"
        inner = replace(scope, no_defaults=reason) if scope.inside_meta else scope
        yield additional, f"{path}.additionalProperties", inner
    resource = root or bool(schema.get("x-kubernetes-embedded-resource"))
    for name, content in map_at(schema, "properties").items():
        inner = scope
        if schema.get("x-kubernetes-map-type", "granular") not in ("granular", "atomic"):
            inner = replace(inner, uncorrelated=inner.uncorrelated or path)
        if resource and name in _META_FIELDS:
            inner = replace(inner, inside_meta=True)
            if root:
                inner = replace(inner, no_defaults=f"in top-level {name}")
        yield content, f"{path}.properties[{name}]", inner
    silent = replace(scope, checks_rules=None)
    yield from ((nested, place, silent) for _, nested, place in nested_schemas(schema, path))
    for field in ("definitions", "dependencies"):
        for name, content in map_at(schema, field).items():
            if is_map(content):
                yield content, f"{path}.{field}[{name}]", silent
    items = schema.get("items")
    # The items of all lists but those of type map are told apart by nothing.
    inner = scope
    if schema.get("x-kubernetes-list-type") != "map":
        inner = replace(scope, uncorrelated=scope.uncorrelated or path)
    if is_map(items):
        yield items, f"{path}.items", inner
    elif is_list(items):
        yield from ((item, f"{path}.items[{i}]", inner) for i, item in enumerate(items))


def _keywords(schema: JsonObject, path: str, scope: Scope) -> Iterator[FieldError]:
    kind = schema.get("type", "")
    if kind and kind not in _TYPES:
        yield unsupported_type(kind, path)
    if "default" in schema and scope.no_defaults:
        yield forbidden_field(f"{path}.default", f"must not be set {scope.no_defaults}")
    for field in _UNSUPPORTED:
        if field in schema:
            yield forbidden_field(f"{path}.{field}", f"{field} is not supported")
    if kind == "null":
        yield forbidden_field(f"{path}.type", "type cannot be set to null, use nullable as an alternative")
    if schema.get("items") and is_list(schema["items"]):
        yield forbidden_field(f"{path}.items", "items must be a schema object and not an array")
    if scope.inside_meta and schema.get("x-kubernetes-embedded-resource"):
        yield forbidden_field(f"{path}.x-kubernetes-embedded-resource", "must not be used inside of resource meta")
    if schema.get("uniqueItems"):
        text = "uniqueItems cannot be set to true since the runtime complexity becomes quadratic"
        yield forbidden_field(f"{path}.uniqueItems", text)
    additional = schema.get("additionalProperties", True)
    if schema.get("properties") and additional is not True:
        yield forbidden_field(
            f"{path}.additionalProperties", "additionalProperties and properties are mutual exclusive"
        )


def _must_be(wanted: str, extension: str, schema: JsonObject, path: str) -> Iterator[FieldError]:
    kind = schema.get("type", "")
    if kind != wanted:
        text = f"must be {wanted} if {extension} is specified"
        yield invalid_value(f"{path}.type", kind, text) if kind else required(f"{path}.type", text)


def _extensions(schema: JsonObject, path: str) -> Iterator[FieldError]:
    if schema.get("x-kubernetes-preserve-unknown-fields") is False:
        place = f"{path}.x-kubernetes-preserve-unknown-fields"
        yield FieldError(place, "FieldValueInvalid", "Invalid value: false: must be true or undefined")
    map_type, list_type = schema.get("x-kubernetes-map-type"), schema.get("x-kubernetes-list-type")
    if map_type is not None:
        yield from _must_be("object", "x-kubernetes-map-type", schema, path)
        if map_type not in ("atomic", "granular"):
            yield not_supported(f"{path}.x-kubernetes-map-type", map_type, ("atomic", "granular"))
    if list_type is not None:
        wrong = list(_must_be("array", "x-kubernetes-list-type", schema, path))
        yield from wrong
        if not wrong and list_type == "set":
            yield from _set_items(map_at(schema, "items"), path)
        if list_type not in ("atomic", "set", "map"):
            yield not_supported(f"{path}.x-kubernetes-list-type", list_type, ("atomic", "set", "map"))


def _set_items(items: JsonObject, path: str) -> Iterator[FieldError]:
    text = "must be atomic as item of a list with x-kubernetes-list-type=set"
    list_type = items.get("x-kubernetes-list-type")
    if items.get("type") == "array" and list_type not in (None, "atomic"):
        yield invalid_value(f"{path}.items.x-kubernetes-list-type", list_type, text)
    if items.get("type") == "object" and items.get("x-kubernetes-map-type") != "atomic":
        # The real server shows the list type of the items here, which is none.
        yield invalid_value(f"{path}.items.x-kubernetes-map-type", list_type, text)


def _list_map(schema: JsonObject, path: str) -> Iterator[FieldError]:
    list_type, keys = schema.get("x-kubernetes-list-type"), list_at(schema, "x-kubernetes-list-map-keys")
    if keys and list_type != "map":
        text = "must be map if x-kubernetes-list-map-keys is non-empty"
        place = f"{path}.x-kubernetes-list-type"
        yield required(place, text) if list_type is None else invalid_value(place, list_type, text)
    if list_type != "map":
        return
    if not keys:
        text = "must not be empty if x-kubernetes-list-type is map"
        yield required(f"{path}.x-kubernetes-list-map-keys", text)
    items = schema.get("items")
    if items is None:
        yield required(f"{path}.items", "must have a schema if x-kubernetes-list-type is map")
    elif not is_map(items):
        yield invalid_value(f"{path}.items", items, "must only have a single schema if x-kubernetes-list-type is map")
    elif (kind := items.get("type", "")) != "object":
        yield invalid_value(
            f"{path}.items.type", kind, "must be object if parent array's x-kubernetes-list-type is map"
        )
    else:
        yield from _map_keys(items, keys, path)


def _map_keys(items: JsonObject, keys: list[str], path: str) -> Iterator[FieldError]:
    properties = map_at(items, "properties")
    place = f"{path}.x-kubernetes-list-map-keys"
    for position, key in enumerate(keys):
        if key not in properties:
            yield invalid_value(place, keys, "entries must all be names of item properties")
        elif properties[key].get("type") in ("array", "object"):
            text = "must be a scalar type if parent array's x-kubernetes-list-type is map"
            yield invalid_value(f"{path}.items.properties[{key}].type", "object", text)
        if key in keys[:position]:
            yield invalid_value(place, keys, "must not contain duplicate entries")


def _list_items(schema: JsonObject, path: str) -> Iterator[FieldError]:
    list_type, items = schema.get("x-kubernetes-list-type"), schema.get("items")
    if not is_map(items) or list_type not in ("set", "map"):
        return
    if items.get("nullable"):
        text = f"cannot be nullable when x-kubernetes-list-type is {list_type}"
        yield forbidden_field(f"{path}.items.nullable", text)
    if list_type == "set":
        return
    needed = list_at(items, "required")
    for key in list_at(schema, "x-kubernetes-list-map-keys"):
        field = map_at(items, "properties").get(key)
        if field is None:
            continue
        place, text = f"{path}.items.properties[{key}]", "this property is in x-kubernetes-list-map-keys, so it"
        if key not in needed and "default" not in field:
            yield required(f"{place}.default", f"{text} must have a default or be a required property")
        if field.get("nullable"):
            yield forbidden_field(f"{place}.nullable", f"{text} cannot be nullable")


def _rule_forms(schema: JsonObject, path: str) -> Iterator[FieldError]:
    for position, rule in enumerate(list_at(schema, RULES)):
        place = f"{path}.{RULES}[{position}]"
        yield from _rule_texts(rule, place)
        reason = rule.get("reason")
        if reason is not None and reason not in _REASONS:
            yield not_supported(f"{place}.reason", reason, _REASONS)
        field_path = rule.get("fieldPath", "")
        if field_path and not field_path.strip():
            yield invalid_value(f"{place}.fieldPath", field_path, "must be non-empty if specified")
        if _broken(field_path):
            yield invalid_value(f"{place}.fieldPath", field_path, "must not contain line breaks")
        if field_path and not _leads_somewhere(schema, field_path):
            yield invalid_value(f"{place}.fieldPath", field_path, "must be a valid path")


def _rule_texts(rule: JsonObject, place: str) -> Iterator[FieldError]:
    expression: str = rule.get("rule", "")
    message: str = rule.get("message", "")
    if not expression.strip():
        yield required(f"{place}.rule", "rule is not specified")
    elif message and not message.strip():
        yield invalid_value(f"{place}.message", message, "must be non-empty if specified")
    elif _broken(message.strip()):
        yield invalid_value(f"{place}.message", message, "must not contain line breaks")
    elif _broken(expression.strip()) and not message.strip():
        yield required(f"{place}.message", "message must be specified if rule contains line breaks")
    computed: str = rule.get("messageExpression", "")
    if computed and not computed.strip():
        yield required(f"{place}.messageExpression", "messageExpression must be non-empty if specified")


def _broken(text: str) -> bool:
    return re.search(r"[\n\r]", text) is not None


def _leads_somewhere(schema: JsonObject, path: str) -> bool:
    if unsupported_field(schema):
        return True
    try:
        find_place(path, schema)
    except PathError:
        return False
    return True


def has_anywhere(schema: Any, present: Callable[[JsonObject], bool]) -> bool:
    """Whether ``present`` holds of ``schema`` or of any schema within."""
    return is_map(schema) and (present(schema) or any(has_anywhere(s, present) for s in subschemas(schema)))
