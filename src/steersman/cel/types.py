"""Types of CEL, and those that the schemas of custom resources have in rules.

Source: ``pkg/cel/common/schemas.go`` and ``pkg/cel/types.go`` of ``k8s.io/apiserver``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from steersman.cel.values import JsonObject, is_map, map_at


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
    """

    name: str
    params: tuple[Type, ...] = ()
    fields: Mapping[str, Type] | None = field(default=None, compare=False)
    param: bool = False
    tags: str = field(default="", compare=False)

    def __str__(self) -> str:
        name = "null" if self.name == "null_type" else self.name
        return f"{name}({', '.join(map(str, self.params))})" if self.params else name


INT, UINT, DOUBLE, BOOL = Type("int"), Type("uint"), Type("double"), Type("bool")
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
_ESCAPES = (("__", "__underscores__"), (".", "__dot__"), ("-", "__dash__"), ("/", "__slash__"))
_TEXTS = {
    "byte": BYTES,
    "duration": DURATION,
    "date": TIMESTAMP,
    "date-time": TIMESTAMP,
}
_NAMED = Type("object", fields={"name": STRING, "generateName": STRING})


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
        return DYN
    root = root or bool(schema.get("x-kubernetes-embedded-resource"))
    of_kind = {
        "array": partial(_list_type, schema, name),
        "object": partial(_object_type, schema, name, root),
        "string": lambda: _TEXTS.get(schema.get("format", ""), STRING),
        "boolean": lambda: BOOL,
        "number": lambda: DOUBLE,
        "integer": lambda: INT,
    }.get(schema.get("type", ""))
    return of_kind() if of_kind is not None else None


def _list_type(schema: JsonObject, name: str) -> Type | None:
    item = schema_type(map_at(schema, "items"), f"{name}.@idx")
    kind: Any = schema.get("x-kubernetes-list-type")
    keys = ",".join(schema.get("x-kubernetes-list-map-keys") or ())
    tags = {"set": "set", "map": f"map:{keys}"}.get(kind, "")
    return None if item is None else list_of(item, tags)


def _object_type(schema: JsonObject, name: str, root: bool) -> Type | None:
    additional = schema.get("additionalProperties")
    if is_map(additional):
        value = schema_type(additional, f"{name}.@elem")
        return None if value is None else map_of(STRING, value)
    fields: dict[str, Type] = {}
    for field_name, inner in map_at(schema, "properties").items():
        if root and field_name in ("apiVersion", "kind", "metadata"):
            continue
        found = schema_type(inner, f"{name}.{field_name}")
        if found is not None and (spelled := escaped(field_name)):
            fields[spelled] = found
    if root:
        fields |= {"apiVersion": STRING, "kind": STRING, "metadata": Type(f"{name}.metadata", fields=_NAMED.fields)}
    return Type(name, fields=fields)
