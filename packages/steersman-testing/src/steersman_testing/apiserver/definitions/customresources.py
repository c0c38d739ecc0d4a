"""What a definition forbids in its custom resources, in the order of the real server.

Source: ``pkg/registry/customresource`` of ``k8s.io/apiextensions-apiserver``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from steersman_testing.apiserver.failures import FieldError, invalid_value
from steersman_testing.apiserver.kinds import Kind, ScalePaths
from steersman_testing.apiserver.schemas.budgets import check_budget
from steersman_testing.apiserver.schemas.embedded import metadata_errors
from steersman_testing.apiserver.schemas.listtypes import list_errors
from steersman_testing.apiserver.schemas.rules import BLOCKING, NOT_CHECKED, check_rules
from steersman_testing.apiserver.schemas.schema import validate, validate_status
from steersman_testing.apiserver.values import MISSING, JsonObject, is_map, type_of

_LARGEST_INT32 = 2**31 - 1


def custom_errors(
    kind: Kind, obj: JsonObject, old: Any, subresource: str, before: Sequence[FieldError] = ()
) -> list[FieldError]:
    """What is wrong with ``obj``, written to ``subresource`` in place of ``old`` (or MISSING).

    Args:
        before: what was wrong before anybody looked at the schema; with it, rules are not evaluated either.
    """
    schema = kind.schema
    if schema is None:
        return []
    if subresource == "status":
        found = validate_status(obj, old, schema)
        found += _scale_status(obj, kind.scale)
    else:
        found = validate(obj, old, schema)
        found += [*_scale_spec(obj, kind.scale), *_scale_status(obj, kind.scale), *metadata_errors(obj, schema)]
    if old is MISSING or not list_errors(old, schema):
        # Where the old object had duplicates, the new one may have them.
        found += list_errors(obj, schema)
    if kind.has_rules:
        blocked = any(e.reason in BLOCKING for e in (*before, *found))
        if kind.dear_rules and not blocked:
            check_budget(obj, old, schema)
        found += [NOT_CHECKED] if blocked else check_rules(obj, old, schema)
    return found


def _scale_spec(obj: JsonObject, paths: ScalePaths | None) -> Iterator[FieldError]:
    if paths is not None:
        yield from _replicas(obj, paths.spec)


def _scale_status(obj: JsonObject, paths: ScalePaths | None) -> Iterator[FieldError]:
    if paths is None:
        return
    yield from _replicas(obj, paths.status)
    if paths.selector:
        found, problem = nested(obj, paths.selector, str)
        if problem:
            yield invalid_value(paths.selector, "" if found is None else found, problem)


def _replicas(obj: JsonObject, path: str) -> Iterator[FieldError]:
    count, problem = nested(obj, path, int)
    if problem:
        yield invalid_value(path, 0, problem)
    elif count is not None and count < 0:
        yield invalid_value(path, count, "should be a non-negative integer")
    elif count is not None and count > _LARGEST_INT32:
        yield invalid_value(path, count, f"should be less than or equal to {_LARGEST_INT32}")


def nested(obj: JsonObject, path: str, wanted: type[Any]) -> tuple[Any, str]:
    """What ``obj`` has at ``path`` (``.spec.replicas``), and why that is not of the type ``wanted`` (str or int).

    Both are empty where there is nothing.
    """
    place: Any = obj
    told = f".{path.lstrip('.')} accessor error:"
    for name in path.lstrip(".").split("."):
        if not is_map(place):
            return None, f"{told} {_shown(place)} is of the type {_go_type(place)}, expected map[string]interface{{}}"
        if name not in place:
            return None, ""
        place = place[name]
    if type(place) is not wanted:
        expected = "int64" if wanted is int else "string"
        return None, f"{told} {_shown(place)} is of the type {_go_type(place)}, expected {expected}"
    return place, ""


def _shown(value: Any) -> str:
    if value is None:
        return "<nil>"
    return str(value).lower() if isinstance(value, bool) else str(value)


def _go_type(value: Any) -> str:
    names = {bool: "bool", int: "int64", float: "float64", str: "string", list: "[]interface {}"}
    return "<nil>" if value is None else names.get(type_of(value), "map[string]interface {}")
