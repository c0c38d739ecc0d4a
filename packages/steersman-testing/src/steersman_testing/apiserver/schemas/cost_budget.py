"""Cost budget of CEL rules at run time.

The CEL engine does not count costs. So the cost is estimated as for definitions, with the sizes of the object in
place of the limits of the schema. If the estimate exceeds the budget, the behaviour of the real server is unknown.

Source: ``pkg/apis/cel/config.go`` of ``k8s.io/apiserver``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import msgspec

from steersman_cel.types import MAX_KEY_LENGTH, MAX_REQUEST_BYTES
from steersman_cel.validation import VALIDATIONS_KEY
from steersman_manifests.crd.costs import rule_costs
from steersman_testing.apiserver.failures import not_implemented
from steersman_testing.apiserver.schemas.schema_cache import SchemaCache, has_keyword
from steersman_testing.apiserver.values import JsonObject, get_object, is_list, is_map

_CALL_BUDGET = 1_000_000
_OBJECT_BUDGET = 10_000_000
_SUBSCHEMA_KEYWORDS = ("additionalProperties", "items")
_MIN_ROUNDED_LENGTH = 16
_STRING_SCHEMA: JsonObject = {"type": "string"}
_METADATA_SCHEMA: JsonObject = {
    "type": "object",
    "properties": {"name": _STRING_SCHEMA, "generateName": _STRING_SCHEMA},
}
_has_rules = has_keyword(VALIDATIONS_KEY)

SizeFunc = Callable[[int], int]
"""Rounds a length."""


def may_exceed_budget(schema: JsonObject) -> bool:
    """Return True if objects of ``schema`` can exceed the budget."""
    return _exceeds_budget(_with_max_key_length(schema))


def _exceeds_budget(schema: JsonObject) -> bool:
    return _encoded_exceeds_budget(msgspec.json.encode(schema))


@lru_cache(maxsize=1024)
def _encoded_exceeds_budget(schema: bytes) -> bool:
    costs = rule_costs(msgspec.json.decode(schema))
    return any(c.cost_per_value > _CALL_BUDGET for c in costs) or sum(c.cost for c in costs) > _OBJECT_BUDGET


def check_budget(obj: JsonObject, old: Any, schema: JsonObject) -> None:
    """Reject an object whose rules may exceed the budget.

    Args:
        obj: the whole object.
        old: the object before an update, or MISSING.
        schema: a schema with rules that may exceed the budget.

    Raises:
        ApiError: 501, the estimated cost exceeds the budget.
    """
    values = [v for v in (obj, old) if is_map(v)]
    # An estimate takes long and sizes change often, so try bounds first that many objects share.
    if not _exceeds_budget_at(schema)(_longest(values)):
        return
    full_schema = _with_type_meta(schema)
    if all(_exceeds_budget(_with_size_bounds(full_schema, values, size)) for size in (_rounded_size, _exact_size)):
        raise not_implemented("CEL rules on an object so large that they may cost more than the real server allows")


class _Longest(NamedTuple):
    """Lengths of the longest string and the longest list or map.

    They are rounded up to powers of two.
    """

    string: int
    collection: int


def _longest(values: Sequence[Any]) -> _Longest:
    """Return the longest lengths at any depth of ``values``."""
    string = collection = _MIN_ROUNDED_LENGTH
    stack = list(values)
    while stack:
        value = stack.pop()
        if isinstance(value, str):
            string = max(string, len(value))
        elif is_map(value):
            collection, string = max(collection, len(value)), max(string, max(map(len, value), default=0))
            stack.extend(value.values())
        elif is_list(value):
            collection = max(collection, len(value))
            stack.extend(value)
    return _Longest(1 << (string - 1).bit_length(), 1 << (collection - 1).bit_length())


def _estimate_by_length(schema: JsonObject) -> Callable[[_Longest], bool]:
    """Return a predicate for lengths with which objects may exceed the budget.

    Each string, list and map counts as long as the longest.
    """
    full_schema = _with_type_meta(schema)

    @lru_cache(maxsize=1024)
    def exceeds_budget(longest: _Longest) -> bool:
        return _exceeds_budget(_with_uniform_bounds(full_schema, longest))

    return exceeds_budget


_exceeds_budget_at = SchemaCache(_estimate_by_length)


def _with_uniform_bounds(schema: JsonObject, longest: _Longest) -> JsonObject:
    """Return ``schema`` with the same limits at each string, list and map."""
    found = dict(schema)
    if schema.get("x-kubernetes-int-or-string") or schema.get("type") == "string":
        found["maxLength"] = longest.string
    if is_map(items := schema.get("items")):
        found["maxItems"], found["items"] = longest.collection, _with_uniform_bounds(items, longest)
    if is_map(additional := schema.get("additionalProperties")):
        found[MAX_KEY_LENGTH], found["maxProperties"] = longest.string, longest.collection
        found["additionalProperties"] = _with_uniform_bounds(additional, longest)
    if properties := get_object(schema, "properties"):
        found["properties"] = {n: _with_uniform_bounds(s, longest) for n, s in properties.items()}
    return found


def _with_type_meta(schema: JsonObject) -> JsonObject:
    """Return ``schema`` with the fields that rules see in each object."""
    root_properties = {"apiVersion": _STRING_SCHEMA, "kind": _STRING_SCHEMA, "metadata": _METADATA_SCHEMA}
    return {**schema, "properties": {**get_object(schema, "properties"), **root_properties}}


def _with_max_key_length(schema: JsonObject) -> JsonObject:
    """Return ``schema`` with the maximum length of map keys."""
    found = {n: _with_max_key_length(v) if n in _SUBSCHEMA_KEYWORDS and is_map(v) else v for n, v in schema.items()}
    if is_map(schema.get("additionalProperties")):
        found[MAX_KEY_LENGTH] = MAX_REQUEST_BYTES
    if properties := get_object(schema, "properties"):
        found["properties"] = {n: _with_max_key_length(s) for n, s in properties.items()}
    return found


def _exact_size(length: int) -> int:
    return length


def _rounded_size(length: int) -> int:
    """Round up to three significant binary digits.

    The error is less than a quarter.
    """
    if length <= _MIN_ROUNDED_LENGTH:
        return _MIN_ROUNDED_LENGTH
    step = 1 << ((length - 1).bit_length() - 3)
    return -(-length // step) * step


def _with_size_bounds(
    schema: JsonObject, values: Sequence[Any], size: SizeFunc, *, has_outer_rule: bool = False
) -> JsonObject:
    """Return ``schema`` with size limits from ``values``, where rules see them.

    Args:
        size: rounding of sizes.
        has_outer_rule: whether an outer schema has a rule.
    """
    has_outer_rule = has_outer_rule or VALIDATIONS_KEY in schema

    def bounded_subschema(inner: JsonObject, values: Sequence[Any]) -> JsonObject:
        return (
            _with_size_bounds(inner, values, size, has_outer_rule=has_outer_rule)
            if has_outer_rule or _has_rules(inner)
            else inner
        )

    kind = "text" if schema.get("x-kubernetes-int-or-string") else schema.get("type", "")
    found = dict(schema)
    if kind in ("string", "text"):
        max_length = size(max((len(v) for v in values if isinstance(v, str)), default=1))
        # Lengths count characters as four bytes, except in the format byte.
        found["maxLength"] = max_length if schema.get("format") == "byte" else (max_length + 3) // 4
    elif kind == "array":
        lists = [v for v in values if is_list(v)]
        found["maxItems"] = size(max(map(len, lists), default=0))
        found["items"] = bounded_subschema(get_object(schema, "items"), [item for v in lists for item in v])
    elif kind == "object":
        maps = [v for v in values if is_map(v)]
        if is_map(additional := schema.get("additionalProperties")):
            found[MAX_KEY_LENGTH] = size(max((len(key) for v in maps for key in v), default=0))
            found["maxProperties"] = size(max(map(len, maps), default=0))
            found["additionalProperties"] = bounded_subschema(additional, [item for v in maps for item in v.values()])
        if properties := get_object(schema, "properties"):
            found["properties"] = {
                n: bounded_subschema(s, [v[n] for v in maps if n in v]) for n, s in properties.items()
            }
    return found
