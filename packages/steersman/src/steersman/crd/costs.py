"""What the rules of a schema cost, held to the budgets by which the API server refuses definitions."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from copy import deepcopy
from typing import NamedTuple

from steersman.crd.errors import SchemaError
from steersman.crd.expressions import is_installed
from steersman.crd.judgement import has_rules
from steersman.crd.rules import RULES, Schema
from steersman.errors import ApiError

# What bounds a value, in the schema and as an argument of Field.
_BOUNDS = {
    "string": ("maxLength", "max_length"),
    "array": ("maxItems", "max_items"),
    "object": ("maxProperties", "max_properties"),
}
_TRIED = (10_000, 5_000, 2_000, 1_000, 500, 200, 100, 50, 20, 10, 5, 2)
_MOST_NAMED = 4


class _Place(NamedTuple):
    """A schema within another: the keywords that lead there, the path for people, how many values there may be."""

    keys: tuple[str, ...]
    path: str
    schema: Schema
    times: int | None


class RuleCost(NamedTuple):
    """What one expression of a schema costs at most.

    Attributes:
        path: of what it is about.
        what: ``rule`` or ``message``.
        expression: its text.
        once: for one value.
        cost: for all values that there may be; of messages that of one, as the API server counts.
    """

    path: str
    what: str
    expression: str
    once: int
    cost: int


def check_costs(schema: Schema) -> None:
    """Whether the API server lets in a definition of the whole object ``schema``.

    Raises:
        SchemaError: its rules may cost too much.
    """
    if not has_rules(schema) or not is_installed():
        return
    costs = rule_costs(schema)
    for number in range(len(costs)):
        _check_one(schema, costs, number)
    _check_all(schema, costs)


def _check_one(schema: Schema, costs: list[RuleCost], number: int) -> None:
    from steersman_cel.cost import EXPRESSION_LIMIT

    found = costs[number]
    if found.cost > EXPRESSION_LIMIT:
        advice = _advice(schema, lambda tried: rule_costs(tried)[number].cost, EXPRESSION_LIMIT)
        raise SchemaError(
            f"the {found.what} {found.expression!r} on {found.path} may cost "
            f"{_factor(found.cost, EXPRESSION_LIMIT)} what the API server lets one cost: {advice}"
        )


def _check_all(schema: Schema, costs: list[RuleCost]) -> None:
    from steersman_cel.cost import DEFINITION_LIMIT

    total = sum(c.cost for c in costs)
    if total > DEFINITION_LIMIT:
        dear = sorted(costs, key=lambda c: -c.cost)[:_MOST_NAMED]
        named = ", ".join(f"{c.expression!r} on {c.path}" for c in dear if c.cost >= DEFINITION_LIMIT // 100)
        advice = _advice(schema, lambda tried: sum(c.cost for c in rule_costs(tried)), DEFINITION_LIMIT)
        raise SchemaError(
            f"the rules together may cost {_factor(total, DEFINITION_LIMIT)} what the API server lets those of a "
            f"kind cost, most of all {named}: {advice}"
        )


def _factor(cost: int, limit: int) -> str:
    factor = cost / limit
    return "more than 100 times" if factor > 100 else f"{factor:.1f} times" if factor >= 1.1 else "more than"


def _places(at: _Place) -> Iterator[_Place]:
    """``at`` and all places within it."""
    yield at
    schema, keys = at.schema, at.keys
    for name, inner in schema.get("properties", {}).items():
        yield from _places(_Place((*keys, "properties", name), f"{at.path}.{name}", inner, at.times))
    for keyword, kind in (("items", "array"), ("additionalProperties", "object")):
        if isinstance(inner := schema.get(keyword), dict):
            most = schema.get(_BOUNDS[kind][0])
            times = None if at.times is None or most is None else at.times * most
            step = "[*]" if keyword == "items" else ".*"
            yield from _places(_Place((*keys, keyword), f"{at.path}{step}", inner, times))


def rule_costs(schema: Schema) -> list[RuleCost]:
    """What each rule in the schema of a whole object costs, in an order that does not depend on bounds."""
    from steersman_cel.cost import repeated_cost
    from steersman_cel.types import schema_type

    found: list[RuleCost] = []
    for at in _places(_Place((), "", schema, 1)):
        rules = at.schema.get(RULES, ())
        kind = schema_type(at.schema, root=not at.keys) if rules else None
        if kind is None:
            continue
        path = at.path or "the object"
        for rule in rules:
            once = _cost(rule["rule"], rule, at)
            found.append(RuleCost(path, "rule", rule["rule"], once, repeated_cost(once, at.times, kind)))
            if message := rule.get("messageExpression"):
                once = _cost(message, rule, at)
                found.append(RuleCost(path, "message", message, once, once))
    return found


def _cost(expression: str, rule: Schema, at: _Place) -> int:
    """What an expression costs on one value; nothing where that cannot be told, which the API server then does."""
    from steersman_cel.evaluation import program, schema_key

    try:
        return program(schema_key(at.schema, not at.keys), expression, bool(rule.get("optionalOldSelf"))).cost
    except ApiError as error:
        if error.code == 501:
            return 0
        raise


# What to do about it


class _Unbounded(NamedTuple):
    place: _Place
    keyword: str
    argument: str


def _unbounded(schema: Schema) -> Iterator[_Unbounded]:
    for at in _places(_Place((), "", schema, 1)):
        kind = at.schema.get("type", "")
        is_map = kind == "object" and isinstance(at.schema.get("additionalProperties"), dict)
        is_text = kind == "string" and "enum" not in at.schema and "format" not in at.schema
        if kind == "array" or is_map or is_text:
            keyword, argument = _BOUNDS[kind]
            yield _Unbounded(at, keyword, argument)


def _bounded(schema: Schema, bounds: list[_Unbounded], most: int) -> Schema:
    result = deepcopy(schema)
    for bound in bounds:
        at = result
        for key in bound.place.keys:
            at = at[key]
        at[bound.keyword] = min(most, at.get(bound.keyword, most))
    return result


def _advice(schema: Schema, cost_of: Callable[[Schema], int], limit: int) -> str:
    """Which bounds help, and the greatest round number that they could be so that the cost fits."""
    before = cost_of(schema)
    helping = [b for b in _unbounded(schema) if cost_of(_bounded(schema, [b], 1)) < before]
    missing = [b for b in helping if b.keyword not in b.place.schema] or helping
    for bounds in (missing, helping):
        for most in _TRIED:
            if bounds and cost_of(_bounded(schema, bounds, most)) <= limit:
                told = ", ".join(f"{b.argument}={most} on {b.place.path}" for b in bounds[:_MOST_NAMED])
                return (
                    f"set, for example, {told}" if len(bounds) <= _MOST_NAMED else f"bound what it goes over: {told}…"
                )
    return "write a simpler one"
