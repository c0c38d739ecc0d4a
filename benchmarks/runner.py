"""Runs a scenario, the peers in turn (A B C, A B C, …), so that a machine that changes its mood is fair to all."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from dataclasses import dataclass, field

from benchmarks.environment import ApiServer, Bench
from benchmarks.measurement import Measurement
from benchmarks.peers import Peer
from benchmarks.process import OperatorFailed
from benchmarks.scenarios import Scenario
from steersman.errors import SteersmanError

Tell = Callable[[str], None]
Serve = Callable[[], AbstractAsyncContextManager[ApiServer]]


@dataclass(slots=True)
class Outcome:
    """What all runs gave, and what went wrong, in words."""

    measurements: list[Measurement] = field(default_factory=list[Measurement])
    failures: list[str] = field(default_factory=list[str])


async def run(bench: Bench, scenario: Scenario, peers: Sequence[Peer], runs: int, tell: Tell) -> Outcome:
    """Measures every peer so many times; a peer that fails is told and stops no other."""
    outcome = Outcome()
    async with _servers(scenario, bench) as server:
        for number in range(1, runs + 1):
            for peer in peers:
                tell(await _run_once(scenario, server, peer, f"run {number} of {runs}", outcome))
    return outcome


async def _run_once(scenario: Scenario, server: Serve, peer: Peer, which: str, outcome: Outcome) -> str:
    """One run, into ``outcome``; returns a line that tells of it."""
    what = f"{scenario.title}, {which}, {peer.name}"
    try:
        async with server() as api:
            figures = await scenario.measure(api, peer)
    except (OperatorFailed, TimeoutError, SteersmanError) as error:
        outcome.failures.append(f"{what}: {error}")
        return f"✗ {what}: {error}"
    outcome.measurements += [
        Measurement(scenario.title, peer.name, f.metric, round(f.value, 3), f.unit) for f in figures
    ]
    return f"✓ {what}: " + ", ".join(f"{f.metric} {f.value:,.2f} {f.unit}".rstrip() for f in figures)


@asynccontextmanager
async def _servers(scenario: Scenario, bench: Bench) -> AsyncGenerator[Serve]:
    """A way to an API server for each run: always a new one, or one and the same."""
    if not scenario.shared:
        yield lambda: scenario.serve(bench)
        return
    async with scenario.serve(bench) as server:
        yield lambda: nullcontext(server)
