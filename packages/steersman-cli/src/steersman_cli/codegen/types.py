"""Schemas as Python types, once for reading and once for server-side apply."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from msgspec import UNSET

from steersman.meta import Duration, Quantity
from steersman.meta.duration import PATTERN as DURATION_PATTERN
from steersman.meta.formats import known_format
from steersman_cli.codegen.builtins import is_quantity, match_builtin
from steersman_cli.codegen.expressions import (
    Expression,
    UnionType,
    call,
    literal,
    render_flat,
    string_literal,
    subscript,
)
from steersman_cli.codegen.markers import field_arguments, is_literal_enum
from steersman_cli.codegen.structs import is_struct

Schema = dict[str, Any]
Purpose = Literal["read", "apply"]

_SCALAR_TYPES = {"boolean": "bool", "integer": "int", "number": "float", "string": "str"}
_FORMAT_TYPES = {("string", "date-time"): "datetime", ("string", "byte"): "bytes", ("integer", "int64"): "int"}


@dataclass
class Imports:
    """The names that a module takes from others; one that the module defines itself gets another name."""

    local_names: frozenset[str]
    names: dict[str, set[str]] = field(default_factory=dict[str, set[str]])

    def add(self, module: str, name: str) -> str:
        """What ``name`` of ``module`` is called here."""
        self.names.setdefault(module, set()).add(name)
        return f"{name}_" if name in self.local_names else name


@dataclass(frozen=True)
class TypeHint:
    """A type as it stands behind a field's name.

    Attributes:
        type: without markers and absence.
        markers: the arguments of ``Field``.
        absent: what Python has where the field is absent: ``()``, ``FrozenDict()`` or ``None``.
        nullable: whether null is a value.
        open: whether any JSON may stand there.
    """

    type: Expression
    markers: tuple[Expression, ...] = ()
    default: Expression = "None"
    nullable: bool = False
    is_open: bool = False


@dataclass(frozen=True)
class TypeRenderer:
    """Writes the types of one module; ``named`` knows the classes of structs."""

    purpose: Purpose
    imports: Imports
    class_name_of: Callable[[Schema], str]

    def hint(self, schema: Schema, default: Any = UNSET) -> TypeHint:
        """The type of ``schema``; ``default`` is what ``Field`` has to tell."""
        found, rest, struct = self._resolve(schema)
        nullable = bool(schema.get("nullable"))
        if self.purpose == "apply":
            return replace(found, nullable=nullable)
        if "format" in rest and not known_format(rest):
            rest = {k: v for k, v in rest.items() if k != "format"}
        markers = tuple(field_arguments(rest, struct=struct, default=default))
        return replace(found, markers=markers, nullable=nullable)

    def annotation(self, hint: TypeHint, *others: Expression) -> Expression:
        """``hint`` with its markers, or one of ``others``."""
        members = [hint.type, *(["None"] if hint.nullable else []), *others]
        base = hint.type if len(set(members)) == 1 or hint.type == "Any" else UnionType(tuple(dict.fromkeys(members)))
        if not hint.markers:
            return base
        marker = call(self.imports.add("steersman.meta", "Field"), *hint.markers)
        return subscript(self.imports.add("typing", "Annotated"), base, marker)

    def element_type(self, schema: Schema) -> Expression:
        """The type of items of a list or values of a map."""
        return self.annotation(self.hint(schema))

    def _resolve(self, schema: Schema) -> tuple[TypeHint, Schema, bool]:
        """The type, what markers have to say beside it, and whether the type is a struct's class."""
        kind = schema.get("type")
        if schema.get("x-kubernetes-int-or-string"):
            return self._int_or_string(schema)
        if builtin_type := match_builtin({k: v for k, v in schema.items() if k not in _FIELD_LEVEL_KEYWORDS}):
            import_source = builtin_type.read if self.purpose == "read" else builtin_type.apply
            field_level = {k: v for k, v in schema.items() if k in _FIELD_LEVEL_KEYWORDS}
            return TypeHint(self.imports.add(*import_source)), field_level, False
        if is_struct(schema):
            return TypeHint(self.class_name_of(schema)), schema, True
        if kind == "array":
            return self._list(schema), schema, False
        if kind == "object":
            return self._map(schema)
        if kind is None:
            return TypeHint(self.imports.add("typing", "Any"), is_open=True), schema, False
        return self._scalar(schema)

    def _int_or_string(self, schema: Schema) -> tuple[TypeHint, Schema, bool]:
        rest = {k: v for k, v in schema.items() if k not in ("type", "anyOf", "allOf")}
        if not is_quantity(schema):
            return TypeHint(UnionType(("int", "str"))), rest, False
        rest.pop("pattern")
        if self.purpose == "apply":
            return TypeHint(self.imports.add("steersman.meta.go_json", "QuantityLike")), rest, False
        return TypeHint(self.imports.add("steersman.meta", "Quantity")), rest, False

    def _scalar(self, schema: Schema) -> tuple[TypeHint, Schema, bool]:
        kind, form = schema["type"], schema.get("format", "")
        rest = dict(schema)
        if is_literal_enum(schema):
            values = dict.fromkeys(schema["enum"])
            if (kind, form) in _FORMAT_TYPES and kind == "integer":
                rest.pop("format")
            return TypeHint(subscript(self.imports.add("typing", "Literal"), *map(literal, values))), rest, False
        name = _FORMAT_TYPES.get((kind, form), _SCALAR_TYPES[kind])
        if (kind, form) in _FORMAT_TYPES:
            rest.pop("format")
        if name == "datetime":
            self.imports.add("datetime", name)
        elif kind == "string" and schema.get("pattern") == DURATION_PATTERN:
            rest.pop("pattern")
            name = self.imports.add("steersman.meta", "Duration")
        return TypeHint(name), rest, False

    def _list(self, schema: Schema) -> TypeHint:
        item = self.element_type(schema.get("items", {}))
        is_open = item == "Any"
        if self.purpose == "apply":
            return TypeHint(subscript(self.imports.add("collections.abc", "Sequence"), item), is_open=is_open)
        return TypeHint(subscript("tuple", item, "..."), default="()", is_open=is_open)

    def _map(self, schema: Schema) -> tuple[TypeHint, Schema, bool]:
        values: Any = schema.get("additionalProperties")
        value = self.element_type(values) if values and values is not True else self.imports.add("typing", "Any")
        rest = schema
        if values is True or values == {}:
            rest = {**schema, "x-kubernetes-preserve-unknown-fields": True}
        if self.purpose == "apply":
            return TypeHint(subscript(self.imports.add("collections.abc", "Mapping"), "str", value)), rest, False
        name = self.imports.add("steersman.meta", "FrozenDict")
        return TypeHint(subscript(name, "str", value), default=call(name)), rest, False


# What a field may say of a struct of Kubernetes' own that stands in it.
_FIELD_LEVEL_KEYWORDS = ("description", "default", "nullable", "example", "x-kubernetes-validations")


def python_default(hint: TypeHint, default: Any) -> Expression | None:
    """What stands behind the type where ``default``, in wire form, needs no marker; None where it needs one."""
    if default in ("", [], {}) or default is None:
        return None
    kind = render_flat(hint.type)
    if isinstance(default, str) and kind in (Quantity.__name__, Duration.__name__):
        return call(kind, string_literal(default))
    if isinstance(default, bool | int | float | str):
        compatible = {str: ("str",), bool: ("bool",), int: ("int", "float"), float: ("float",)}[type(default)]
        if kind in (*compatible, "int | str") or kind.startswith("Literal["):
            return literal(default)
    if isinstance(default, list) and kind in ("tuple[str, ...]", "tuple[int, ...]", "tuple[bool, ...]"):
        return literal(default)
    return None
