"""Calls of a profile, summed by module."""

from __future__ import annotations

from typing import Any

import pytest
from benchmarks.calls import BUILT_IN, count_by_module, is_event_loop

STORE = ("/checkout/packages/steersman/src/steersman/cache/store.py", 10, "put")
SELECT = ("/usr/lib/python3.11/selectors.py", 20, "select")
LENGTH = (BUILT_IN, 0, "<built-in method builtins.len>")


def test_built_in_calls_count_for_their_callers() -> None:
    callers = {STORE: (30, 30, 0.0, 0.0), SELECT: (5, 5, 0.0, 0.0)}
    stats: dict[tuple[str, int, str], Any] = {
        STORE: (10, 10, 0.0, 0.0, {}),
        SELECT: (2, 2, 0.0, 0.0, {}),
        LENGTH: (35, 35, 0.0, 0.0, callers),
    }
    assert count_by_module(stats) == {"steersman/cache/store": 40, "11/selectors": 7}


@pytest.mark.parametrize(
    ("module", "expected"),
    [
        ("11/asyncio/base_events", True),
        ("11/ssl", True),
        ("steersman/client/transport/http1", False),
        ("prometheus_client/metrics", False),
        ("<string>", False),
    ],
)
def test_is_event_loop_of_module(module: str, expected: bool) -> None:
    assert is_event_loop(module) is expected
