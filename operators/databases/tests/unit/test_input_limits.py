"""Inputs beyond their limit are refused before they are parsed, and those at the limit cost little."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from database_support.unit.input_cases import input_cases
from steersman_databases.engines.connection.input_limits import INPUT_LIMITS

CASES = input_cases()
# Tests of the limits that need a server, a transport or several objects.
OTHER_TESTS = {
    "result of one statement": "integration/engines/test_receive_limit.py",
    "objects in the schemas of a grant": "integration/engines/postgresql/test_unusable_databases.py",
    "Secrets in one admission review": "unit/webhooks/test_authorization.py",
    "key of an object store's Secret": "unit/features/backup_store/test_model.py",
}
# Calls of Python and C functions, which do not depend on the machine.
MAX_CALLS_TO_REFUSE = 100
MAX_CALLS_AT_LIMIT = 600_000
# Documents that the parser rejects are split to find the name of their object.
SPLIT = {"nested JSON", "nested JSON of 1.5 MB", "page with nested JSON"}


def count_calls(run: Callable[[], object]) -> int:
    calls = 0

    def count(frame: object, event: str, argument: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    sys.setprofile(count)
    try:
        run()
    finally:
        sys.setprofile(None)
    return calls


def test_each_limit_has_a_case() -> None:
    framework = SPLIT | {"quantity"}
    assert (CASES.keys() - framework) | OTHER_TESTS.keys() == INPUT_LIMITS.keys()
    tests = Path(__file__).parents[1]
    assert [path for path in OTHER_TESTS.values() if not (tests / path).exists()] == []


@pytest.mark.parametrize("name", CASES)
def test_input_beyond_its_limit_is_refused(name: str) -> None:
    assert CASES[name].refuse()
    if name not in SPLIT:
        assert count_calls(CASES[name].refuse) <= MAX_CALLS_TO_REFUSE


@pytest.mark.parametrize("name", CASES)
def test_worst_input_at_its_limit_has_few_calls(name: str) -> None:
    assert count_calls(CASES[name].accept) <= MAX_CALLS_AT_LIMIT
