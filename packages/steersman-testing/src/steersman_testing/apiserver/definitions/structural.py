"""Validation of structural schemas.

Source: KEP-1979 and "Extend the Kubernetes API with CustomResourceDefinitions", section "Specifying a structural
schema"; order and wording of ``pkg/apiserver/schema/validation.go``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

from steersman_cel.patterns import PatternError, compile_pattern
from steersman_testing.apiserver.failures import InvalidFieldError, forbidden_field, invalid_value, required_value
from steersman_testing.apiserver.values import JsonObject, get_array, get_object, is_list, is_map

_Level = Literal["root", "item", "field"]

_MISSING_TYPE = {
    "root": "must not be empty at the root",
    "item": "must not be empty for specified array items",
    "field": "must not be empty for specified object fields",
}
# Keywords that are forbidden below allOf, anyOf, oneOf and not, with the message.
_FORBIDDEN_WHEN_NESTED = {
    "type": "must be empty to be structural",
    "default": "must be undefined to be structural",
    "title": "must be empty to be structural",
    "description": "must be empty to be structural",
    "nullable": "must be false to be structural",
    "x-kubernetes-preserve-unknown-fields": "must be false to be structural",
    "x-kubernetes-embedded-resource": "must be false to be structural",
    "x-kubernetes-int-or-string": "must be false to be structural",
    "x-kubernetes-list-map-keys": "must be empty to be structural",
    "x-kubernetes-list-type": "must be undefined to be structural",
    "x-kubernetes-map-type": "must be undefined to be structural",
    "x-kubernetes-validations": "must be empty to be structural",
}
_INT_OR_STRING: list[JsonObject] = [{"type": "integer"}, {"type": "string"}]


def structural_errors(schema: JsonObject, path: str) -> list[InvalidFieldError]:
    """Return the structural errors in the order of the real server."""
    found = [*_invariant_errors(schema, "root", path), *_completeness_errors(schema, path)]
    return sorted(found, key=lambda e: f"{e.path}: {e.text}")


def _invariant_errors(schema: JsonObject, level: _Level, path: str) -> Iterator[InvalidFieldError]:
    kind, items = schema.get("type", ""), schema.get("items")
    if kind == "array" and not is_map(items):
        yield required_value(f"{path}.items", "must be specified")
    if is_map(items):
        yield from _invariant_errors(items, "item", f"{path}.items")
    for name, inner in get_object(schema, "properties").items():
        yield from _invariant_errors(inner, "field", f"{path}.properties[{name}]")
    if "additionalProperties" in schema:
        if level == "root":
            yield forbidden_field(f"{path}.additionalProperties", "must not be used at the root")
        if is_map(additional := schema["additionalProperties"]):
            yield from _invariant_errors(additional, "field", f"{path}.additionalProperties")
    if schema.get("x-kubernetes-int-or-string"):
        for extension in ("x-kubernetes-preserve-unknown-fields", "x-kubernetes-embedded-resource"):
            if schema.get(extension):
                text = "must be false if x-kubernetes-int-or-string is true"
                yield InvalidFieldError(f"{path}.{extension}", "FieldValueInvalid", f"Invalid value: true: {text}")
    skipped = schema.get("anyOf") == _INT_OR_STRING
    first = get_array(schema, "allOf")[:1]
    yield from _value_validation_errors(
        schema, path, skip_any=skipped, skip_first=bool(first) and first[0].get("anyOf") == _INT_OR_STRING
    )
    yield from _type_errors(schema, level, path)
    yield from _metadata_errors(schema, level, path)


def _type_errors(schema: JsonObject, level: _Level, path: str) -> Iterator[InvalidFieldError]:
    kind: str = schema.get("type", "")
    embedded = bool(schema.get("x-kubernetes-embedded-resource"))
    allows_any_type = schema.get("x-kubernetes-int-or-string") or schema.get("x-kubernetes-preserve-unknown-fields")
    if embedded and kind != "object":
        text = "must be object if x-kubernetes-embedded-resource is true"
        yield invalid_value(f"{path}.type", kind, text) if kind else required_value(f"{path}.type", text)
    elif not kind and not allows_any_type:
        yield required_value(f"{path}.type", _MISSING_TYPE[level])
    if embedded and "additionalProperties" in schema:
        yield forbidden_field(
            f"{path}.additionalProperties", "must not be used if x-kubernetes-embedded-resource is set"
        )
    if level == "root" and kind and kind != "object":
        yield invalid_value(f"{path}.type", kind, "must be object at the root")


def _metadata_errors(schema: JsonObject, level: _Level, path: str) -> Iterator[InvalidFieldError]:
    properties = get_object(schema, "properties")
    embedded = bool(schema.get("x-kubernetes-embedded-resource"))
    checked = level == "root" or embedded
    for name in ("kind", "apiVersion"):
        if checked and name in properties and (found := properties[name].get("type", "")) != "string":
            yield invalid_value(f"{path}.properties[{name}].type", found, "must be string")
    if "metadata" in properties:
        field_path, meta = f"{path}.properties[metadata]", properties["metadata"]
        if checked and meta.get("type") != "object":
            yield invalid_value(f"{field_path}.type", meta.get("type", ""), "must be object")
        if level == "root" and not _restricts_names_only(meta):
            text = "must not specify anything other than name and generateName, but metadata is implicitly specified"
            yield forbidden_field(field_path, text)
    if embedded and not schema.get("x-kubernetes-preserve-unknown-fields") and not properties:
        text = (
            "must not be empty if x-kubernetes-embedded-resource is true without x-kubernetes-preserve-unknown-fields"
        )
        yield required_value(f"{path}.properties", text)


def _restricts_names_only(meta: JsonObject) -> bool:
    keywords = {k for k in meta if k not in ("type", "default")}
    return keywords <= {"properties"} and set(get_object(meta, "properties")) <= {"name", "generateName"}


def _value_validation_errors(
    schema: JsonObject, path: str, *, skip_any: bool = False, skip_first: bool = False
) -> Iterator[InvalidFieldError]:
    for field, nested, field_path in nested_schemas(schema, path):
        if not (field == "anyOf" and skip_any):
            yield from _nested_errors(
                nested, field_path, skip_any=skip_first and field_path.endswith("allOf[0]") and field == "allOf"
            )
    pattern = schema.get("pattern")
    if pattern:
        try:
            compile_pattern(pattern)
        except PatternError as error:
            text = f"must be a valid regular expression, but isn't: {error}"
            yield invalid_value(f"{path}.pattern", pattern, text)


def nested_schemas(schema: JsonObject, path: str) -> Iterator[tuple[str, JsonObject, str]]:
    """Yield the schemas below anyOf, allOf, oneOf and not.

    Each item has field, schema and path.
    """
    for field in ("anyOf", "allOf", "oneOf"):
        for position, nested in enumerate(get_array(schema, field)):
            yield field, nested, f"{path}.{field}[{position}]"
    if is_map(negated := schema.get("not")):
        yield "not", negated, f"{path}.not"


def _nested_errors(schema: JsonObject, path: str, *, skip_any: bool = False) -> Iterator[InvalidFieldError]:
    yield from _value_validation_errors(schema, path, skip_any=skip_any)
    if is_map(items := schema.get("items")):
        yield from _nested_errors(items, f"{path}.items")
    for name, inner in get_object(schema, "properties").items():
        yield from _nested_errors(inner, f"{path}.properties[{name}]")
    if schema.get("additionalProperties", False) is not False:
        yield forbidden_field(f"{path}.additionalProperties", "must be undefined to be structural")
    for field, text in _FORBIDDEN_WHEN_NESTED.items():
        if field in schema:
            yield forbidden_field(f"{path}.{field}", text)
    if "metadata" in get_object(schema, "properties"):
        yield forbidden_field(f"{path}.properties[metadata]", "must not be specified in a nested context")


def _completeness_errors(schema: JsonObject, path: str) -> Iterator[InvalidFieldError]:
    """Yield errors for nested fields that the structure does not declare."""
    for field, nested, field_path in nested_schemas(schema, path):
        # The real server validates oneOf twice.
        for _ in range(2 if field == "oneOf" else 1):
            yield from _specified_errors(nested, schema, field_path, path)


def _specified_errors(nested: JsonObject, structure: Any, field_path: str, path: str) -> Iterator[InvalidFieldError]:
    if not is_map(structure):
        yield required_value(path, f"because it is defined in {field_path}")
        return
    for field, inner, inner_path in nested_schemas(nested, field_path):
        for _ in range(2 if field == "oneOf" else 1):
            yield from _specified_errors(inner, structure, inner_path, path)
    if is_map(items := nested.get("items")):
        yield from _specified_errors(items, structure.get("items"), f"{field_path}.items", f"{path}.items")
    for name, inner in get_object(nested, "properties").items():
        inner_structure = get_object(structure, "properties").get(name)
        yield from _specified_errors(
            inner, inner_structure, f"{field_path}.properties[{name}]", f"{path}.properties[{name}]"
        )


def unsupported_field(schema: Any) -> str:
    """Return why ``schema`` has no structural form, or an empty string."""
    if not is_map(schema):
        return ""
    for field, name in (
        ("id", "id"),
        ("$schema", "schema"),
        ("$ref", "$ref"),
        ("patternProperties", "patternProperties"),
    ):
        if schema.get(field):
            return f"OpenAPIV3Schema '{name}' is not supported"
    for field in ("dependencies", "additionalItems", "definitions"):
        if field in schema:
            return f"OpenAPIV3Schema '{field}' is not supported"
    if schema.get("x-kubernetes-preserve-unknown-fields") is False:
        return "internal error: 'x-kubernetes-preserve-unknown-fields' must be true or undefined"
    if is_list(schema.get("items")):
        return "OpenAPIV3Schema 'items' must be a schema, but is an array"
    return next((found for s in subschemas(schema) if (found := unsupported_field(s))), "")


def subschemas(schema: JsonObject) -> Iterator[JsonObject]:
    """Yield all direct subschemas."""
    yield from (nested for _, nested, _ in nested_schemas(schema, ""))
    items = schema.get("items")
    yield from (s for s in (items if is_list(items) else [items]) if is_map(s))
    for field in ("properties", "patternProperties", "definitions", "dependencies"):
        yield from (s for s in get_object(schema, field).values() if is_map(s))
    for field in ("additionalProperties", "additionalItems"):
        if is_map(inner := schema.get(field)):
            yield inner
