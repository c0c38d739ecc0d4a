"""Structural OpenAPI v3 schemas from struct types.

Source: "Extend the Kubernetes API with CustomResourceDefinitions", section "Specifying a structural schema".
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, get_type_hints

import msgspec
from msgspec import UNSET

from steersman.meta import Field, FrozenStruct, Rule, to_builtins
from steersman.meta.markers import schema_options
from steersman_manifests.crd.defaults import with_defaults
from steersman_manifests.crd.docstrings import attribute_docstrings, class_docstring
from steersman_manifests.crd.errors import RecursiveTypeError, SchemaError, error_context
from steersman_manifests.crd.markers import check_keywords, marker_default
from steersman_manifests.crd.rule_evaluation import default_violations, has_rules
from steersman_manifests.crd.rules import Schema, immutability_rule, presence_immutability_rule, with_rules
from steersman_manifests.crd.types import TypeSchemaContext, markers_of, type_schema
from steersman_manifests.crd.value_validation import value_violations

__all__ = ["Schema", "SchemaError", "schema_of"]


def schema_of(kind: type[FrozenStruct], *, builtin_descriptions: bool = False) -> Schema:
    """The structural schema of a struct type.

    Args:
        kind: the struct.
        builtin_descriptions: keep the descriptions of built-in types. They make a schema many times
            larger. Defaults to False.

    Raises:
        SchemaError: a field's type cannot be expressed, or its markers contradict each other.
    """
    return struct_schema(kind, TypeSchemaContext(struct_schema, builtin_descriptions=builtin_descriptions))


def struct_schema(kind: type[FrozenStruct], context: TypeSchemaContext) -> Schema:
    """The schema of ``kind`` as a part of other structs.

    Raises:
        SchemaError: as ``schema_of``.
    """
    if kind in context.ancestors:
        raise RecursiveTypeError(
            f"{kind.__name__} contains itself, which no structural schema can express: keep the inner one unchecked, "
            f"with Annotated[{kind.__name__}, Field(preserve_unknown=True)]"
        )
    fields = _properties(kind, replace(context, ancestors=(*context.ancestors, kind)))
    result: Schema = {"type": "object", **_collect(fields)}
    if text := class_docstring(kind):
        result = {"description": text, **result}
    with error_context(kind.__name__):
        return _with_options(kind, result, [r for f in fields for r in f.rules], context)


def fields_schema(kind: type[FrozenStruct], *, without: str, builtin_descriptions: bool) -> Schema:
    """``properties`` and ``required`` of the fields of ``kind`` but one.

    Raises:
        SchemaError: as ``schema_of``.
    """
    context = TypeSchemaContext(struct_schema, builtin_descriptions=builtin_descriptions, ancestors=(kind,))
    return _collect(_properties(kind, context, without))


def _properties(kind: type[FrozenStruct], context: TypeSchemaContext, without: str = "") -> list[_Property]:
    hints = get_type_hints(kind, include_extras=True)
    texts = attribute_docstrings(kind)
    found: list[_Property] = []
    for field in msgspec.structs.fields(kind):
        if field.name == without:
            continue
        with error_context(f"{kind.__name__}.{field.name}"):
            found.append(_property(field, hints[field.name], texts.get(field.name), context))
    return found


def _collect(fields: list[_Property]) -> Schema:
    result: Schema = {"properties": {f.name: f.schema for f in fields}}
    if required := sorted(f.name for f in fields if f.required):
        result["required"] = required
    return result


def _with_options(kind: type[FrozenStruct], result: Schema, rules: list[Rule], context: TypeSchemaContext) -> Schema:
    options = schema_options(kind)
    keywords = {
        "x-kubernetes-map-type": options.map_type,
        "minProperties": options.min_properties,
        "maxProperties": options.max_properties,
        "x-kubernetes-preserve-unknown-fields": options.preserve_unknown or None,
        "title": options.title,
        "externalDocs": None if options.external_docs is None else {"url": options.external_docs},
    }
    result |= {keyword: value for keyword, value in keywords.items() if value is not None}
    check_keywords(result)
    return with_rules(result, [*options.rules, *rules], correlatable=context.correlatable)


@dataclass(frozen=True)
class _Property:
    name: str
    schema: Schema
    required: bool
    rules: tuple[Rule, ...]
    """Rules for the struct around the field."""


def _property(field: msgspec.structs.FieldInfo, hint: Any, text: str | None, context: TypeSchemaContext) -> _Property:
    schema = type_schema(hint, context)
    markers = markers_of(hint)
    if text is not None and all(m.description is None for m in markers):
        schema = {**schema, "description": text}
    if "description" in schema:
        schema = {"description": schema.pop("description"), **schema}
    default = _default_value(field, markers, schema)
    if default is not UNSET:
        if has_rules(schema):
            # The API server validates a default before it adds the defaults of inner fields.
            default = with_defaults(schema, default)
        schema = {**schema, "default": default}
        for violation in (*value_violations(schema, default), *default_violations(schema, default)):
            raise SchemaError(f"the default {default!r} is invalid: {violation}")
    required = field.required and default is UNSET
    rules: list[Rule] = []
    if immutability := next((m.immutable for m in markers if m.immutable), False):
        once_set = immutability == "once-set"
        schema = with_rules(schema, [immutability_rule(once_set=once_set)], correlatable=context.correlatable)
        if not required and default is UNSET:
            rules.append(presence_immutability_rule(field.encode_name, once_set=once_set))
    return _Property(field.encode_name, schema, required, tuple(rules))


def _default_value(field: msgspec.structs.FieldInfo, markers: list[Field], schema: Schema) -> Any:
    """The default of the field in the schema, or UNSET.

    None and empty values mean that the field is absent, and are not defaults. A struct is a default only if its
    fields have defaults.
    """
    for marker in markers:
        if (explicit_default := marker_default(marker)) is not UNSET:
            return UNSET if explicit_default is None else explicit_default
    value = field.default
    if field.default_factory is not msgspec.NODEFAULT:
        value = field.default_factory()
    if value is msgspec.NODEFAULT or value is None or value is UNSET or value == msgspec.Raw():
        return UNSET
    wire = to_builtins(value)
    if wire == {} and isinstance(value, msgspec.Struct):
        return {} if _adds_defaults(schema) else UNSET
    return UNSET if wire in ("", [], {}) else wire


def _adds_defaults(schema: Schema) -> bool:
    """Return True if defaulting adds fields to an empty object."""
    return any("default" in inner for inner in schema.get("properties", {}).values())
