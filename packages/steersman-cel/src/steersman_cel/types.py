"""CEL types, and their derivation from schemas of custom resources.

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
    """A CEL type.

    Attributes:
        name: ``int``, ``list``, ``optional_type``, or the name of an object type or type parameter.
        params: types of items, or of keys and values.
        fields: types of an object's fields, by their names in rules.
        is_type_param: the type is a type parameter of a declaration.
        list_semantics: ``set``, or ``map:`` and key names, for unordered lists. They have their own ``==`` and ``+``.
        max_elements: maximum number of bytes of a string, or of items, by the schema.
        min_serialized_size: minimum size in JSON, in bytes.
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
"""Schema keyword for the maximum length of map keys. Kubernetes has no such keyword."""
_IDENTIFIER_ESCAPES = (("__", "__underscores__"), (".", "__dot__"), ("-", "__dash__"), ("/", "__slash__"))
MAX_REQUEST_BYTES = 3 * 1024 * 1024
"""Maximum size of a request, in bytes."""
# Type, maximum size with quotes and minimum size of a string, by format.
_STRING_FORMATS = {
    "byte": (BYTES, MAX_REQUEST_BYTES - 2, 2),
    "duration": (DURATION, 32, 3),
    "date": (TIMESTAMP, 12, 12),
    "date-time": (TIMESTAMP, 32, 21),
}
_STRING_SCHEMA: JsonObject = {"type": "string"}


@lru_cache(maxsize=8192)
def escape_identifier(name: str) -> str:
    """The name of a field in rules. Empty if rules cannot name it."""
    if name in _RESERVED_WORDS:
        return f"__{name}__"
    if not name or not all(c.isascii() and (c.isalnum() or c in "_.-/") for c in name) or name[0].isdigit():
        return ""
    for text, replacement in _IDENTIFIER_ESCAPES:
        name = name.replace(text, replacement)
    return name


def type_from_schema(schema: JsonObject, name: str = "selfType", *, root: bool = False) -> Type | None:
    """The type of values in rules. None if rules cannot read them.

    Args:
        schema: structural schema.
        name: name of an object type. Defaults to ``selfType``.
        root: the schema is of a whole object. Defaults to False.
    """
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
    """Add the fields of each resource to ``schema``."""
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
        # Quotes, colon and comma of a key.
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
