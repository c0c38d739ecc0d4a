"""``steersman_cel.cost``: estimated costs of rules."""

from __future__ import annotations

from dataclasses import replace

import pytest

from steersman_cel.cost import RULE_COST_LIMIT, budget_error, total_cost
from steersman_cel.engine import compile_rule
from steersman_cel.types import INT, MAX_REQUEST_BYTES, STRING, Type, list_of

TEN_STRINGS = replace(list_of(replace(STRING, max_elements=20)), max_elements=10)


def cost(expression: str, self_type: Type) -> int:
    return compile_rule(expression, self_type, optional_old_self=False).cost


@pytest.mark.parametrize(
    ("expression", "self_type"),
    [("self > 0", INT), ("self.size() > 0", TEN_STRINGS), ("size(self) > 0 && true", TEN_STRINGS)],
)
def test_cost_of_constant_time_rule_is_small(expression: str, self_type: Type) -> None:
    assert 0 < cost(expression, self_type) < 10


def test_cost_grows_with_declared_size() -> None:
    rule = "self.all(s, s.contains('a'))"
    twice = replace(TEN_STRINGS, max_elements=20)
    assert cost(rule, twice) == pytest.approx(2 * cost(rule, TEN_STRINGS), rel=0.1)


def test_cost_of_nested_macros_multiplies() -> None:
    single, nested = "self.all(a, a != '')", "self.all(a, self.all(b, a != b))"
    assert cost(nested, TEN_STRINGS) > 8 * cost(single, TEN_STRINGS)


def test_cost_of_unbounded_list_exceeds_limit() -> None:
    unbounded = replace(list_of(replace(STRING, max_elements=MAX_REQUEST_BYTES)), max_elements=MAX_REQUEST_BYTES)
    assert cost("self.all(a, self.exists_one(b, a == b))", unbounded) > RULE_COST_LIMIT


@pytest.mark.parametrize(
    ("cardinality", "expected"), [(1, 5), (10, 50), (None, 5 * (MAX_REQUEST_BYTES // (INT.min_serialized_size + 1)))]
)
def test_total_cost_multiplies_by_cardinality(cardinality: int | None, expected: int) -> None:
    assert total_cost(5, cardinality, INT) == expected


@pytest.mark.parametrize(
    ("value", "factor"), [(120, "1.200000x"), (250, "2.5x"), (10_000, "100.0x"), (10_001, "more than 100x")]
)
def test_budget_error_states_factor(value: int, factor: str) -> None:
    assert budget_error("the rule", value, 100).startswith(f"the rule exceeds budget by factor of {factor} (try ")
