"""Schemas to Python types, once for reading and once for server-side apply."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from model import Api, Schema, Struct, module_of, referenced_name

Purpose = Literal["read", "apply"]

_MACHINERY = "io.k8s.apimachinery.pkg"
_META = f"{_MACHINERY}.apis.meta.v1"
_CRD = "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1"
_SCALARS = {"string": "str", "boolean": "bool", "integer": "int", "number": "float"}
_ANY_SCHEMAS = frozenset(
    {f"{_MACHINERY}.runtime.RawExtension", f"{_META}.FieldsV1", f"{_META}.Patch", f"{_CRD}.JSON"},
)
_QUANTITY = f"{_MACHINERY}.api.resource.Quantity"
_INT_OR_STRING = f"{_MACHINERY}.util.intstr.IntOrString"
_TIME = f"{_META}.Time"
_MICRO_TIME = f"{_META}.MicroTime"
_OBJECT_META = f"{_META}.ObjectMeta"
_OWNER_REFERENCE = f"{_META}.OwnerReference"
_CONDITION = f"{_META}.Condition"

# Hand-written in steersman.meta, which custom resources share with the built-in kinds.
_READ_FROM_META = {_OBJECT_META: "ObjectMeta", _OWNER_REFERENCE: "OwnerReference", _CONDITION: "Condition"}
_APPLY_FROM_META = {_OBJECT_META: "TemplateMetaApply", _OWNER_REFERENCE: "OwnerReferenceApply"}

# Written as something else than a class, or left out.
_WITHOUT_CLASS = _ANY_SCHEMAS | {
    _QUANTITY,
    _INT_OR_STRING,
    _TIME,
    _MICRO_TIME,
    f"{_META}.ManagedFieldsEntry",
    f"{_CRD}.JSONSchemaPropsOrArray",
    f"{_CRD}.JSONSchemaPropsOrBool",
    f"{_CRD}.JSONSchemaPropsOrStringArray",
}


def has_handwritten_type(name: str, purpose: Purpose) -> bool:
    """Whether the schema ``name`` needs no class of ours."""
    return name in _WITHOUT_CLASS or name in (_READ_FROM_META if purpose == "read" else _APPLY_FROM_META)


def is_struct(name: str) -> bool:
    """Whether the schema ``name`` becomes a class whose instances can be made without arguments when reading."""
    return bool(name) and name not in _WITHOUT_CLASS and name not in (_CONDITION, _OWNER_REFERENCE)


def is_micro_time(schema: Schema) -> bool:
    """Whether Go insists on six digits of microseconds."""
    return referenced_name(schema) == _MICRO_TIME


def is_open(schema: Schema) -> bool:
    """Whether any JSON may stand there, alone or in a list."""
    return (referenced_name(schema) or referenced_name(schema.get("items", {}))) in _ANY_SCHEMAS


@dataclass
class Imports:
    """The names that a module takes from others, collected while its types are written."""

    module: str
    names: dict[str, set[str]] = field(default_factory=dict[str, set[str]])

    def add(self, module: str, name: str) -> str:
        """``name``, which ``module`` defines."""
        if module != self.module:
            self.names.setdefault(module, set()).add(name)
        return name

    def lines(self) -> list[str]:
        return [f"from {module} import {', '.join(sorted(self.names[module]))}" for module in sorted(self.names)]


@dataclass
class TypeRenderer:
    """Writes the types of one module."""

    api: Api
    purpose: Purpose
    imports: Imports

    def type_of(self, schema: Schema) -> str:
        """The type of ``schema`` without its absence."""
        name = referenced_name(schema)
        if name:
            return self._referenced_type(name)
        match schema.get("type"):
            case "array":
                return self._sequence(self.type_of(schema["items"]))
            case "object":
                values: Schema = schema.get("additionalProperties", {})
                return self._mapping(self.type_of(values))
            case "string" if schema.get("format") == "byte":
                return "bytes"
            case str(scalar):
                return _SCALARS[scalar]
            case _:
                return self._any()

    def struct_type(self, struct: Struct) -> str:
        """The class of ``struct``, imported if it lives elsewhere."""
        from_meta = _READ_FROM_META if self.purpose == "read" else _APPLY_FROM_META
        if struct.name in from_meta:
            return self.imports.add("steersman.meta", from_meta[struct.name])
        module = module_of(struct.name)
        if module is None:
            raise LookupError(f"{struct.name} belongs to a group-version that is not generated: add it")
        if self.purpose == "read":
            return self.imports.add(f"steersman.api.{module}", struct.class_name)
        return self.imports.add(f"steersman.api.apply.{module}", f"{struct.class_name}Apply")

    def _referenced_type(self, name: str) -> str:
        if name in _ANY_SCHEMAS:
            return self._any()
        if name == _QUANTITY:
            # Within a custom resource a number stays one: the API server normalizes its own kinds only.
            return (
                "int | str" if self.purpose == "read" else self.imports.add("steersman.meta.go_json", "QuantityLike")
            )
        if name == _INT_OR_STRING:
            return "int | str"
        if name in (_TIME, _MICRO_TIME):
            return self.imports.add("datetime", "datetime")
        if name.startswith(f"{_CRD}.JSONSchemaPropsOr"):
            other = name.rsplit("Or", 1)[1]
            props = self.struct_type(self.api.structs[f"{_CRD}.JSONSchemaProps"])
            if other == "Bool":
                return f"{props} | bool"
            return f"{props} | {self._sequence('str' if other == 'StringArray' else props)}"
        struct = self.api.structs[name]
        if struct.schema.get("type") != "object":
            raise LookupError(f"{name} is no object: say what it is in python_types.py")
        return self.struct_type(struct)

    def _any(self) -> str:
        return self.imports.add("typing", "Any")

    def _sequence(self, item: str) -> str:
        if self.purpose == "read":
            return f"tuple[{item}, ...]"
        return f"{self.imports.add('collections.abc', 'Sequence')}[{item}]"

    def _mapping(self, value: str) -> str:
        if self.purpose == "read":
            return f"{self.imports.add('steersman.meta', 'FrozenDict')}[str, {value}]"
        return f"{self.imports.add('collections.abc', 'Mapping')}[str, {value}]"


def zero_value(schema: Schema, required: bool) -> str | None:
    """The Python literal for a scalar that Go always has; None for one that may be absent."""
    default: Any = schema.get("default")
    if "default" in schema and not isinstance(default, dict | list):
        return repr(default)
    if not required:
        return None
    if by_reference := {_QUANTITY: '"0"', _INT_OR_STRING: "0"}.get(referenced_name(schema)):
        return by_reference
    by_type = {"string": '""', "boolean": "False", "integer": "0", "number": "0.0"}
    return 'b""' if schema.get("format") == "byte" else by_type.get(schema.get("type", ""))
