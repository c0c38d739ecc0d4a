"""Types of CEL, and those that the schemas of custom resources have in rules.

Source: ``pkg/cel/common/schemas.go`` and ``pkg/cel/types.go`` of ``k8s.io/apiserver``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from typing import Any

from steersman_cel.values import JsonObject, is_map, map_at


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
    param: bool = False
    tags: str = field(default="", compare=False)
    most: int = field(default=0, compare=False)
    least: int = field(default=0, compare=False)

    def __str__(self) -> str:
        name = "null" if self.name == "null_type" else self.name
        return f"{name}({', '.join(map(str, self.params))})" if self.params else name


INT, UINT, DOUBLE, BOOL = Type("int", least=1), Type("uint"), Type("double", least=1), Type("bool", least=4)
STRING, BYTES, NULL, DYN = Type("string"), Type("bytes"), Type("null_type"), Type("dyn")
TIMESTAMP, DURATION = Type("timestamp"), Type("duration")
ERROR = Type("!error!")


def list_of(item: Type, tags: str = "") -> Type:
    return Type("list", (item,), tags=tags)


def map_of(key: Type, value: Type) -> Type:
    return Type("map", (key, value))


def optional_of(inner: Type) -> Type:
    return Type("optional_type", (inner,))


_RESERVED = frozenset(
    {
        *("true", "false", "null", "in", "as", "break", "const", "continue", "else", "for", "function", "if"),
        *("import", "let", "loop", "package", "namespace", "return", "var", "void", "while"),
    }
)
LONGEST_KEY = "x-longest-key"
"""Of a map's schema, how long its keys are at most, where that is known: Kubernetes' own has no word for it."""
_ESCAPES = (("__", "__underscores__"), (".", "__dot__"), ("-", "__dash__"), ("/", "__slash__"))
REQUEST = 3 * 1024 * 1024
"""The most bytes that a request has."""
# The kind of a text by its format, the most bytes that it has with its quotes, and the fewest.
_TEXTS = {
    "byte": (BYTES, REQUEST - 2, 2),
    "duration": (DURATION, 32, 3),
    "date": (TIMESTAMP, 12, 12),
    "date-time": (TIMESTAMP, 32, 21),
}
_TEXT: JsonObject = {"type": "string"}


@lru_cache(maxsize=8192)
def escaped(name: str) -> str:
    """What a field is called in rules; empty where it has no name there."""
    if name in _RESERVED:
        return f"__{name}__"
    if not name or not all(c.isascii() and (c.isalnum() or c in "_.-/") for c in name) or name[0].isdigit():
        return ""
    for text, replacement in _ESCAPES:
        name = name.replace(text, replacement)
    return name


def schema_type(schema: JsonObject, name: str = "selfType", *, root: bool = False) -> Type | None:
    """The type that values of ``schema`` have in rules; None where they have none, and rules do not see them."""
    if schema.get("x-kubernetes-int-or-string"):
        longest = schema.get("maxLength")
        return replace(DYN, most=4 * longest if longest is not None else REQUEST - 2, least=1)
    if root or schema.get("x-kubernetes-embedded-resource"):
        schema = _as_resource(schema)
    of_kind = {
        "array": partial(_list_type, schema, name),
        "object": partial(_object_type, schema, name),
        "string": partial(_text_type, schema),
        "boolean": lambda: BOOL,
        "number": lambda: DOUBLE,
        "integer": lambda: INT,
    }.get(schema.get("type", ""))
    return of_kind() if of_kind is not None else None


def _as_resource(schema: JsonObject) -> JsonObject:
    """``schema`` with the fields that each resource has."""
    properties = map_at(schema, "properties")
    named = map_at(properties.get("metadata"), "properties")
    texts = (*(properties.get(f) for f in ("apiVersion", "kind")), *(named.get(f) for f in ("name", "generateName")))
    if all(is_map(t) and t.get("type") == "string" for t in texts):
        return schema
    metadata = {"type": "object", "properties": {"name": _TEXT, "generateName": _TEXT}}
    return {**schema, "properties": {**properties, "apiVersion": _TEXT, "kind": _TEXT, "metadata": metadata}}


def _text_type(schema: JsonObject) -> Type:
    form, longest = schema.get("format", ""), schema.get("maxLength")
    if form in _TEXTS:
        kind, most, least = _TEXTS[form]
        return replace(kind, most=longest if form == "byte" and longest is not None else most, least=least)
    if longest is not None:
        # A character has up to four bytes.
        return replace(STRING, most=4 * longest, least=2)
    words = [word.encode() for word in schema.get("enum") or () if isinstance(word, str)]
    return replace(STRING, most=max(map(len, words), default=0) if schema.get("enum") else REQUEST - 2, least=2)


def _list_type(schema: JsonObject, name: str) -> Type | None:
    item = schema_type(map_at(schema, "items"), f"{name}.@idx")
    if item is None:
        return None
    kind: Any = schema.get("x-kubernetes-list-type")
    keys = ",".join(schema.get("x-kubernetes-list-map-keys") or ())
    tags = {"set": "set", "map": f"map:{keys}"}.get(kind, "")
    most = schema.get("maxItems", (REQUEST - 2) // (item.least + 1))
    return replace(list_of(item, tags), most=most, least=2)


def _object_type(schema: JsonObject, name: str) -> Type | None:
    additional = schema.get("additionalProperties")
    if is_map(additional):
        value = schema_type(additional, f"{name}.@elem")
        if value is None:
            return None
        # A key has its quotes, a colon and a comma.
        most = schema.get("maxProperties", (REQUEST - 2) // (value.least + 6))
        key = replace(STRING, most=schema.get(LONGEST_KEY, 0))
        return replace(map_of(key, value), most=most, least=2)
    fields: dict[str, Type] = {}
    required, least = schema.get("required") or (), 2
    for field_name, inner in map_at(schema, "properties").items():
        found = schema_type(inner, f"{name}.{field_name}")
        if found is None:
            continue
        if spelled := escaped(field_name):
            fields[spelled] = found
        if field_name in required and inner.get("default") is None:
            least += len(field_name.encode()) + found.least + 4
    return Type(name, fields=fields, least=least)
