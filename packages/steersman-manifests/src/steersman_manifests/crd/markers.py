"""Schema keywords of ``Field``, checked against the annotated type."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from msgspec import UNSET

from steersman.meta import Field, patterns, to_builtins
from steersman_cel.formats import known_format
from steersman_manifests.crd.builtin import PRESERVE_UNKNOWN_FIELDS
from steersman_manifests.crd.errors import SchemaError
from steersman_manifests.crd.rules import Schema, with_rules

# The keyword and the types that support it, by attribute of Field.
_NUMBER_TYPES, _STRING_TYPES = ("integer", "number", "int-or-string"), ("string", "int-or-string")
_KEYWORDS: dict[str, tuple[str, tuple[str, ...]]] = {
    "ge": ("minimum", _NUMBER_TYPES),
    "gt": ("minimum", _NUMBER_TYPES),
    "le": ("maximum", _NUMBER_TYPES),
    "lt": ("maximum", _NUMBER_TYPES),
    "multiple_of": ("multipleOf", _NUMBER_TYPES),
    "min_length": ("minLength", _STRING_TYPES),
    "max_length": ("maxLength", _STRING_TYPES),
    "pattern": ("pattern", _STRING_TYPES),
    "format": ("format", ("string", "integer", "number")),
    "min_items": ("minItems", ("array",)),
    "max_items": ("maxItems", ("array",)),
    "list_type": ("x-kubernetes-list-type", ("array",)),
    "min_properties": ("minProperties", ("object",)),
    "max_properties": ("maxProperties", ("object",)),
    "map_type": ("x-kubernetes-map-type", ("object",)),
    "title": ("title", ()),
    "description": ("description", ()),
}
_TYPE_LABELS = {
    "integer": "integers",
    "number": "numbers",
    "int-or-string": "int | str",
    "string": "strings",
    "array": "lists",
    "object": "maps and structs",
}
_SIZE_SUFFIXES = ("Length", "Items", "Properties")
_BOUND_PAIRS = (("minimum", "maximum"), *((f"min{count}", f"max{count}") for count in _SIZE_SUFFIXES))


def apply_marker(schema: Schema, marker: Field, *, correlatable: bool) -> Schema:
    """``schema`` with the keywords of ``marker``, except default and immutability.

    Raises:
        SchemaError: the type does not support a keyword.
    """
    result = dict(schema)
    for attribute, (keyword, kinds) in _KEYWORDS.items():
        if (value := getattr(marker, attribute)) is None:
            continue
        if kinds:
            _check_type(schema, attribute, kinds)
        result[keyword] = value
    _apply_exclusive_bounds(result, marker)
    _apply_documentation(result, marker)
    _apply_unknown_fields(result, marker)
    if marker.list_map_keys:
        result = _apply_list_map(result, marker)
    elif result.get("x-kubernetes-list-type") == "map":
        raise SchemaError('list_type="map" needs list_map_keys: the fields that identify an item')
    if result.get("x-kubernetes-list-type") == "set":
        _check_set_items(result["items"])
    if marker.nullable:
        result["nullable"] = True
    check_keywords(result)
    return with_rules(result, marker.rules, correlatable=correlatable)


def _schema_type(schema: Schema) -> str:
    return "int-or-string" if schema.get("x-kubernetes-int-or-string") else schema.get("type", "Any")


def _check_type(schema: Schema, attribute: str, kinds: Iterable[str]) -> None:
    kind = _schema_type(schema)
    # Numeric bounds do not apply to quantities, which are mostly strings.
    quantity = kind == "int-or-string" and "pattern" in schema
    if quantity and attribute in ("ge", "gt", "le", "lt", "multiple_of"):
        raise SchemaError(
            f"{attribute} does not compare quantities: write a rule, such as "
            "quantity(string(self)).isGreaterThan(quantity('0'))"
        )
    if kind not in kinds:
        allowed = " and ".join(_TYPE_LABELS[k] for k in kinds)
        raise SchemaError(f"{attribute} is for {allowed}, but the type is {_TYPE_LABELS.get(kind, kind)}: remove it")


def _apply_exclusive_bounds(result: Schema, marker: Field) -> None:
    for inclusive, exclusive, keyword in (("ge", "gt", "exclusiveMinimum"), ("le", "lt", "exclusiveMaximum")):
        if getattr(marker, exclusive) is None:
            continue
        if getattr(marker, inclusive) is not None:
            raise SchemaError(f"{inclusive} and {exclusive} declare the same bound twice: keep one of them")
        result[keyword] = True


def _apply_documentation(result: Schema, marker: Field) -> None:
    if marker.example is not UNSET:
        result["example"] = to_builtins(marker.example)
    if marker.external_docs is not None:
        result["externalDocs"] = {"url": marker.external_docs}


def _apply_unknown_fields(result: Schema, marker: Field) -> None:
    """Set ``preserve_unknown`` and ``embedded_resource``."""
    for attribute in ("preserve_unknown", "embedded_resource"):
        if getattr(marker, attribute) and _schema_type(result) not in ("object", "Any"):
            _check_type(result, attribute, ("object",))
    if marker.preserve_unknown:
        result |= PRESERVE_UNKNOWN_FIELDS
        # A map of any values means the same.
        if result.get("additionalProperties") == PRESERVE_UNKNOWN_FIELDS:
            del result["additionalProperties"]
    if marker.embedded_resource:
        result["type"] = "object"
        result["x-kubernetes-embedded-resource"] = True
        # An embedded object cannot be a map. It preserves unknown fields instead.
        if result.pop("additionalProperties", None) is not None or "properties" not in result:
            result |= PRESERVE_UNKNOWN_FIELDS


def _apply_list_map(result: Schema, marker: Field) -> Schema:
    _check_type(result, "list_map_keys", ("array",))
    if marker.list_type not in (None, "map"):
        raise SchemaError(f'list_map_keys make the list a map, but list_type is "{marker.list_type}": keep one')
    items, keys = result["items"], marker.list_map_keys
    if _schema_type(items) != "object" or "properties" not in items:
        raise SchemaError('list_map_keys are fields of structs, but the items are not structs: use list_type="set"')
    if len(set(keys)) < len(keys):
        raise SchemaError(f"list_map_keys {', '.join(keys)} name a field twice")
    for key in keys:
        field = items["properties"].get(key)
        if field is None:
            known = ", ".join(items["properties"])
            raise SchemaError(f"list_map_keys names {key}, but the items have {known} (wire names)")
        if _schema_type(field) in ("array", "object", "Any"):
            raise SchemaError(f"list_map_keys names {key}, which is not a scalar: choose a string or an integer")
        if field.get("nullable"):
            raise SchemaError(f"list_map_keys names {key}, which is nullable: remove nullable")
        if key not in items.get("required", ()) and "default" not in field:
            raise SchemaError(f"list_map_keys names {key}, which may be absent: make it required, or give a default")
    if items.get("nullable"):
        raise SchemaError("items of a list with list_map_keys cannot be nullable")
    return {**result, "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": list(keys)}


def _check_set_items(items: Schema) -> None:
    if items.get("nullable"):
        raise SchemaError('items of a list with list_type="set" cannot be nullable')
    if items.get("type") == "object" and items.get("x-kubernetes-map-type") != "atomic":
        raise SchemaError(
            'items of a list with list_type="set" are compared as wholes: put @schema(map_type="atomic") above the '
            "struct, or use list_map_keys"
        )
    if items.get("type") == "array" and items.get("x-kubernetes-list-type") not in (None, "atomic"):
        raise SchemaError('lists in a list with list_type="set" must be atomic')


def check_keywords(schema: Schema) -> None:
    """Check bounds, patterns and formats of ``schema``.

    Raises:
        SchemaError: bounds contradict each other, RE2 rejects a pattern, or a format is unknown.
    """
    for lower, upper in _BOUND_PAIRS:
        if lower in schema and upper in schema and schema[lower] > schema[upper]:
            raise SchemaError(f"{lower} {schema[lower]} is more than {upper} {schema[upper]}: no value is valid")
    for keyword in (f"{bound}{count}" for bound in ("min", "max") for count in _SIZE_SUFFIXES):
        if schema.get(keyword, 0) < 0:
            raise SchemaError(f"{keyword} is {schema[keyword]}: it cannot be negative")
    if schema.get("multipleOf", 1) <= 0:
        raise SchemaError(f"multiple_of is {schema['multipleOf']}: it must be more than 0")
    if pattern := schema.get("pattern"):
        try:
            patterns.compile_pattern(pattern)
        except patterns.UnsupportedPattern:
            pass
        except patterns.PatternError as error:
            raise SchemaError(f"the pattern is not valid in RE2, which the API server uses: {error}") from None
    if "format" in schema and not known_format(schema):
        format_name, kind = schema["format"], _TYPE_LABELS[_schema_type(schema)]
        raise SchemaError(f"the API server does not check the format {format_name!r} of {kind}: remove it")


def marker_default(marker: Field) -> Any:
    """The default of ``marker`` in wire form, or UNSET."""
    return UNSET if marker.default is UNSET else to_builtins(marker.default)
