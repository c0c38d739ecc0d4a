"""Types of CEL, and those that the schemas of custom resources have in rules.

Source: ``pkg/cel/common/schemas.go`` and ``pkg/cel/types.go`` of ``k8s.io/apiserver``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from typing import Any

from steersman_cel.values import JsonObject, get_object, is_map


@dataclass(frozen=True, slots=True)
class Type:
    """A type.

    Attributes:
        name: ``int``, ``list``, ``optional_type``, the name of an object, or of a parameter where ``param``.
        params: the types of items, or of keys and values.
        fields: of an object; what they are called in rules.
        param: whether this stands for any type, the same at each place of a declaration.
        tags: of lists whose order says nothing, ``set``, or ``map:`` and the names of their keys; ``+`` and ``==``
            differ there.
        most: of what a schema tells, the most characters, bytes or items that a value has.
        least: the fewest bytes that a value has in JSON.
    """

    name: str
    params: tuple[Type, ...] = ()
    fields: Mapping[str, Type] | None = field(default=None, compare=False)
    is_type_param: bool = False
    list_semantics: str = field(default="", compare=False)
    max_elements: int = field(default=0, compare=False)
    min_serialized_size: int = field(default=0, compare=False)

    def __str__(self) -> str:
        name = "null" if self.name == "null_type" else self.name
        return f"{name}({', '.join(map(str, self.params))})" if self.params else name


INT, UINT, DOUBLE, BOOL = (
    Type("int", min_serialized_size=1),
    Type("uint"),
    Type("double", min_serialized_size=1),
    Type("bool", min_serialized_size=4),
)
STRING, BYTES, NULL, DYN = Type("string"), Type("bytes"), Type("null_type"), Type("dyn")
TIMESTAMP, DURATION = Type("timestamp"), Type("duration")
ERROR = Type("!error!")


def list_of(item: Type, tags: str = "") -> Type:
    return Type("list", (item,), list_semantics=tags)


def map_of(key: Type, value: Type) -> Type:
    return Type("map", (key, value))


def optional_of(inner: Type) -> Type:
    return Type("optional_type", (inner,))


_RESERVED_WORDS = frozenset(
    {
        *("true", "false", "null", "in", "as", "break", "const", "continue", "else", "for", "function", "if"),
        *("import", "let", "loop", "package", "namespace", "return", "var", "void", "while"),
    }
)
MAX_KEY_LENGTH = "x-longest-key"
"""Of a map's schema, how long its keys are at most, where that is known: Kubernetes' own has no word for it."""
_IDENTIFIER_ESCAPES = (("__", "__underscores__"), (".", "__dot__"), ("-", "__dash__"), ("/", "__slash__"))
MAX_REQUEST_BYTES = 3 * 1024 * 1024
"""The most bytes that a request has."""
# The kind of a text by its format, the most bytes that it has with its quotes, and the fewest.
_STRING_FORMATS = {
    "byte": (BYTES, MAX_REQUEST_BYTES - 2, 2),
    "duration": (DURATION, 32, 3),
    "date": (TIMESTAMP, 12, 12),
    "date-time": (TIMESTAMP, 32, 21),
}
_STRING_SCHEMA: JsonObject = {"type": "string"}


@lru_cache(maxsize=8192)
def escape_identifier(name: str) -> str:
    """What a field is called in rules; empty where it has no name there."""
    if name in _RESERVED_WORDS:
        return f"__{name}__"
    if not name or not all(c.isascii() and (c.isalnum() or c in "_.-/") for c in name) or name[0].isdigit():
        return ""
    for text, replacement in _IDENTIFIER_ESCAPES:
        name = name.replace(text, replacement)
    return name


def type_from_schema(schema: JsonObject, name: str = "selfType", *, root: bool = False) -> Type | None:
    """The type that values of ``schema`` have in rules; None where they have none, and rules do not see them."""
    if schema.get("x-kubernetes-int-or-string"):
        longest = schema.get("maxLength")
        return replace(
            DYN, max_elements=4 * longest if longest is not None else MAX_REQUEST_BYTES - 2, min_serialized_size=1
        )
    if root or schema.get("x-kubernetes-embedded-resource"):
        schema = _with_resource_fields(schema)
    build_type = {
        "array": partial(_list_type, schema, name),
        "object": partial(_object_type, schema, name),
        "string": partial(_string_type, schema),
        "boolean": lambda: BOOL,
        "number": lambda: DOUBLE,
        "integer": lambda: INT,
    }.get(schema.get("type", ""))
    return build_type() if build_type is not None else None


def _with_resource_fields(schema: JsonObject) -> JsonObject:
    """``schema`` with the fields that each resource has."""
    properties = get_object(schema, "properties")
    metadata_properties = get_object(properties.get("metadata"), "properties")
    texts = (
        *(properties.get(f) for f in ("apiVersion", "kind")),
        *(metadata_properties.get(f) for f in ("name", "generateName")),
    )
    if all(is_map(t) and t.get("type") == "string" for t in texts):
        return schema
    metadata = {"type": "object", "properties": {"name": _STRING_SCHEMA, "generateName": _STRING_SCHEMA}}
    return {
        **schema,
        "properties": {**properties, "apiVersion": _STRING_SCHEMA, "kind": _STRING_SCHEMA, "metadata": metadata},
    }


def _string_type(schema: JsonObject) -> Type:
    form, longest = schema.get("format", ""), schema.get("maxLength")
    if form in _STRING_FORMATS:
        kind, most, least = _STRING_FORMATS[form]
        return replace(
            kind, max_elements=longest if form == "byte" and longest is not None else most, min_serialized_size=least
        )
    if longest is not None:
        # A character has up to four bytes.
        return replace(STRING, max_elements=4 * longest, min_serialized_size=2)
    enum_values = [word.encode() for word in schema.get("enum") or () if isinstance(word, str)]
    return replace(
        STRING,
        max_elements=max(map(len, enum_values), default=0) if schema.get("enum") else MAX_REQUEST_BYTES - 2,
        min_serialized_size=2,
    )


def _list_type(schema: JsonObject, name: str) -> Type | None:
    item = type_from_schema(get_object(schema, "items"), f"{name}.@idx")
    if item is None:
        return None
    kind: Any = schema.get("x-kubernetes-list-type")
    keys = ",".join(schema.get("x-kubernetes-list-map-keys") or ())
    tags = {"set": "set", "map": f"map:{keys}"}.get(kind, "")
    most = schema.get("maxItems", (MAX_REQUEST_BYTES - 2) // (item.min_serialized_size + 1))
    return replace(list_of(item, tags), max_elements=most, min_serialized_size=2)


def _object_type(schema: JsonObject, name: str) -> Type | None:
    additional = schema.get("additionalProperties")
    if is_map(additional):
        value = type_from_schema(additional, f"{name}.@elem")
        if value is None:
            return None
        # A key has its quotes, a colon and a comma.
        most = schema.get("maxProperties", (MAX_REQUEST_BYTES - 2) // (value.min_serialized_size + 6))
        key = replace(STRING, max_elements=schema.get(MAX_KEY_LENGTH, 0))
        return replace(map_of(key, value), max_elements=most, min_serialized_size=2)
    fields: dict[str, Type] = {}
    required, least = schema.get("required") or (), 2
    for field_name, inner in get_object(schema, "properties").items():
        found = type_from_schema(inner, f"{name}.{field_name}")
        if found is None:
            continue
        if identifier := escape_identifier(field_name):
            fields[identifier] = found
        if field_name in required and inner.get("default") is None:
            least += len(field_name.encode()) + found.min_serialized_size + 4
    return Type(name, fields=fields, min_serialized_size=least)
