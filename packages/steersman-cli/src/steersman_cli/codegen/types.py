"""Schemas as Python types, once for reading and once for server-side apply."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from msgspec import UNSET

from steersman.meta import Duration, Quantity
from steersman.meta.duration import PATTERN as DURATION_PATTERN
from steersman.meta.formats import known_format
from steersman_cli.codegen.builtins import builtin, is_quantity
from steersman_cli.codegen.layout import Expression, Union, call, flat, literal, subscript, text
from steersman_cli.codegen.markers import field_arguments, is_literal
from steersman_cli.codegen.shapes import is_struct

Schema = dict[str, Any]
Purpose = Literal["read", "apply"]

_PLAIN = {"boolean": "bool", "integer": "int", "number": "float", "string": "str"}
_FORMATS = {("string", "date-time"): "datetime", ("string", "byte"): "bytes", ("integer", "int64"): "int"}


@dataclass
class Imports:
    """The names that a module takes from others; one that the module defines itself gets another name."""

    own: frozenset[str]
    names: dict[str, set[str]] = field(default_factory=dict[str, set[str]])

    def use(self, module: str, name: str) -> str:
        """What ``name`` of ``module`` is called here."""
        self.names.setdefault(module, set()).add(name)
        return f"{name}_" if name in self.own else name


@dataclass(frozen=True)
class Hint:
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
    absent: Expression = "None"
    nullable: bool = False
    open: bool = False


@dataclass(frozen=True)
class Types:
    """Writes the types of one module; ``named`` knows the classes of structs."""

    purpose: Purpose
    imports: Imports
    named: Callable[[Schema], str]

    def hint(self, schema: Schema, default: Any = UNSET) -> Hint:
        """The type of ``schema``; ``default`` is what ``Field`` has to tell."""
        found, rest, struct = self._typed(schema)
        nullable = bool(schema.get("nullable"))
        if self.purpose == "apply":
            return replace(found, nullable=nullable)
        if "format" in rest and not known_format(rest):
            rest = {k: v for k, v in rest.items() if k != "format"}
        markers = tuple(field_arguments(rest, struct=struct, default=default))
        return replace(found, markers=markers, nullable=nullable)

    def annotation(self, hint: Hint, *others: Expression) -> Expression:
        """``hint`` with its markers, or one of ``others``."""
        members = [hint.type, *(["None"] if hint.nullable else []), *others]
        base = hint.type if len(set(members)) == 1 or hint.type == "Any" else Union(tuple(dict.fromkeys(members)))
        if not hint.markers:
            return base
        marker = call(self.imports.use("steersman.meta", "Field"), *hint.markers)
        return subscript(self.imports.use("typing", "Annotated"), base, marker)

    def part(self, schema: Schema) -> Expression:
        """The type of items of a list or values of a map."""
        return self.annotation(self.hint(schema))

    def _typed(self, schema: Schema) -> tuple[Hint, Schema, bool]:
        """The type, what markers have to say beside it, and whether the type is a struct's class."""
        kind = schema.get("type")
        if schema.get("x-kubernetes-int-or-string"):
            return self._int_or_string(schema)
        if known := builtin({k: v for k, v in schema.items() if k not in _BESIDE_BUILTIN}):
            place = known.read if self.purpose == "read" else known.apply
            beside = {k: v for k, v in schema.items() if k in _BESIDE_BUILTIN}
            return Hint(self.imports.use(*place)), beside, False
        if is_struct(schema):
            return Hint(self.named(schema)), schema, True
        if kind == "array":
            return self._list(schema), schema, False
        if kind == "object":
            return self._map(schema)
        if kind is None:
            return Hint(self.imports.use("typing", "Any"), open=True), schema, False
        return self._scalar(schema)

    def _int_or_string(self, schema: Schema) -> tuple[Hint, Schema, bool]:
        rest = {k: v for k, v in schema.items() if k not in ("type", "anyOf", "allOf")}
        if not is_quantity(schema):
            return Hint(Union(("int", "str"))), rest, False
        rest.pop("pattern")
        if self.purpose == "apply":
            return Hint(self.imports.use("steersman.meta.wire", "QuantityLike")), rest, False
        return Hint(self.imports.use("steersman.meta", "Quantity")), rest, False

    def _scalar(self, schema: Schema) -> tuple[Hint, Schema, bool]:
        kind, form = schema["type"], schema.get("format", "")
        rest = dict(schema)
        if is_literal(schema):
            values = dict.fromkeys(schema["enum"])
            if (kind, form) in _FORMATS and kind == "integer":
                rest.pop("format")
            return Hint(subscript(self.imports.use("typing", "Literal"), *map(literal, values))), rest, False
        name = _FORMATS.get((kind, form), _PLAIN[kind])
        if (kind, form) in _FORMATS:
            rest.pop("format")
        if name == "datetime":
            self.imports.use("datetime", name)
        elif kind == "string" and schema.get("pattern") == DURATION_PATTERN:
            rest.pop("pattern")
            name = self.imports.use("steersman.meta", "Duration")
        return Hint(name), rest, False

    def _list(self, schema: Schema) -> Hint:
        item = self.part(schema.get("items", {}))
        is_open = item == "Any"
        if self.purpose == "apply":
            return Hint(subscript(self.imports.use("collections.abc", "Sequence"), item), open=is_open)
        return Hint(subscript("tuple", item, "..."), absent="()", open=is_open)

    def _map(self, schema: Schema) -> tuple[Hint, Schema, bool]:
        values: Any = schema.get("additionalProperties")
        value = self.part(values) if values and values is not True else self.imports.use("typing", "Any")
        rest = schema
        if values is True or values == {}:
            rest = {**schema, "x-kubernetes-preserve-unknown-fields": True}
        if self.purpose == "apply":
            return Hint(subscript(self.imports.use("collections.abc", "Mapping"), "str", value)), rest, False
        name = self.imports.use("steersman.meta", "FrozenDict")
        return Hint(subscript(name, "str", value), absent=call(name)), rest, False


# What a field may say of a struct of Kubernetes' own that stands in it.
_BESIDE_BUILTIN = ("description", "default", "nullable", "example", "x-kubernetes-validations")


def python_default(hint: Hint, default: Any) -> Expression | None:
    """What stands behind the type where ``default``, in wire form, needs no marker; None where it needs one."""
    if default in ("", [], {}) or default is None:
        return None
    kind = flat(hint.type)
    if isinstance(default, str) and kind in (Quantity.__name__, Duration.__name__):
        return call(kind, text(default))
    if isinstance(default, bool | int | float | str):
        fitting = {str: ("str",), bool: ("bool",), int: ("int", "float"), float: ("float",)}[type(default)]
        if kind in (*fitting, "int | str") or kind.startswith("Literal["):
            return literal(default)
    if isinstance(default, list) and kind in ("tuple[str, ...]", "tuple[int, ...]", "tuple[bool, ...]"):
        return literal(default)
    return None
