"""``steersman_cel.engine``: compilation and evaluation of expressions."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from steersman.errors import ApiError
from steersman_cel.engine import CompilationError, EvaluationError, compile_expression, compile_rule
from steersman_cel.types import BOOL, DYN, INT, STRING, list_of, map_of

VARIABLES = {"self": map_of(STRING, DYN), "object": DYN, "request": list_of(INT)}


@pytest.mark.parametrize(
    ("expression", "kind", "expected"),
    [
        ("1 + 2", "int", 3),
        ("self.size()", "int", 1),
        ("request.filter(n, n > 1)", "list(int)", [2, 3]),
        ("has(object.name) ? object.name : 'none'", "dyn", "web"),
        ("quantity('1Gi').isGreaterThan(quantity('1000Mi'))", "bool", True),
        ("semver('1.2.3').compareTo(semver('1.10.0'))", "int", -1),
        ("ip('10.0.0.1').family()", "int", 4),
        ("cidr('10.0.0.0/8').containsIP('10.1.2.3')", "bool", True),
        ("'%d of %s'.format([1, 'a'])", "string", "1 of a"),
        ("duration('90s') - duration('1m')", "duration", timedelta(seconds=30)),
        ("request.sum()", "int", 6),
        ("'a-b-c'.split('-')", "list(string)", ["a", "b", "c"]),
        ("'version 12'.find('[0-9]+')", "string", "12"),
    ],
)
def test_evaluate_returns_value_and_type(expression: str, kind: str, expected: Any) -> None:
    program = compile_expression(expression, VARIABLES)
    variables = {"self": {"a": 1}, "object": {"name": "web"}, "request": [1, 2, 3]}
    assert str(program.type) == kind
    assert program.evaluate(variables) == expected


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        ("1 +", "Syntax error"),
        ("missing > 1", "undeclared reference to 'missing'"),
        ("1 + 'a'", "found no matching overload for '_+_' applied to '(int, string)'"),
        ("[1, 2].all(1, true)", "argument must be a simple name"),
        ("'a'.matches('(')", "invalid matches argument"),
    ],
)
def test_compile_invalid_expression_raises(expression: str, message: str) -> None:
    with pytest.raises(CompilationError, match=r"^compilation failed: ") as caught:
        compile_expression(expression, VARIABLES)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        ("1 / (request.size() - 3) == 1", "division by zero"),
        ("object.missing == 1", "no such key: missing"),
        ("request[7] == 1", "index out of bounds: 7"),
        ("int(object.name) == 1", "type conversion error from 'string' to 'int'"),
    ],
)
def test_evaluate_failing_expression_raises(expression: str, message: str) -> None:
    program = compile_expression(expression, VARIABLES)
    with pytest.raises(EvaluationError, match=message):
        program.evaluate({"object": {"name": "web"}, "request": [1, 2, 3]})


def test_evaluate_too_many_iterations_is_not_implemented() -> None:
    program = compile_expression("request.all(a, request.all(b, a == b || a != b))", VARIABLES)
    with pytest.raises(ApiError, match=r"10,000 items"):
        program.evaluate({"request": list(range(200))})


def test_compile_rule_reports_use_of_old_self() -> None:
    assert not compile_rule("self > 0", INT, optional_old_self=False).uses_old_self
    assert compile_rule("self >= oldSelf", INT, optional_old_self=False).uses_old_self


@pytest.mark.parametrize(("old", "present", "expected"), [(None, False, True), (3, True, False)])
def test_compile_rule_optional_old_self_is_optional(old: int | None, present: bool, expected: bool) -> None:
    program = compile_rule("!oldSelf.hasValue()", INT, optional_old_self=True)
    assert program.type == BOOL
    assert program.evaluate({"self": 1, "oldSelf": old, "hasOldSelf": present}) is expected
