"""Python types for the schemas of OpenAPI documents."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from model import Api, Schema, Struct, module_of, referenced_name

from steersman_cli.codegen.names import apply_module_name
from steersman_cli.codegen.source import ModuleSource, Purpose

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

# Written by hand in steersman.meta, for custom resources and built-in kinds.
_READ_FROM_META = {_OBJECT_META: "ObjectMeta", _OWNER_REFERENCE: "OwnerReference", _CONDITION: "Condition"}
_APPLY_FROM_META = {_OBJECT_META: "TemplateMeta", _OWNER_REFERENCE: "OwnerReference"}
APPLY_FROM_META = ("ObjectMeta", "OwnerReference", "TemplateMeta")
"""Names of the apply types in ``steersman.meta.apply``."""

# Types that are not classes, and types without a use.
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
    """Return True if no class is generated for the schema ``name``."""
    return name in _WITHOUT_CLASS or name in (_READ_FROM_META if purpose == "read" else _APPLY_FROM_META)


def is_struct(name: str) -> bool:
    """Return True if the class of ``name`` needs no arguments."""
    return bool(name) and name not in _WITHOUT_CLASS and name not in (_CONDITION, _OWNER_REFERENCE)


def is_micro_time(schema: Schema) -> bool:
    """Return True if Go requires six digits of microseconds."""
    return referenced_name(schema) == _MICRO_TIME


def is_open(schema: Schema) -> bool:
    """Return True if the value, or its items, may be any JSON."""
    return (referenced_name(schema) or referenced_name(schema.get("items", {}))) in _ANY_SCHEMAS


@dataclass
class TypeRenderer:
    """Renders the types of one module, and adds their imports to it."""

    api: Api
    module: ModuleSource

    def type_of(self, schema: Schema) -> str:
        """The type of a field with ``schema`` that is present."""
        name = referenced_name(schema)
        if name:
            return self._referenced_type(name)
        match schema.get("type"):
            case "array":
                return self.module.sequence_type(self.type_of(schema["items"]))
            case "object":
                values: Schema = schema.get("additionalProperties", {})
                return self.module.mapping_type(self.type_of(values))
            case "string" if schema.get("format") == "byte":
                return "bytes"
            case str(scalar):
                return _SCALARS[scalar]
            case _:
                return self._any()

    def struct_type(self, struct: Struct) -> str:
        """The class of ``struct``, imported if another module defines it."""
        from_meta = _READ_FROM_META if self.module.purpose == "read" else _APPLY_FROM_META
        if struct.name in from_meta:
            package = "steersman.meta" if self.module.purpose == "read" else "steersman.meta.apply"
            return self.module.add_import(package, from_meta[struct.name])
        module = module_of(struct.name)
        if module is None:
            raise LookupError(
                f"{struct.name} belongs to a group-version that is not generated: add it to GROUP_VERSIONS"
            )
        if self.module.purpose == "read":
            return self.module.add_import(f"steersman.api.{module}", struct.class_name)
        return self.module.add_import(f"steersman.api.apply.{apply_module_name(module)}", struct.class_name)

    def _referenced_type(self, name: str) -> str:
        if name in _ANY_SCHEMAS:
            return self._any()
        if name == _QUANTITY:
            # The API server normalizes quantities of built-in kinds. In a custom resource a number stays a number.
            return (
                "int | str"
                if self.module.purpose == "read"
                else self.module.add_import("steersman.meta.go_json", "QuantityLike")
            )
        if name == _INT_OR_STRING:
            return "int | str"
        if name in (_TIME, _MICRO_TIME):
            return self.module.add_import("datetime", "datetime")
        if name.startswith(f"{_CRD}.JSONSchemaPropsOr"):
            other = name.rsplit("Or", 1)[1]
            props = self.struct_type(self.api.structs[f"{_CRD}.JSONSchemaProps"])
            if other == "Bool":
                return f"{props} | bool"
            return f"{props} | {self.module.sequence_type('str' if other == 'StringArray' else props)}"
        struct = self.api.structs[name]
        if struct.schema.get("type") != "object":
            raise LookupError(f"{name} is not an object: add its type to python_types.py")
        return self.struct_type(struct)

    def _any(self) -> str:
        return self.module.add_import("typing", "Any")


def zero_value(schema: Schema, required: bool) -> str | None:
    """The Python literal of a scalar field that Go always writes. None if the field may be absent."""
    default: Any = schema.get("default")
    if "default" in schema and not isinstance(default, dict | list):
        return repr(default)
    if not required:
        return None
    if by_reference := {_QUANTITY: '"0"', _INT_OR_STRING: "0"}.get(referenced_name(schema)):
        return by_reference
    by_type = {"string": '""', "boolean": "False", "integer": "0", "number": "0.0"}
    return 'b""' if schema.get("format") == "byte" else by_type.get(schema.get("type", ""))
