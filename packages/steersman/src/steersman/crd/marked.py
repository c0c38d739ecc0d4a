"""``Field`` as keywords of a schema, held to the type that it marks."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from msgspec import UNSET

from steersman.crd.builtin import ANYTHING
from steersman.crd.errors import SchemaError
from steersman.crd.rules import Schema, with_rules
from steersman.meta import Field, patterns, to_builtins
from steersman.meta.formats import known_format

# The attribute of Field, the keyword, the types that have it.
_NUMBERS, _TEXTS = ("integer", "number", "int-or-string"), ("string", "int-or-string")
_KEYWORDS: dict[str, tuple[str, tuple[str, ...]]] = {
    "ge": ("minimum", _NUMBERS),
    "gt": ("minimum", _NUMBERS),
    "le": ("maximum", _NUMBERS),
    "lt": ("maximum", _NUMBERS),
    "multiple_of": ("multipleOf", _NUMBERS),
    "min_length": ("minLength", _TEXTS),
    "max_length": ("maxLength", _TEXTS),
    "pattern": ("pattern", _TEXTS),
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
_NAMES = {
    "integer": "whole numbers",
    "number": "numbers",
    "int-or-string": "int | str",
    "string": "texts",
    "array": "lists",
    "object": "maps and structs",
}
_COUNTS = ("Length", "Items", "Properties")
_PAIRS = (("minimum", "maximum"), *((f"min{count}", f"max{count}") for count in _COUNTS))


def marked(schema: Schema, marker: Field, *, correlated: bool) -> Schema:
    """``schema`` with what ``marker`` says; the default and the immutability are the struct's to say.

    Raises:
        SchemaError: the type cannot have that.
    """
    result = dict(schema)
    for attribute, (keyword, kinds) in _KEYWORDS.items():
        if (value := getattr(marker, attribute)) is None:
            continue
        if kinds:
            _check_kind(schema, attribute, kinds)
        result[keyword] = value
    _exclusive(result, marker)
    _documented(result, marker)
    _open(result, marker)
    if marker.list_map_keys:
        result = _list_map(result, marker)
    elif result.get("x-kubernetes-list-type") == "map":
        raise SchemaError('list_type="map" needs list_map_keys: the fields that tell items apart')
    if result.get("x-kubernetes-list-type") == "set":
        _check_set(result["items"])
    if marker.nullable:
        result["nullable"] = True
    check_keywords(result)
    return with_rules(result, marker.rules, correlated=correlated)


def _kind(schema: Schema) -> str:
    return "int-or-string" if schema.get("x-kubernetes-int-or-string") else schema.get("type", "Any")


def _check_kind(schema: Schema, attribute: str, kinds: Iterable[str]) -> None:
    kind = _kind(schema)
    # What bounds the number of an int | str bounds no quantity, which is mostly a text.
    quantity = kind == "int-or-string" and "pattern" in schema
    if quantity and attribute in ("ge", "gt", "le", "lt", "multiple_of"):
        raise SchemaError(
            f"{attribute} does not compare quantities: write a rule, such as "
            "quantity(string(self)).isGreaterThan(quantity('0'))"
        )
    if kind not in kinds:
        allowed = " and ".join(_NAMES[k] for k in kinds)
        raise SchemaError(f"{attribute} is for {allowed}, but this is {_NAMES.get(kind, kind)}: take it away")


def _exclusive(result: Schema, marker: Field) -> None:
    for inclusive, exclusive, keyword in (("ge", "gt", "exclusiveMinimum"), ("le", "lt", "exclusiveMaximum")):
        if getattr(marker, exclusive) is None:
            continue
        if getattr(marker, inclusive) is not None:
            raise SchemaError(f"{inclusive} and {exclusive} say two things of one bound: keep one of them")
        result[keyword] = True


def _documented(result: Schema, marker: Field) -> None:
    if marker.example is not UNSET:
        result["example"] = to_builtins(marker.example)
    if marker.external_docs is not None:
        result["externalDocs"] = {"url": marker.external_docs}


def _open(result: Schema, marker: Field) -> None:
    """Maps and structs that keep what the schema does not know."""
    for attribute in ("preserve_unknown", "embedded_resource"):
        if getattr(marker, attribute) and _kind(result) not in ("object", "Any"):
            _check_kind(result, attribute, ("object",))
    if marker.preserve_unknown:
        result |= ANYTHING
        # A map of anything says the same.
        if result.get("additionalProperties") == ANYTHING:
            del result["additionalProperties"]
    if marker.embedded_resource:
        result["type"] = "object"
        result["x-kubernetes-embedded-resource"] = True
        # The API has no embedded objects that are maps: what else they have is kept.
        if result.pop("additionalProperties", None) is not None or "properties" not in result:
            result |= ANYTHING


def _list_map(result: Schema, marker: Field) -> Schema:
    _check_kind(result, "list_map_keys", ("array",))
    if marker.list_type not in (None, "map"):
        raise SchemaError(f'list_map_keys make the list a map, but list_type is "{marker.list_type}": keep one')
    items, keys = result["items"], marker.list_map_keys
    if _kind(items) != "object" or "properties" not in items:
        raise SchemaError('list_map_keys are fields of structs, but the items are none: use list_type="set"')
    if len(set(keys)) < len(keys):
        raise SchemaError(f"list_map_keys {', '.join(keys)} name a field twice")
    for key in keys:
        field = items["properties"].get(key)
        if field is None:
            known = ", ".join(items["properties"])
            raise SchemaError(f"list_map_keys names {key}, but the items have {known} (wire names)")
        if _kind(field) in ("array", "object", "Any"):
            raise SchemaError(f"list_map_keys names {key}, which is no scalar: choose a text or a number")
        if field.get("nullable"):
            raise SchemaError(f"list_map_keys names {key}, which is nullable: take nullable away")
        if key not in items.get("required", ()) and "default" not in field:
            raise SchemaError(f"list_map_keys names {key}, which may be absent: make it required, or give a default")
    if items.get("nullable"):
        raise SchemaError("items of a list with list_map_keys cannot be nullable")
    return {**result, "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": list(keys)}


def _check_set(items: Schema) -> None:
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
    """Bounds that contradict each other, patterns that RE2 does not take, formats that nobody checks.

    Raises:
        SchemaError: there is one.
    """
    for least, most in _PAIRS:
        if least in schema and most in schema and schema[least] > schema[most]:
            raise SchemaError(f"{least} {schema[least]} is more than {most} {schema[most]}: nothing fits")
    for keyword in (f"{bound}{count}" for bound in ("min", "max") for count in _COUNTS):
        if schema.get(keyword, 0) < 0:
            raise SchemaError(f"{keyword} is {schema[keyword]}: it cannot be negative")
    if schema.get("multipleOf", 1) <= 0:
        raise SchemaError(f"multiple_of is {schema['multipleOf']}: it must be more than 0")
    if pattern := schema.get("pattern"):
        try:
            patterns.compiled(pattern)
        except patterns.UnsupportedPattern:
            pass
        except patterns.PatternError as error:
            raise SchemaError(f"the API server takes RE2 patterns, and does not take this one: {error}") from None
    if "format" in schema and not known_format(schema):
        form, kind = schema["format"], _NAMES[_kind(schema)]
        raise SchemaError(f"the API server checks no format {form!r} of {kind}: take it away")


def says_default(marker: Field) -> Any:
    """The default that ``marker`` gives in wire form, or UNSET."""
    return UNSET if marker.default is UNSET else to_builtins(marker.default)
