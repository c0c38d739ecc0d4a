"""Python types for structural schemas, to read objects and to apply them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from msgspec import UNSET

from steersman.meta import Duration, Quantity
from steersman.meta.duration import PATTERN as DURATION_PATTERN
from steersman_cel.formats import known_format
from steersman_cli.codegen.builtins import is_quantity, match_builtin
from steersman_cli.codegen.expressions import call, literal, string_literal, subscript, union
from steersman_cli.codegen.markers import field_arguments, is_literal_enum
from steersman_cli.codegen.source import ModuleSource
from steersman_cli.codegen.structs import is_struct

Schema = dict[str, Any]

_SCALAR_TYPES = {"boolean": "bool", "integer": "int", "number": "float", "string": "str"}
_FORMAT_TYPES = {("string", "date-time"): "datetime", ("string", "byte"): "bytes", ("integer", "int64"): "int"}


@dataclass(frozen=True)
class TypeHint:
    """The type of a field.

    Attributes:
        type: expression without markers and without the type of an absent field.
        markers: the arguments of ``Field``.
        default: value of an absent field: ``()``, ``FrozenDict()`` or ``None``.
        nullable: null is a valid value.
        is_open: any JSON value is valid.
    """

    type: str
    markers: tuple[str, ...] = ()
    default: str = "None"
    nullable: bool = False
    is_open: bool = False


@dataclass(frozen=True)
class TypeRenderer:
    """Renders the types of one module.

    Attributes:
        module: the types' imports are added to it.
        class_name_of: returns the class name of a struct.
    """

    module: ModuleSource
    class_name_of: Callable[[Schema], str]

    def hint(self, schema: Schema, default: Any = UNSET) -> TypeHint:
        """The type of ``schema``. ``Field`` declares ``default``, in wire form, if it is set."""
        found, rest, struct = self._resolve(schema)
        nullable = bool(schema.get("nullable"))
        if self.module.purpose == "apply":
            return replace(found, nullable=nullable)
        if "format" in rest and not known_format(rest):
            rest = {k: v for k, v in rest.items() if k != "format"}
        markers = tuple(field_arguments(rest, self.module.add_import, struct=struct, default=default))
        return replace(found, markers=markers, nullable=nullable)

    def annotation(self, hint: TypeHint, *others: str) -> str:
        """The union of ``hint`` and ``others``, annotated with the markers of ``hint``."""
        nullable = ("None",) if hint.nullable else ()
        base = hint.type if hint.type == "Any" else union(hint.type, *nullable, *others)
        if not hint.markers:
            return base
        marker = call(self.module.add_import("steersman.meta", "Field"), *hint.markers)
        return subscript(self.module.add_import("typing", "Annotated"), base, marker)

    def element_type(self, schema: Schema) -> str:
        """The type of a list's items or a map's values."""
        return self.annotation(self.hint(schema))

    def _resolve(self, schema: Schema) -> tuple[TypeHint, Schema, bool]:
        """Type, schema for its markers, and True for a generated class."""
        kind = schema.get("type")
        if schema.get("x-kubernetes-int-or-string"):
            return self._int_or_string(schema)
        if builtin_type := match_builtin({k: v for k, v in schema.items() if k not in _FIELD_LEVEL_KEYWORDS}):
            import_source = builtin_type.read if self.module.purpose == "read" else builtin_type.apply
            field_level = {k: v for k, v in schema.items() if k in _FIELD_LEVEL_KEYWORDS}
            return TypeHint(self.module.add_import(*import_source)), field_level, False
        if is_struct(schema):
            return TypeHint(self.class_name_of(schema)), schema, True
        if kind == "array":
            return self._list(schema), schema, False
        if kind == "object":
            return self._map(schema)
        if kind is None:
            return TypeHint(self.module.add_import("typing", "Any"), is_open=True), schema, False
        return self._scalar(schema)

    def _int_or_string(self, schema: Schema) -> tuple[TypeHint, Schema, bool]:
        rest = {k: v for k, v in schema.items() if k not in ("type", "anyOf", "allOf")}
        if not is_quantity(schema):
            return TypeHint(union("int", "str")), rest, False
        rest.pop("pattern")
        if self.module.purpose == "apply":
            return TypeHint(self.module.add_import("steersman.meta.go_json", "QuantityLike")), rest, False
        return TypeHint(self.module.add_import("steersman.meta", "Quantity")), rest, False

    def _scalar(self, schema: Schema) -> tuple[TypeHint, Schema, bool]:
        kind, form = schema["type"], schema.get("format", "")
        rest = dict(schema)
        if is_literal_enum(schema):
            values = dict.fromkeys(schema["enum"])
            if (kind, form) in _FORMAT_TYPES and kind == "integer":
                rest.pop("format")
            return (
                TypeHint(subscript(self.module.add_import("typing", "Literal"), *map(literal, values))),
                rest,
                False,
            )
        name = _FORMAT_TYPES.get((kind, form), _SCALAR_TYPES[kind])
        if (kind, form) in _FORMAT_TYPES:
            rest.pop("format")
        if name == "datetime":
            self.module.add_import("datetime", name)
        elif kind == "string" and schema.get("pattern") == DURATION_PATTERN:
            rest.pop("pattern")
            name = self.module.add_import("steersman.meta", "Duration")
        return TypeHint(name), rest, False

    def _list(self, schema: Schema) -> TypeHint:
        item = self.element_type(schema.get("items", {}))
        is_open = item == "Any"
        default = "None" if self.module.purpose == "apply" else "()"
        return TypeHint(self.module.sequence_type(item), default=default, is_open=is_open)

    def _map(self, schema: Schema) -> tuple[TypeHint, Schema, bool]:
        values: Any = schema.get("additionalProperties")
        value = (
            self.element_type(values) if values and values is not True else self.module.add_import("typing", "Any")
        )
        rest = schema
        if values is True or values == {}:
            rest = {**schema, "x-kubernetes-preserve-unknown-fields": True}
        mapping = self.module.mapping_type(value)
        default = "None" if self.module.purpose == "apply" else call(mapping.partition("[")[0])
        return TypeHint(mapping, default=default), rest, False


# Keywords of the field, not of the built-in type that it has.
_FIELD_LEVEL_KEYWORDS = ("description", "default", "nullable", "example", "x-kubernetes-validations")


def python_default(hint: TypeHint, default: Any) -> str | None:
    """The Python default for ``default`` in wire form. None if only a marker can declare it."""
    if default in ("", [], {}) or default is None:
        return None
    kind = hint.type
    if isinstance(default, str) and kind in (Quantity.__name__, Duration.__name__):
        return call(kind, string_literal(default))
    if isinstance(default, bool | int | float | str):
        compatible = {str: ("str",), bool: ("bool",), int: ("int", "float"), float: ("float",)}[type(default)]
        if kind in (*compatible, "int | str") or kind.startswith("Literal["):
            return literal(default)
    if isinstance(default, list) and kind in ("tuple[str, ...]", "tuple[int, ...]", "tuple[bool, ...]"):
        return literal(default)
    return None
