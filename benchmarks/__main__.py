"""``python -m benchmarks``: build the peers, run the scenarios, write the results."""

from __future__ import annotations

import asyncio
import signal
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape

from benchmarks import build, machine, plot, report, results
from benchmarks.environment import BenchmarkConfig
from benchmarks.measurement import Measurement
from benchmarks.peers import PEERS, Peer
from benchmarks.runner import BenchmarkRun, run
from benchmarks.scenarios import Scenario
from benchmarks.scenarios.catalogue import PODS, scenarios
from benchmarks.summary import summarise
from benchmarks.targets import evaluate
from benchmarks.versions import versions
from devcluster.errors import DevclusterError
from devcluster.progress import Progress

DEFAULT_SECONDS = 20.0
_EXIT_INTERRUPTED = 130
PLOT = Path(__file__).parents[1] / "docs" / "assets" / "benchmarks.svg"
console = Console(highlight=False)

ScenarioOption = Annotated[
    list[str] | None,
    typer.Option("--scenario", help="Letter (a to e) or part of the title. Repeatable. Defaults to all"),
]
PeerOption = Annotated[list[str] | None, typer.Option("--peer", help="Name of a peer. Repeatable. Defaults to all")]


def main(
    scenario: ScenarioOption = None,
    peer: PeerOption = None,
    runs: Annotated[int, typer.Option(help="Runs of each scenario.", min=1)] = 5,
    objects: Annotated[
        int | None, typer.Option(help="Number of objects in (a) and (d), for a short test.", min=1)
    ] = None,
    pods: Annotated[int, typer.Option(help="Number of pods in (c).", min=1)] = PODS,
    seconds: Annotated[
        float, typer.Option(help="Measurement time of (b), (c) and (d) in seconds.", min=2)
    ] = DEFAULT_SECONDS,
) -> None:
    """Measure Steersman against controller-runtime, kube-rs and Kopf.

    Results are saved only if all peers run at the default sizes.
    """
    peers = [p for p in PEERS if peer is None or p.name in peer]
    built = build.ensure(peers, Progress(console))
    peers = [p for p in peers if p.toolchain in built]
    config = BenchmarkConfig(built, machine.assign_cores(), objects=objects or 2000, pods=pods, seconds=seconds)
    all_scenarios = scenarios(objects, pods)
    chosen = [s for s in all_scenarios if scenario is None or any(s.matches(selector) for selector in scenario)]
    complete = (len(peers), objects, pods, seconds) == (len(PEERS), None, PODS, DEFAULT_SECONDS)
    try:
        outcome = asyncio.run(
            _run(config, chosen, peers, runs, [s.title for s in all_scenarios] if complete else None)
        )
    except (KeyboardInterrupt, asyncio.CancelledError):
        console.print("interrupted: operators and servers are stopped; results of completed scenarios are saved")
        raise typer.Exit(_EXIT_INTERRUPTED) from None
    summaries = summarise(outcome.measurements)
    for table in report.figures(summaries):
        console.print(table)
    console.print(report.targets(evaluate(summaries)))
    for failure in outcome.failures:
        console.print(f"[red]✗[/red] {escape(failure)}", soft_wrap=True)
    if not complete:
        console.print("Results are not saved: the comparison was not complete.")
    raise typer.Exit(1 if outcome.failures else 0)


async def _run(
    config: BenchmarkConfig, chosen: list[Scenario], peers: list[Peer], runs: int, titles: list[str] | None
) -> BenchmarkRun:
    """Run the scenarios. Save after each scenario if ``titles`` is given."""
    task = asyncio.current_task()
    assert task is not None
    # SIGTERM must also stop the operators and servers, as Ctrl+C does.
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    total = BenchmarkRun()
    for scenario in chosen:
        outcome = await run(config, scenario, peers, runs, lambda line: console.print(escape(line), soft_wrap=True))
        if titles is not None and not outcome.failures:
            _write(outcome.measurements, runs, titles)
        total.measurements += outcome.measurements
        total.failures += outcome.failures
    return total


def _write(measurements: list[Measurement], runs: int, titles: list[str]) -> None:
    metadata = {"machine": machine.description(), **versions(), "runs": str(runs), "day": f"{datetime.now(UTC):%F}"}
    merged = results.merge(results.load(), measurements, metadata)
    merged.measurements = results.in_order(merged.measurements, titles)
    PLOT.write_text(plot.draw(results.write(merged), results.caption(merged)))
    console.print(f"results saved in {results.DIRECTORY}", soft_wrap=True)


app = typer.Typer(pretty_exceptions_enable=False, add_completion=False)
app.command()(main)

if __name__ == "__main__":
    try:
        app()
    except DevclusterError as error:
        console.print(f"[red]✗[/red] {escape(str(error))}")
        raise SystemExit(1) from None
