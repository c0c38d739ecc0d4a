"""Structural schemas of custom resources: pruning, defaults and validation.

CEL rules are in ``rules``. Source: "Extend the Kubernetes API with CustomResourceDefinitions";
``pkg/apiserver/schema`` of ``k8s.io/apiextensions-apiserver``; order and wording of ``pkg/validation/validate`` of
``k8s.io/kube-openapi``.
"""

from __future__ import annotations

from typing import Any

from steersman_testing.apiserver.failures import InvalidFieldError
from steersman_testing.apiserver.schemas.fast_validation import is_certainly_valid
from steersman_testing.apiserver.schemas.schema_cache import has_keyword
from steersman_testing.apiserver.schemas.validation import ValidationResult, check_value
from steersman_testing.apiserver.values import MISSING, JsonObject, clone, get_field, get_object, is_list, is_map

_META_FIELDS = frozenset({"apiVersion", "kind", "metadata"})
_CONTAINER_TYPES = (dict, list)
_has_defaults = has_keyword("default")


def prune(value: Any, schema: JsonObject, *, root: bool = True, keep_nulls: bool = False) -> tuple[Any, list[str]]:
    """Return a pruned copy of ``value`` and the paths of pruned fields.

    Args:
        root: whether ``value`` is a whole object, whose metadata is kept.
        keep_nulls: whether nulls are kept that the schema neither allows nor replaces by a default.
    """
    unknown: list[str] = []
    pruned = _prune(value, schema, "", unknown, root=root)
    if not keep_nulls and _has_null(pruned):
        _drop_nulls(pruned, schema)
    return pruned, sorted(unknown)


def _prune(
    value: Any, schema: Any, path: str, unknown: list[str], *, root: bool = False, preserves_unknown: bool = False
) -> Any:
    """Prune ``value``. A schema that is not an object has no fields.

    Args:
        preserves_unknown: whether unknown fields are kept.
    """
    known: JsonObject = schema if is_map(schema) else {}
    preserves_unknown = preserves_unknown or bool(known.get("x-kubernetes-preserve-unknown-fields"))
    if is_list(value):
        # Items without a schema inherit the preservation of unknown fields from the list.
        items = known.get("items")
        if preserves_unknown and not is_map(items):
            return clone(value)
        return [
            _prune(v, items, f"{path}[{i}]", unknown, preserves_unknown=preserves_unknown)
            for i, v in enumerate(value)
        ]
    if not is_map(value):
        return value
    kept_fields = _META_FIELDS if root or known.get("x-kubernetes-embedded-resource") else frozenset[str]()
    properties = get_object(known, "properties")
    result: JsonObject = {}
    for name, content in value.items():
        if name in kept_fields:
            result[name] = clone(content)
        elif name in properties or "additionalProperties" in known:
            if isinstance(content, _CONTAINER_TYPES):
                inner = properties.get(name, known.get("additionalProperties"))
                content = _prune(content, inner, f"{path}.{name}" if path else name, unknown)
            result[name] = content
        elif preserves_unknown:
            result[name] = clone(content)
        elif name not in _META_FIELDS or path:
            unknown.append(f"{path}.{name}" if path else name)
    return result


def property_schema(schema: JsonObject, name: str) -> JsonObject | None:
    """Return the schema of the field or key ``name``, or None."""
    found = get_field(schema.get("properties"), name)
    found = schema.get("additionalProperties") if found is MISSING else found
    return found if is_map(found) else None


def _has_null(value: Any) -> bool:
    # Each write of a custom resource runs this code, and loops take half the time of generators.
    for content in value.values() if is_map(value) else value if is_list(value) else ():
        if content is None or (isinstance(content, _CONTAINER_TYPES) and _has_null(content)):
            return True
    return False


def _drop_nulls(value: Any, schema: JsonObject | None) -> None:
    if is_map(value):
        for name, content in list(value.items()):
            inner = property_schema(schema, name) if schema is not None else None
            if content is None and inner is not None and not inner.get("nullable") and "default" not in inner:
                del value[name]
            else:
                _drop_nulls(content, inner)
    elif is_list(value):
        items = schema.get("items") if schema is not None else None
        for item in value:
            _drop_nulls(item, items)


def _is_wrongly_null(value: Any, schema: JsonObject) -> bool:
    return value is None and not schema.get("nullable")


def fill_defaults(value: Any, schema: JsonObject) -> None:
    """Set defaults for missing fields and invalid nulls, in place."""
    if not isinstance(value, _CONTAINER_TYPES) or not _has_defaults(schema):
        return
    if is_list(value):
        items = schema.get("items")
        if is_map(items):
            for position, item in enumerate(value):
                if _is_wrongly_null(item, items):
                    value[position] = clone(items.get("default"))
                fill_defaults(value[position], items)
    elif is_map(value):
        for name, inner in get_object(schema, "properties").items():
            if inner.get("default") is not None and (name not in value or _is_wrongly_null(value[name], inner)):
                value[name] = clone(inner["default"])
        for name, content in value.items():
            inner = property_schema(schema, name)
            if inner is None:
                continue
            if _is_wrongly_null(content, inner):
                value[name] = clone(inner.get("default"))
            fill_defaults(value[name], inner)


def validate(value: Any, old: Any, schema: JsonObject) -> list[InvalidFieldError]:
    """Return the errors of ``value``. Unchanged values pass (KEP-4008)."""
    return [] if is_certainly_valid(value, schema) else check_value(value, old, schema, "").errors


def validate_status(obj: JsonObject, old: JsonObject, schema: JsonObject) -> list[InvalidFieldError]:
    """Validate a write to the status.

    The texts name fields relative to the status.
    """
    inner = get_object(get_object(schema, "properties"), "status")
    if "status" not in obj or not inner:
        return []
    return validate_value(obj["status"], inner, "status", get_field(old, "status"))


def validate_value(value: Any, schema: JsonObject, path: str, old: Any = MISSING) -> list[InvalidFieldError]:
    """Return the errors of ``value`` at ``path``.

    The texts name fields relative to ``path``.
    """
    found: ValidationResult = check_value(value, old, schema, "")
    return [e._replace(path=path if e.path == "<nil>" else f"{path}.{e.path}") for e in found.errors]
