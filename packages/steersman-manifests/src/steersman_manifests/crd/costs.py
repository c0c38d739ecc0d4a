"""Check of the maximum cost of CEL rules in CRD schemas.

The API server rejects CRDs whose rules exceed its cost limits. The check reports this earlier and suggests
bounds such as ``maxItems``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from copy import deepcopy
from typing import NamedTuple

from steersman.errors import ApiError
from steersman_manifests.crd.errors import SchemaError
from steersman_manifests.crd.rule_evaluation import has_rules
from steersman_manifests.crd.rules import RULES, Schema

# The keyword that limits the size of a value, and the argument of Field for it.
_BOUND_KEYWORDS = {
    "string": ("maxLength", "max_length"),
    "array": ("maxItems", "max_items"),
    "object": ("maxProperties", "max_properties"),
}
_CANDIDATE_BOUNDS = (10_000, 5_000, 2_000, 1_000, 500, 200, 100, 50, 20, 10, 5, 2)
_MAX_NAMED = 4


class _SchemaLocation(NamedTuple):
    """A nested schema with its keywords, path and maximum number of values."""

    keys: tuple[str, ...]
    path: str
    schema: Schema
    max_count: int | None


class RuleCost(NamedTuple):
    """The maximum cost of one expression of a schema.

    Attributes:
        path: path of the value.
        kind: ``rule`` or ``message``.
        cost_per_value: cost for one value.
        cost: cost for the maximum number of values. A message counts once, as in the API server.
    """

    path: str
    kind: str
    expression: str
    cost_per_value: int
    cost: int


def check_costs(schema: Schema) -> None:
    """Check the cost of all rules in the schema of a kind.

    Raises:
        SchemaError: the rules exceed a cost limit of the API server.
    """
    if not has_rules(schema):
        return
    costs = rule_costs(schema)
    for index in range(len(costs)):
        _check_rule_cost(schema, costs, index)
    _check_total_cost(schema, costs)


def _check_rule_cost(schema: Schema, costs: list[RuleCost], index: int) -> None:
    from steersman_cel.cost import RULE_COST_LIMIT

    rule_cost = costs[index]
    if rule_cost.cost > RULE_COST_LIMIT:
        advice = _advice(schema, lambda tried: rule_costs(tried)[index].cost, RULE_COST_LIMIT)
        raise SchemaError(
            f"the {rule_cost.kind} {rule_cost.expression!r} on {rule_cost.path} may cost "
            f"{_format_factor(rule_cost.cost, RULE_COST_LIMIT)} the API server's limit for one expression: {advice}"
        )


def _check_total_cost(schema: Schema, costs: list[RuleCost]) -> None:
    from steersman_cel.cost import CRD_COST_LIMIT

    total = sum(c.cost for c in costs)
    if total > CRD_COST_LIMIT:
        most_expensive = sorted(costs, key=lambda c: -c.cost)[:_MAX_NAMED]
        named = ", ".join(f"{c.expression!r} on {c.path}" for c in most_expensive if c.cost >= CRD_COST_LIMIT // 100)
        advice = _advice(schema, lambda tried: sum(c.cost for c in rule_costs(tried)), CRD_COST_LIMIT)
        raise SchemaError(
            f"the rules together may cost {_format_factor(total, CRD_COST_LIMIT)} the limit of the API server for a "
            f"kind, most of all {named}: {advice}"
        )


def _format_factor(cost: int, limit: int) -> str:
    factor = cost / limit
    return "more than 100 times" if factor > 100 else f"{factor:.1f} times" if factor >= 1.1 else "more than"


def _walk(location: _SchemaLocation) -> Iterator[_SchemaLocation]:
    """``location`` and all locations within it."""
    yield location
    schema, keys = location.schema, location.keys
    for name, inner in schema.get("properties", {}).items():
        yield from _walk(
            _SchemaLocation((*keys, "properties", name), f"{location.path}.{name}", inner, location.max_count)
        )
    for keyword, kind in (("items", "array"), ("additionalProperties", "object")):
        if isinstance(inner := schema.get(keyword), dict):
            maximum = schema.get(_BOUND_KEYWORDS[kind][0])
            max_count = None if location.max_count is None or maximum is None else location.max_count * maximum
            step = "[*]" if keyword == "items" else ".*"
            yield from _walk(_SchemaLocation((*keys, keyword), f"{location.path}{step}", inner, max_count))


def rule_costs(schema: Schema) -> list[RuleCost]:
    """The cost of each rule in the schema of a kind. The order does not depend on bounds."""
    from steersman_cel.cost import total_cost
    from steersman_cel.types import type_from_schema

    found: list[RuleCost] = []
    for location in _walk(_SchemaLocation((), "", schema, 1)):
        rules = location.schema.get(RULES, ())
        kind = type_from_schema(location.schema, root=not location.keys) if rules else None
        if kind is None:
            continue
        path = location.path or "the object"
        for rule in rules:
            cost_per_value = _expression_cost(rule["rule"], rule, location)
            found.append(
                RuleCost(
                    path, "rule", rule["rule"], cost_per_value, total_cost(cost_per_value, location.max_count, kind)
                )
            )
            if message := rule.get("messageExpression"):
                cost_per_value = _expression_cost(message, rule, location)
                found.append(RuleCost(path, "message", message, cost_per_value, cost_per_value))
    return found


def _expression_cost(expression: str, rule: Schema, location: _SchemaLocation) -> int:
    """The cost of an expression on one value. 0 if only the API server can estimate it."""
    from steersman_cel.validation import cached_program, schema_key

    try:
        return cached_program(
            schema_key(location.schema, not location.keys), expression, bool(rule.get("optionalOldSelf"))
        ).cost
    except ApiError as error:
        if error.code == 501:
            return 0
        raise


# Advice


class _BoundCandidate(NamedTuple):
    location: _SchemaLocation
    keyword: str
    argument: str


def _bound_candidates(schema: Schema) -> Iterator[_BoundCandidate]:
    for location in _walk(_SchemaLocation((), "", schema, 1)):
        kind = location.schema.get("type", "")
        is_map = kind == "object" and isinstance(location.schema.get("additionalProperties"), dict)
        is_text = kind == "string" and "enum" not in location.schema and "format" not in location.schema
        if kind == "array" or is_map or is_text:
            keyword, argument = _BOUND_KEYWORDS[kind]
            yield _BoundCandidate(location, keyword, argument)


def _with_bounds(schema: Schema, bounds: list[_BoundCandidate], maximum: int) -> Schema:
    result = deepcopy(schema)
    for bound in bounds:
        target = result
        for key in bound.location.keys:
            target = target[key]
        target[bound.keyword] = min(maximum, target.get(bound.keyword, maximum))
    return result


def _advice(schema: Schema, cost_of: Callable[[Schema], int], limit: int) -> str:
    """Advice on missing bounds, with the greatest values that fit the limit."""
    before = cost_of(schema)
    effective = [b for b in _bound_candidates(schema) if cost_of(_with_bounds(schema, [b], 1)) < before]
    missing = [b for b in effective if b.keyword not in b.location.schema] or effective
    for bounds in (missing, effective):
        for maximum in _CANDIDATE_BOUNDS:
            if bounds and cost_of(_with_bounds(schema, bounds, maximum)) <= limit:
                suggestions = ", ".join(f"{b.argument}={maximum} on {b.location.path}" for b in bounds[:_MAX_NAMED])
                return (
                    f"set, for example, {suggestions}"
                    if len(bounds) <= _MAX_NAMED
                    else f"bound what it goes over: {suggestions}…"
                )
    return "write a simpler one"
