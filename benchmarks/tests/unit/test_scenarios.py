"""Tests of the scenarios' data analysis."""

from __future__ import annotations

import asyncio
import json

import pytest
from benchmarks.load import run_at_rate, run_in_parallel
from benchmarks.scenarios.catalogue import scenarios
from benchmarks.scenarios.restart import LEASE, count_requests


def line(audit_id: str, verb: str, resource: str = "works", stage: str = "ResponseComplete") -> bytes:
    event = {"auditID": audit_id, "verb": verb, "stage": stage, "objectRef": {"resource": resource}}
    return json.dumps(event).encode()


def test_count_requests_counts_each_request_once() -> None:
    counts = count_requests([line("1", "watch", stage="ResponseStarted"), line("1", "watch"), line("2", "watch")])
    assert counts == {"watch": 2}


def test_count_requests_counts_leases_separately() -> None:
    counts = count_requests([line("1", "update", "leases"), line("2", "create", "leases"), line("3", "update")])
    assert counts == {LEASE: 2, "update": 1}


def test_a_request_for_no_object_is_counted_too() -> None:
    assert count_requests([b'{"auditID": "1", "verb": "get", "requestURI": "/version"}']) == {"get": 1}


async def test_in_parallel_does_each_once() -> None:
    done: list[int] = []

    async def work(number: int) -> None:
        await asyncio.sleep(0)
        done.append(number)

    await run_in_parallel(work, range(100))
    assert sorted(done) == list(range(100))


async def test_steadily_does_not_wait_for_slow_work() -> None:
    begun: list[int] = []
    all_begun = asyncio.Event()

    async def work(number: int) -> None:
        begun.append(number)
        if len(begun) == 5:
            all_begun.set()
        await all_begun.wait()

    await asyncio.wait_for(run_at_rate(work, 1000, 5), 30)
    assert begun == [0, 1, 2, 3, 4]


def test_the_scenarios_are_lettered_as_on_the_command_line() -> None:
    assert [scenario.letter for scenario in scenarios()] == ["a", "a", "a", "b", "c", "d", "e"]


def test_scenario_titles_contain_reduced_sizes() -> None:
    titles = [scenario.title for scenario in scenarios(objects=300, pods=1000)]
    assert titles[:2] == ["cold start, 300 objects", "cold start, 300 objects, one Event each"]
    assert "1,000 pods cached" in titles


@pytest.mark.parametrize(
    ("wanted", "count"),
    [("a", 3), ("b", 1), ("cold start", 3), ("10,000 objects", 1), ("z", 0), ("", 0)],
)
def test_scenario_matches_letter_or_title_words(wanted: str, count: int) -> None:
    assert sum(scenario.matches(wanted) for scenario in scenarios()) == count
