"""``python -m benchmarks.databases``: run the scenarios on a cluster, save the results."""

from __future__ import annotations

import platform
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape

from benchmarks import machine, plot, report, results
from benchmarks.databases.catalog import SCENARIOS, picture
from benchmarks.databases.many_databases import DATABASES, USERS
from benchmarks.databases.scenarios import DatabaseBenchmark, DatabaseScenario
from benchmarks.databases.targets import TARGETS
from benchmarks.measurement import Measurement
from benchmarks.summary import summarise
from benchmarks.targets import evaluate
from devcluster.errors import DevclusterError
from devcluster.operator import install
from devcluster.progress import Progress
from devcluster.target import select_target

DIRECTORY = Path(__file__).parent / "results"
PLOT = Path(__file__).parents[2] / "docs" / "assets" / "benchmarks-databases.svg"
console = Console(highlight=False)


def main(
    scenario: Annotated[
        list[str] | None,
        typer.Option(help=f"One of {', '.join(s.name for s in SCENARIOS)}; repeatable. Defaults to all."),
    ] = None,
    runs: Annotated[
        int | None,
        typer.Option(help="Runs of each scenario. Defaults to 20, 5 or 1, depending on the scenario.", min=1),
    ] = None,
    databases: Annotated[int, typer.Option(help="Number of Databases in contents.", min=1)] = DATABASES,
    users: Annotated[int, typer.Option(help="Number of DatabaseUsers in contents.", min=1)] = USERS,
    keep: Annotated[bool, typer.Option(help="Save the results and the chart.")] = True,
    add: Annotated[
        bool,
        typer.Option(help="Append to the saved runs instead of replacing them, also after Ctrl-C."),
    ] = False,
) -> None:
    """Measure the database operator of this checkout on the devcluster.

    CLUSTER=current selects the cluster of the current kubeconfig context. Fails if a target is missed.
    """
    unknown = sorted(set(scenario or ()) - {s.name for s in SCENARIOS})
    if unknown:
        raise typer.BadParameter(f"unknown scenario {', '.join(unknown)}")
    cluster = select_target(Progress(console))
    install(cluster, Progress(console))
    any_failed, all_measurements = False, list[Measurement]()
    for current_scenario in SCENARIOS:
        if scenario is None or current_scenario.name in scenario:
            bench = DatabaseBenchmark(cluster, runs or current_scenario.runs, databases, users, _print_line)
            measured, error = _run_scenario(bench, current_scenario)
            all_measurements += measured
            any_failed |= error is not None or bool(bench.skipped_parts)
            interrupted = isinstance(error, KeyboardInterrupt)
            # A partial scenario may extend saved runs, but must not replace them. A failed run invalidates the
            # others, because the results would look better without it.
            complete = (error is None or (interrupted and add)) and not bench.skipped_parts
            if measured and complete and keep and (databases, users) == (DATABASES, USERS):
                # Save after each scenario, because all scenarios take hours.
                _save_results(measured, add=add)
            if interrupted:
                break
    target_results = evaluate(summarise(all_measurements), TARGETS)
    if target_results:
        console.print(report.targets(target_results))
    raise typer.Exit(1 if any_failed or not all(verdict.met for verdict in target_results) else 0)


def _print_line(line: str) -> None:
    console.print(escape(line), soft_wrap=True)


def _run_scenario(
    bench: DatabaseBenchmark, scenario: DatabaseScenario
) -> tuple[list[Measurement], BaseException | None]:
    """Run one scenario. Return its measurements and the reason it ended early."""
    console.print(f"[bold]{scenario.title}[/bold]")
    measured: list[Measurement] = []
    error_seen: BaseException | None = None
    try:
        for measurement in scenario.measure(bench, scenario.title):
            measured.append(measurement)  # noqa: PERF402 - keeps partial results after an error
    except (DevclusterError, TimeoutError, KeyboardInterrupt) as error:
        console.print(f"[red]✗[/red] {escape(str(error) or 'interrupted')}", soft_wrap=True)
        error_seen = error
    for table in report.figures(summarise(measured)):
        console.print(table)
    return measured, error_seen


def _save_results(measured: Sequence[Measurement], *, add: bool) -> None:
    metadata = {
        "machine": machine.description(),
        "python": platform.python_version(),
        # The minimum, because some metrics are sampled several times per run.
        "runs": str(min(len(summary.values) for summary in summarise(measured))),
        "day": f"{datetime.now(UTC):%F}",
    }
    merged = results.merge(results.load(DIRECTORY), measured, metadata, add=add)
    merged.measurements = results.in_order(merged.measurements, [s.title for s in SCENARIOS])
    summaries = results.write(merged, DIRECTORY)
    PLOT.write_text(plot.draw(summaries, caption(merged), picture(summaries)))
    console.print(f"results saved in {DIRECTORY}", soft_wrap=True)


def caption(runs: results.Runs) -> list[str]:
    """Return the chart's caption: machines, runs and date."""
    machines_of_runs = list(runs.machines.values())
    machines = " / ".join(dict.fromkeys(run["machine"] for run in machines_of_runs))
    counts, days = (
        sorted({int(one["runs"]) for one in machines_of_runs}),
        sorted({one["day"] for one in machines_of_runs}),
    )
    run_counts, day_range = (" to ".join(dict.fromkeys((str(those[0]), str(those[-1])))) for those in (counts, days))
    return [
        f"{machines}; all of it: API server, two or three nodes, databases, clients and operator",
        f"medians of {run_counts} runs, with lines from lowest to highest; {day_range}",
    ]


app = typer.Typer(pretty_exceptions_enable=False, add_completion=False)
app.command()(main)

if __name__ == "__main__":
    app()
