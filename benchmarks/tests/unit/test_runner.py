"""Tests of the runner: alternating peers, API servers and failed runs."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any, cast

import pytest
from benchmarks.environment import BenchmarkApiServer, BenchmarkConfig
from benchmarks.machine import Cores
from benchmarks.measurement import Figure, Measurement
from benchmarks.peers import PEERS, Peer
from benchmarks.process import OperatorFailed
from benchmarks.runner import run
from benchmarks.scenarios import Scenario

CONFIG = BenchmarkConfig({}, Cores(1, frozenset({0})))
FIRST, SECOND, *_ = PEERS


class FakeScenario:
    """Serves numbered API servers and records the calls."""

    def __init__(self) -> None:
        self.servers = 0
        self.runs: list[tuple[str, int]] = []
        self.printed: list[str] = []

    @asynccontextmanager
    async def serve(self, bench: BenchmarkConfig) -> AsyncGenerator[BenchmarkApiServer]:
        self.servers += 1
        yield cast(BenchmarkApiServer, self.servers)

    async def measure(self, server: BenchmarkApiServer, peer: Peer) -> list[Figure]:
        self.runs.append((peer.name, cast(int, server)))
        return [Figure("turn", len(self.runs), "")]

    async def run(self, runs: int, *, shared: bool = False, measure: Any = None) -> Any:
        scenario = Scenario("x", "taking turns", measure or self.measure, self.serve, shared=shared)
        return await run(CONFIG, scenario, [FIRST, SECOND], runs, self.printed.append)


async def test_runner_alternates_peers_with_new_servers() -> None:
    stage = FakeScenario()
    outcome = await stage.run(2)
    assert stage.runs == [(FIRST.name, 1), (SECOND.name, 2), (FIRST.name, 3), (SECOND.name, 4)]
    assert outcome.measurements == [
        Measurement("taking turns", peer, "turn", turn + 1, "") for turn, (peer, _) in enumerate(stage.runs)
    ]


async def test_runner_shared_scenario_uses_one_server() -> None:
    stage = FakeScenario()
    await stage.run(2, shared=True)
    assert {server for _, server in stage.runs} == {1}


@pytest.mark.parametrize("error", [OperatorFailed("it ended"), TimeoutError("not done")])
async def test_runner_peer_failure_is_reported_and_others_run(error: Exception) -> None:
    stage = FakeScenario()

    async def measure(server: BenchmarkApiServer, peer: Peer) -> list[Figure]:
        if peer is FIRST:
            raise error
        return await stage.measure(server, peer)

    outcome = await stage.run(2, measure=measure)
    assert [peer for peer, _ in stage.runs] == [SECOND.name, SECOND.name]
    assert [str(error) in failure for failure in outcome.failures] == [True, True]
    assert [line[0] for line in stage.printed] == ["✗", "✓", "✗", "✓"]


async def test_runner_programming_error_is_raised() -> None:
    async def measure(server: BenchmarkApiServer, peer: Peer) -> list[Figure]:
        raise KeyError("ours")

    with pytest.raises(KeyError):
        await FakeScenario().run(1, measure=measure)
