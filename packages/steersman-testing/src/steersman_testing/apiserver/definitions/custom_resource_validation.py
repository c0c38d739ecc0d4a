"""Validation of custom resources, in the order of the real server.

Source: ``pkg/registry/customresource`` of ``k8s.io/apiextensions-apiserver``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from steersman_testing.apiserver.failures import InvalidFieldError, invalid_value
from steersman_testing.apiserver.go_values import go_type_name, go_value_text
from steersman_testing.apiserver.kinds import ScalePaths, ServedKind
from steersman_testing.apiserver.schemas.cost_budget import check_budget
from steersman_testing.apiserver.schemas.embedded import metadata_errors
from steersman_testing.apiserver.schemas.list_types import list_type_errors
from steersman_testing.apiserver.schemas.rules import BLOCKING_REASONS, RULES_NOT_CHECKED, rule_errors
from steersman_testing.apiserver.schemas.schema import validate, validate_status
from steersman_testing.apiserver.values import MISSING, JsonObject, is_map

_MAX_INT32 = 2**31 - 1


def custom_resource_errors(
    kind: ServedKind, obj: JsonObject, old: Any, subresource: str, previous_errors: Sequence[InvalidFieldError] = ()
) -> list[InvalidFieldError]:
    """Return the errors of a write of ``obj`` to ``subresource``.

    Args:
        old: the object before an update, or MISSING.
        previous_errors: errors of the metadata. They may prevent the evaluation of rules.
    """
    schema = kind.schema
    if schema is None:
        return []
    if subresource == "status":
        found = validate_status(obj, old, schema)
        found += _scale_status_errors(obj, kind.scale)
    else:
        found = validate(obj, old, schema)
        found += [
            *_scale_spec_errors(obj, kind.scale),
            *_scale_status_errors(obj, kind.scale),
            *metadata_errors(obj, schema),
        ]
    if old is MISSING or not list_type_errors(old, schema):
        # Duplicates are valid if the old object had duplicates.
        found += list_type_errors(obj, schema)
    if kind.has_rules:
        blocked = any(e.reason in BLOCKING_REASONS for e in (*previous_errors, *found))
        if kind.has_expensive_rules and not blocked:
            check_budget(obj, old, schema)
        found += [RULES_NOT_CHECKED] if blocked else rule_errors(obj, old, schema)
    return found


def _scale_spec_errors(obj: JsonObject, paths: ScalePaths | None) -> Iterator[InvalidFieldError]:
    if paths is not None:
        yield from _replicas_errors(obj, paths.spec_replicas_path)


def _scale_status_errors(obj: JsonObject, paths: ScalePaths | None) -> Iterator[InvalidFieldError]:
    if paths is None:
        return
    yield from _replicas_errors(obj, paths.status_replicas_path)
    if paths.label_selector_path:
        found, problem = nested_field(obj, paths.label_selector_path, str)
        if problem:
            yield invalid_value(paths.label_selector_path, "" if found is None else found, problem)


def _replicas_errors(obj: JsonObject, path: str) -> Iterator[InvalidFieldError]:
    count, problem = nested_field(obj, path, int)
    if problem:
        yield invalid_value(path, 0, problem)
    elif count is not None and count < 0:
        yield invalid_value(path, count, "should be a non-negative integer")
    elif count is not None and count > _MAX_INT32:
        yield invalid_value(path, count, f"should be less than or equal to {_MAX_INT32}")


def nested_field(obj: JsonObject, path: str, expected_type: type[Any]) -> tuple[Any, str]:
    """Return the value at ``path`` and the error of a wrong type.

    Both are empty if the field is missing.

    Args:
        path: such as ``.spec.replicas``.
        expected_type: str or int.
    """
    current: Any = obj
    prefix = f".{path.lstrip('.')} accessor error:"
    for name in path.lstrip(".").split("."):
        if not is_map(current):
            return None, f"{prefix} {_type_mismatch(current, 'map[string]interface{}')}"
        if name not in current:
            return None, ""
        current = current[name]
    if type(current) is not expected_type:
        return None, f"{prefix} {_type_mismatch(current, 'int64' if expected_type is int else 'string')}"
    return current, ""


def _type_mismatch(value: Any, expected: str) -> str:
    return f"{go_value_text(value)} is of the type {go_type_name(value)}, expected {expected}"
