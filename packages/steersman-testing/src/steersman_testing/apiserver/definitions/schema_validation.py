"""Validation of the OpenAPI schemas of a definition besides structural rules.

Source: ``ValidateCustomResourceDefinitionOpenAPISchema`` in ``pkg/apis/apiextensions/validation/validation.go``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from steersman_cel.validation import VALIDATIONS_KEY
from steersman_testing.apiserver.definitions.structural import nested_schemas, subschemas, unsupported_field
from steersman_testing.apiserver.failures import (
    InvalidFieldError,
    forbidden_field,
    invalid_value,
    required_value,
    unsupported_value,
)
from steersman_testing.apiserver.schemas.paths import InvalidFieldPath, resolve_path
from steersman_testing.apiserver.values import JsonObject, get_array, get_object, is_list, is_map

_OPENAPI_TYPES = ("array", "boolean", "integer", "number", "object", "string")
_RULE_REASONS = ("FieldValueDuplicate", "FieldValueForbidden", "FieldValueInvalid", "FieldValueRequired")
_META_FIELDS = ("metadata", "kind", "apiVersion")
_UNSUPPORTED_KEYWORDS = ("id", "additionalItems", "patternProperties", "definitions", "dependencies", "$ref")


@dataclass(frozen=True, slots=True)
class SchemaContext:
    """Context of a subschema.

    Attributes:
        defaults_forbidden_reason: why defaults are forbidden. Empty if they are allowed.
        inside_meta: whether it is within the metadata, kind or apiVersion of a resource.
        uncorrelatable_path: path from which old and new values cannot be correlated. Empty if they can.
        max_cardinality: maximum number of values. None if an enclosing list or map is unbounded.
        rule_validator: validates the CEL rules of valid subschemas. None without rules.
    """

    defaults_forbidden_reason: str = ""
    inside_meta: bool = False
    uncorrelatable_path: str = ""
    max_cardinality: int | None = 1
    rule_validator: Callable[[JsonObject, str, SchemaContext], Iterator[InvalidFieldError]] | None = None


def unsupported_type(kind: str, path: str) -> InvalidFieldError:
    """Return the error for a type that OpenAPI does not have."""
    return unsupported_value(f"{path}.type", kind, _OPENAPI_TYPES)


def schema_errors(schema: JsonObject, path: str, context: SchemaContext) -> list[InvalidFieldError]:
    """Return the errors of ``schema``, structure before rules."""
    structure_errors, rule_errors = _check(schema, path, context, root=True)
    return structure_errors + rule_errors


def _check(
    schema: JsonObject, path: str, context: SchemaContext, *, root: bool = False
) -> tuple[list[InvalidFieldError], list[InvalidFieldError]]:
    structure_errors = [*_keyword_errors(schema, path, context)]
    rule_errors: list[InvalidFieldError] = []
    for inner, field_path, inner_context in _subschemas_with_context(schema, path, context, root=root):
        inner_structure_errors, inner_rule_errors = _check(inner, field_path, inner_context)
        structure_errors += inner_structure_errors
        rule_errors += inner_rule_errors
    structure_errors += [
        *_extension_errors(schema, path),
        *_list_map_errors(schema, path),
        *_list_item_errors(schema, path),
    ]
    structure_errors += [*_rule_structure_errors(schema, path)]
    if not structure_errors and context.rule_validator is not None and schema.get(VALIDATIONS_KEY):
        rule_errors += [*context.rule_validator(schema, path, context)]
    return structure_errors, rule_errors


def _max_cardinality(schema: JsonObject, outer: int | None) -> int | None:
    """Return the maximum number of values below ``schema``.

    Args:
        outer: maximum number of values of ``schema``.
    """
    limit = 1
    if schema.get("type") == "array":
        limit = schema.get("maxItems")
    elif schema.get("type") == "object" and "additionalProperties" in schema:
        limit = schema.get("maxProperties")
    return None if outer is None or limit is None else outer * max(limit, 0)


def _subschemas_with_context(
    schema: JsonObject, path: str, context: SchemaContext, *, root: bool
) -> Iterator[tuple[JsonObject, str, SchemaContext]]:
    context = replace(context, max_cardinality=_max_cardinality(schema, context.max_cardinality))
    if is_map(additional := schema.get("additionalProperties")):
        reason = "inside additionalProperties applying to object metadata"
        inner = replace(context, defaults_forbidden_reason=reason) if context.inside_meta else context
        yield additional, f"{path}.additionalProperties", inner
    resource = root or bool(schema.get("x-kubernetes-embedded-resource"))
    for name, content in get_object(schema, "properties").items():
        inner = context
        if schema.get("x-kubernetes-map-type", "granular") not in ("granular", "atomic"):
            inner = replace(inner, uncorrelatable_path=inner.uncorrelatable_path or path)
        if resource and name in _META_FIELDS:
            inner = replace(inner, inside_meta=True)
            if root:
                inner = replace(inner, defaults_forbidden_reason=f"in top-level {name}")
        yield content, f"{path}.properties[{name}]", inner
    context_without_rules = replace(context, rule_validator=None)
    yield from ((nested, field_path, context_without_rules) for _, nested, field_path in nested_schemas(schema, path))
    for field in ("definitions", "dependencies"):
        for name, content in get_object(schema, field).items():
            if is_map(content):
                yield content, f"{path}.{field}[{name}]", context_without_rules
    items = schema.get("items")
    # Only items of lists of the type map can be correlated.
    inner = context
    if schema.get("x-kubernetes-list-type") != "map":
        inner = replace(context, uncorrelatable_path=context.uncorrelatable_path or path)
    if is_map(items):
        yield items, f"{path}.items", inner
    elif is_list(items):
        yield from ((item, f"{path}.items[{i}]", inner) for i, item in enumerate(items))


def _keyword_errors(schema: JsonObject, path: str, context: SchemaContext) -> Iterator[InvalidFieldError]:
    kind = schema.get("type", "")
    if kind and kind not in _OPENAPI_TYPES:
        yield unsupported_type(kind, path)
    if "default" in schema and context.defaults_forbidden_reason:
        yield forbidden_field(f"{path}.default", f"must not be set {context.defaults_forbidden_reason}")
    for field in _UNSUPPORTED_KEYWORDS:
        if field in schema:
            yield forbidden_field(f"{path}.{field}", f"{field} is not supported")
    if kind == "null":
        yield forbidden_field(f"{path}.type", "type cannot be set to null, use nullable as an alternative")
    if schema.get("items") and is_list(schema["items"]):
        yield forbidden_field(f"{path}.items", "items must be a schema object and not an array")
    if context.inside_meta and schema.get("x-kubernetes-embedded-resource"):
        yield forbidden_field(f"{path}.x-kubernetes-embedded-resource", "must not be used inside of resource meta")
    if schema.get("uniqueItems"):
        text = "uniqueItems cannot be set to true since the runtime complexity becomes quadratic"
        yield forbidden_field(f"{path}.uniqueItems", text)
    additional = schema.get("additionalProperties", True)
    if schema.get("properties") and additional is not True:
        yield forbidden_field(
            f"{path}.additionalProperties", "additionalProperties and properties are mutual exclusive"
        )


def _type_errors(expected: str, extension: str, schema: JsonObject, path: str) -> Iterator[InvalidFieldError]:
    kind = schema.get("type", "")
    if kind != expected:
        text = f"must be {expected} if {extension} is specified"
        yield invalid_value(f"{path}.type", kind, text) if kind else required_value(f"{path}.type", text)


def _extension_errors(schema: JsonObject, path: str) -> Iterator[InvalidFieldError]:
    if schema.get("x-kubernetes-preserve-unknown-fields") is False:
        field_path = f"{path}.x-kubernetes-preserve-unknown-fields"
        yield InvalidFieldError(field_path, "FieldValueInvalid", "Invalid value: false: must be true or undefined")
    map_type, list_type = schema.get("x-kubernetes-map-type"), schema.get("x-kubernetes-list-type")
    if map_type is not None:
        yield from _type_errors("object", "x-kubernetes-map-type", schema, path)
        if map_type not in ("atomic", "granular"):
            yield unsupported_value(f"{path}.x-kubernetes-map-type", map_type, ("atomic", "granular"))
    if list_type is not None:
        type_errors = list(_type_errors("array", "x-kubernetes-list-type", schema, path))
        yield from type_errors
        if not type_errors and list_type == "set":
            yield from _set_item_errors(get_object(schema, "items"), path)
        if list_type not in ("atomic", "set", "map"):
            yield unsupported_value(f"{path}.x-kubernetes-list-type", list_type, ("atomic", "set", "map"))


def _set_item_errors(items: JsonObject, path: str) -> Iterator[InvalidFieldError]:
    text = "must be atomic as item of a list with x-kubernetes-list-type=set"
    list_type = items.get("x-kubernetes-list-type")
    if items.get("type") == "array" and list_type not in (None, "atomic"):
        yield invalid_value(f"{path}.items.x-kubernetes-list-type", list_type, text)
    if items.get("type") == "object" and items.get("x-kubernetes-map-type") != "atomic":
        # The real server shows the list type of the items here, which is not set.
        yield invalid_value(f"{path}.items.x-kubernetes-map-type", list_type, text)


def _list_map_errors(schema: JsonObject, path: str) -> Iterator[InvalidFieldError]:
    list_type, keys = schema.get("x-kubernetes-list-type"), get_array(schema, "x-kubernetes-list-map-keys")
    if keys and list_type != "map":
        text = "must be map if x-kubernetes-list-map-keys is non-empty"
        field_path = f"{path}.x-kubernetes-list-type"
        yield required_value(field_path, text) if list_type is None else invalid_value(field_path, list_type, text)
    if list_type != "map":
        return
    if not keys:
        text = "must not be empty if x-kubernetes-list-type is map"
        yield required_value(f"{path}.x-kubernetes-list-map-keys", text)
    items = schema.get("items")
    if items is None:
        yield required_value(f"{path}.items", "must have a schema if x-kubernetes-list-type is map")
    elif not is_map(items):
        yield invalid_value(f"{path}.items", items, "must only have a single schema if x-kubernetes-list-type is map")
    elif (kind := items.get("type", "")) != "object":
        yield invalid_value(
            f"{path}.items.type", kind, "must be object if parent array's x-kubernetes-list-type is map"
        )
    else:
        yield from _map_key_errors(items, keys, path)


def _map_key_errors(items: JsonObject, keys: list[str], path: str) -> Iterator[InvalidFieldError]:
    properties = get_object(items, "properties")
    field_path = f"{path}.x-kubernetes-list-map-keys"
    for position, key in enumerate(keys):
        if key not in properties:
            yield invalid_value(field_path, keys, "entries must all be names of item properties")
        elif properties[key].get("type") in ("array", "object"):
            text = "must be a scalar type if parent array's x-kubernetes-list-type is map"
            yield invalid_value(f"{path}.items.properties[{key}].type", "object", text)
        if key in keys[:position]:
            yield invalid_value(field_path, keys, "must not contain duplicate entries")


def _list_item_errors(schema: JsonObject, path: str) -> Iterator[InvalidFieldError]:
    list_type, items = schema.get("x-kubernetes-list-type"), schema.get("items")
    if not is_map(items) or list_type not in ("set", "map"):
        return
    if items.get("nullable"):
        text = f"cannot be nullable when x-kubernetes-list-type is {list_type}"
        yield forbidden_field(f"{path}.items.nullable", text)
    if list_type == "set":
        return
    required_fields = get_array(items, "required")
    for key in get_array(schema, "x-kubernetes-list-map-keys"):
        field = get_object(items, "properties").get(key)
        if field is None:
            continue
        field_path, text = f"{path}.items.properties[{key}]", "this property is in x-kubernetes-list-map-keys, so it"
        if key not in required_fields and "default" not in field:
            yield required_value(f"{field_path}.default", f"{text} must have a default or be a required property")
        if field.get("nullable"):
            yield forbidden_field(f"{field_path}.nullable", f"{text} cannot be nullable")


def _rule_structure_errors(schema: JsonObject, path: str) -> Iterator[InvalidFieldError]:
    for position, rule in enumerate(get_array(schema, VALIDATIONS_KEY)):
        item_path = f"{path}.{VALIDATIONS_KEY}[{position}]"
        yield from _rule_text_errors(rule, item_path)
        reason = rule.get("reason")
        if reason is not None and reason not in _RULE_REASONS:
            yield unsupported_value(f"{item_path}.reason", reason, _RULE_REASONS)
        field_path = rule.get("fieldPath", "")
        if field_path and not field_path.strip():
            yield invalid_value(f"{item_path}.fieldPath", field_path, "must be non-empty if specified")
        if _has_line_break(field_path):
            yield invalid_value(f"{item_path}.fieldPath", field_path, "must not contain line breaks")
        if field_path and not _is_valid_field_path(schema, field_path):
            yield invalid_value(f"{item_path}.fieldPath", field_path, "must be a valid path")


def _rule_text_errors(rule: JsonObject, path: str) -> Iterator[InvalidFieldError]:
    expression: str = rule.get("rule", "")
    message: str = rule.get("message", "")
    if not expression.strip():
        yield required_value(f"{path}.rule", "rule is not specified")
    elif message and not message.strip():
        yield invalid_value(f"{path}.message", message, "must be non-empty if specified")
    elif _has_line_break(message.strip()):
        yield invalid_value(f"{path}.message", message, "must not contain line breaks")
    elif _has_line_break(expression.strip()) and not message.strip():
        yield required_value(f"{path}.message", "message must be specified if rule contains line breaks")
    message_expression: str = rule.get("messageExpression", "")
    if message_expression and not message_expression.strip():
        yield required_value(f"{path}.messageExpression", "messageExpression must be non-empty if specified")


def _has_line_break(text: str) -> bool:
    return re.search(r"[\n\r]", text) is not None


def _is_valid_field_path(schema: JsonObject, path: str) -> bool:
    if unsupported_field(schema):
        return True
    try:
        resolve_path(path, schema)
    except InvalidFieldPath:
        return False
    return True


def any_subschema(schema: Any, predicate: Callable[[JsonObject], bool]) -> bool:
    """Return True if ``predicate`` holds for ``schema`` or any subschema."""
    return is_map(schema) and (predicate(schema) or any(any_subschema(s, predicate) for s in subschemas(schema)))
