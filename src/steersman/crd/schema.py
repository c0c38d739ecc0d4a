"""Structural OpenAPI v3 schemas from struct types.

Source: "Extend the Kubernetes API with CustomResourceDefinitions", section "Specifying a structural schema".
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from datetime import datetime
from functools import cache
from itertools import pairwise
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, cast, get_args, get_origin, get_type_hints

import msgspec

from steersman.errors import SteersmanError
from steersman.meta import Field, FrozenDict, FrozenStruct, Quantity, Rule, to_builtins
from steersman.meta.quantity import PATTERN as QUANTITY_PATTERN

Schema = dict[str, Any]

_SCALARS: dict[Any, Schema] = {
    str: {"type": "string"},
    bool: {"type": "boolean"},
    int: {"type": "integer", "format": "int64"},
    float: {"type": "number"},
    bytes: {"type": "string", "format": "byte"},
    datetime: {"type": "string", "format": "date-time"},
    Any: {"x-kubernetes-preserve-unknown-fields": True},
    Quantity: {
        "anyOf": [{"type": "integer"}, {"type": "string"}],
        "pattern": QUANTITY_PATTERN,
        "x-kubernetes-int-or-string": True,
    },
}

_BOUNDS = {
    "ge": "minimum",
    "le": "maximum",
    "min_length": "minLength",
    "max_length": "maxLength",
    "min_items": "minItems",
    "max_items": "maxItems",
    "pattern": "pattern",
    "format": "format",
    "description": "description",
}


class SchemaError(SteersmanError, TypeError):
    """A Python type has no structural schema; the message names the class and the field."""


def schema_of(kind: type[FrozenStruct]) -> Schema:
    """The schema of a struct type: fields, defaults, required names, docstrings as descriptions.

    Raises:
        SchemaError: a field's type cannot be expressed.
    """
    hints = get_type_hints(kind, include_extras=True)
    texts = _attribute_texts(kind)
    properties: dict[str, Schema] = {}
    required: list[str] = []
    for field in msgspec.structs.fields(kind):
        try:
            schema = _of_type(hints[field.name])
        except SchemaError as error:
            raise SchemaError(f"{kind.__name__}.{field.name}: {error}") from None
        if field.name in texts:
            schema = {"description": texts[field.name], **schema}
        if field.required:
            required.append(field.encode_name)
        elif (default := _default(field)) is not None:
            schema = {**schema, "default": default}
        properties[field.encode_name] = schema
    result: Schema = {"type": "object", "properties": properties}
    if text := vars(kind).get("__doc__"):
        result = {"description": inspect.cleandoc(text), **result}
    if required:
        result["required"] = sorted(required)
    return result


def rules_of(rules: tuple[Rule, ...]) -> list[Schema]:
    """CEL rules in wire form."""
    return [
        {"rule": r.rule, "message": r.message, "reason": r.reason}
        | ({"fieldPath": r.field_path} if r.field_path else {})
        for r in rules
    ]


def _of_type(hint: Any) -> Schema:
    if get_origin(hint) is Annotated:
        base, *markers = get_args(hint)
        schema = _of_type(base)
        for marker in markers:
            if isinstance(marker, Field):
                schema = _marked(schema, marker)
        return schema
    if hint in _SCALARS:
        return dict(_SCALARS[hint])
    origin = get_origin(hint)
    if origin is Literal:
        return _enumeration(get_args(hint))
    if origin in (Union, UnionType):
        return _of_union(get_args(hint))
    if origin is tuple:
        return _of_tuple(get_args(hint))
    if origin is FrozenDict:
        return {"type": "object", "additionalProperties": _of_type(get_args(hint)[1])}
    if isinstance(hint, type) and issubclass(hint, FrozenStruct):
        return schema_of(hint)
    raise SchemaError(f"{hint!r} has no structural schema: use scalars, Literal, tuples, FrozenDict or structs")


def _enumeration(values: tuple[Any, ...]) -> Schema:
    if not all(isinstance(v, str) for v in values):
        raise SchemaError("a Literal must consist of strings")
    return {"type": "string", "enum": list(values)}


def _of_union(members: tuple[Any, ...]) -> Schema:
    present = [m for m in members if m is not NoneType]
    if len(present) == 1:
        return _of_type(present[0])
    if set(present) == {int, str}:
        return {"anyOf": [{"type": "integer"}, {"type": "string"}], "x-kubernetes-int-or-string": True}
    raise SchemaError("the API allows no union but X | None and int | str")


def _of_tuple(arguments: tuple[Any, ...]) -> Schema:
    if len(arguments) != 2 or arguments[1] is not Ellipsis:
        raise SchemaError("a list is written tuple[X, ...]")
    return {"type": "array", "items": _of_type(arguments[0])}


def _marked(schema: Schema, marker: Field) -> Schema:
    bounds = {wire: value for name, wire in _BOUNDS.items() if (value := getattr(marker, name)) is not None}
    result = {**schema, **bounds}
    if marker.list_map_keys:
        result["x-kubernetes-list-type"] = "map"
        result["x-kubernetes-list-map-keys"] = list(marker.list_map_keys)
    if marker.preserve_unknown:
        result["x-kubernetes-preserve-unknown-fields"] = True
    if marker.rules:
        result["x-kubernetes-validations"] = [*result.get("x-kubernetes-validations", []), *rules_of(marker.rules)]
    return result


def _default(field: msgspec.structs.FieldInfo) -> Any:
    """The default as the API server should fill it in; empty values and None mean that nothing is filled in."""
    if field.default is msgspec.NODEFAULT or field.default is None:
        return None
    wire = to_builtins(field.default)
    return None if wire in ("", (), [], {}) else wire


@cache
def _attribute_texts(kind: type[FrozenStruct]) -> dict[str, str]:
    """The string literals that follow attributes (PEP 257's attribute docstrings), base classes included."""
    found: dict[str, str] = {}
    for cls in reversed(kind.__mro__):
        if not issubclass(cls, FrozenStruct) or cls is FrozenStruct:
            continue
        body = cast("ast.ClassDef", ast.parse(textwrap.dedent(inspect.getsource(cls))).body[0]).body
        for attribute, text in pairwise(body):
            match attribute, text:
                case ast.AnnAssign(target=ast.Name(name)), ast.Expr(ast.Constant(str(value))):
                    found[name] = inspect.cleandoc(value)
                case _:
                    continue
    return found
