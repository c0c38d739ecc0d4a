"""Run the peers in turn, so that machine noise affects all alike."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from dataclasses import dataclass, field

from benchmarks.environment import BenchmarkApiServer, BenchmarkConfig
from benchmarks.measurement import Measurement
from benchmarks.peers import Peer
from benchmarks.process import OperatorFailed
from benchmarks.scenarios import Scenario
from steersman.errors import SteersmanError

PrintLine = Callable[[str], None]
ServeApiServer = Callable[[], AbstractAsyncContextManager[BenchmarkApiServer]]


@dataclass(slots=True)
class BenchmarkRun:
    """Measurements and failures of all runs."""

    measurements: list[Measurement] = field(default_factory=list[Measurement])
    failures: list[str] = field(default_factory=list[str])


async def run(
    config: BenchmarkConfig, scenario: Scenario, peers: Sequence[Peer], runs: int, print_line: PrintLine
) -> BenchmarkRun:
    """Measure each peer ``runs`` times. Report failures and continue."""
    outcome = BenchmarkRun()
    async with _api_servers(scenario, config) as server:
        for number in range(1, runs + 1):
            for peer in peers:
                print_line(await _run_once(scenario, server, peer, f"run {number} of {runs}", outcome))
    return outcome


async def _run_once(
    scenario: Scenario, server: ServeApiServer, peer: Peer, run_number: str, outcome: BenchmarkRun
) -> str:
    """Add one run to the outcome and return a progress line."""
    description = f"{scenario.title}, {run_number}, {peer.name}"
    try:
        async with server() as api:
            figures = await scenario.measure(api, peer)
    except (OperatorFailed, TimeoutError, SteersmanError) as error:
        outcome.failures.append(f"{description}: {error}")
        return f"✗ {description}: {error}"
    outcome.measurements += [
        Measurement(scenario.title, peer.name, f.metric, round(f.value, 3), f.unit) for f in figures
    ]
    return f"✓ {description}: " + ", ".join(f"{f.metric} {f.value:,.2f} {f.unit}".rstrip() for f in figures)


@asynccontextmanager
async def _api_servers(scenario: Scenario, config: BenchmarkConfig) -> AsyncGenerator[ServeApiServer]:
    """Provide a new API server per run, or a shared one."""
    if not scenario.shared:
        yield lambda: scenario.serve(config)
        return
    async with scenario.serve(config) as server:
        yield lambda: nullcontext(server)
