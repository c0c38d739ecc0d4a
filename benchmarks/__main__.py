"""``python -m benchmarks``: builds the peers, runs the scenarios, prints tables, writes results and plot."""

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
from benchmarks.environment import Bench
from benchmarks.peers import PEERS, Peer
from benchmarks.runner import Outcome, run
from benchmarks.scenarios import Scenario
from benchmarks.scenarios.catalogue import PODS, scenarios
from benchmarks.summary import summarise
from benchmarks.targets import verdicts
from benchmarks.versions import versions
from devcluster.errors import DevclusterError
from devcluster.progress import Progress

SECONDS = 20.0
PLOT = Path(__file__).parents[1] / "docs" / "assets" / "benchmarks.svg"
console = Console(highlight=False)

Choice = Annotated[list[str] | None, typer.Option("--scenario", help="a to e; may be repeated. Default: all")]
Chosen = Annotated[list[str] | None, typer.Option("--peer", help="may be repeated. Default: all")]


def main(
    scenario: Choice = None,
    peer: Chosen = None,
    runs: Annotated[int, typer.Option(help="How often each is measured.", min=1)] = 5,
    objects: Annotated[int | None, typer.Option(help="Objects of (a) and (d), for a quick look.", min=1)] = None,
    pods: Annotated[int, typer.Option(help="Pods of (c).", min=1)] = PODS,
    seconds: Annotated[float, typer.Option(help="How long (b), (c) and (d) are watched.", min=2)] = SECONDS,
) -> None:
    """Measure Steersman beside controller-runtime, kube-rs and Kopf.

    Results are written only for a whole comparison: all peers, at the sizes that are compared.
    """
    peers = [p for p in PEERS if peer is None or p.name in peer]
    built = build.ensure(peers, Progress(console))
    peers = [p for p in peers if p.toolchain in built]
    bench = Bench(built, machine.cores(), objects=objects or 2000, pods=pods, seconds=seconds)
    everything = scenarios(objects, pods)
    chosen = [s for s in everything if scenario is None or s.letter in scenario]
    outcome = asyncio.run(_run(bench, chosen, peers, runs))
    summaries = summarise(outcome.measurements)
    whole = not outcome.failures and (len(peers), objects, pods, seconds) == (len(PEERS), None, PODS, SECONDS)
    if whole:
        told = {"machine": machine.description(), **versions(), "runs": str(runs), "day": f"{datetime.now(UTC):%F}"}
        merged = results.merge(results.load(), outcome.measurements, told)
        merged.measurements = results.in_order(merged.measurements, [s.title for s in everything])
        summaries = results.write(merged)
        PLOT.write_text(plot.draw(summaries))
    for table in report.figures(summaries):
        console.print(table)
    console.print(report.targets(verdicts(summaries)))
    for failure in outcome.failures:
        console.print(f"[red]✗[/red] {escape(failure)}", soft_wrap=True)
    console.print(f"written to {results.DIRECTORY}" if whole else "not written: not the whole comparison")
    raise typer.Exit(1 if outcome.failures else 0)


async def _run(bench: Bench, chosen: list[Scenario], peers: list[Peer], runs: int) -> Outcome:
    task = asyncio.current_task()
    assert task is not None
    # As Ctrl+C does: operators and servers are ended on the way out.
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    return await run(bench, chosen, peers, runs, lambda line: console.print(escape(line), soft_wrap=True))


app = typer.Typer(pretty_exceptions_enable=False, add_completion=False)
app.command()(main)

if __name__ == "__main__":
    try:
        app()
    except DevclusterError as error:
        console.print(f"[red]✗[/red] {escape(str(error))}")
        raise SystemExit(1) from None
