"""``python -m benchmarks.databases``: runs the scenarios on a cluster, prints tables, keeps results and picture."""

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
from benchmarks.databases.catalogue import SCENARIOS, picture
from benchmarks.databases.scenarios import Bench, Scenario
from benchmarks.measurement import Measurement
from benchmarks.summary import summarise
from devcluster.errors import DevclusterError
from devcluster.operator import install
from devcluster.progress import Progress
from devcluster.target import target

DIRECTORY = Path(__file__).parent / "results"
PLOT = Path(__file__).parents[2] / "docs" / "assets" / "benchmarks-databases.svg"
DATABASES, USERS = 200, 1000
console = Console(highlight=False)


def main(
    scenario: Annotated[
        list[str] | None,
        typer.Option(help=f"One of {', '.join(s.name for s in SCENARIOS)}; repeatable. All unless given."),
    ] = None,
    runs: Annotated[int, typer.Option(help="How often each is measured.", min=1)] = 5,
    databases: Annotated[int, typer.Option(help="Databases of contents.", min=1)] = DATABASES,
    users: Annotated[int, typer.Option(help="DatabaseUsers of contents.", min=1)] = USERS,
    keep: Annotated[bool, typer.Option(help="Write results and picture.")] = True,
    add: Annotated[bool, typer.Option(help="Add to the runs that were kept, instead of replacing them.")] = False,
) -> None:
    """Measure the database operator of this checkout on the devcluster, or with CLUSTER=current on yours."""
    unknown = sorted(set(scenario or ()) - {s.name for s in SCENARIOS})
    if unknown:
        raise typer.BadParameter(f"there is no scenario {', '.join(unknown)}")
    cluster = target(Progress(console))
    install(cluster, Progress(console))
    bench = Bench(cluster, runs, databases, users, lambda line: console.print(escape(line), soft_wrap=True))
    failed = False
    for each in SCENARIOS:
        if scenario is None or each.name in scenario:
            measured = _measured(bench, each)
            failed |= measured is None
            if measured is not None and keep and (databases, users) == (DATABASES, USERS):
                # At once: all of them take hours.
                _keep(measured, runs, add=add)
    raise typer.Exit(1 if failed else 0)


def _measured(bench: Bench, scenario: Scenario) -> Sequence[Measurement] | None:
    """What was measured, which is printed; None where it did not come to its end."""
    console.print(f"[bold]{scenario.title}[/bold]")
    try:
        measured = scenario.measure(bench, scenario.title)
    except (DevclusterError, TimeoutError) as error:
        console.print(f"[red]✗[/red] {escape(str(error))}", soft_wrap=True)
        return None
    for table in report.figures(summarise(measured)):
        console.print(table)
    return measured


def _keep(measured: Sequence[Measurement], runs: int, *, add: bool) -> None:
    told = {
        "machine": machine.description(),
        "python": platform.python_version(),
        "runs": str(runs),
        "day": f"{datetime.now(UTC):%F}",
    }
    merged = results.merge(results.load(DIRECTORY), measured, told, add=add)
    merged.measurements = results.in_order(merged.measurements, [s.title for s in SCENARIOS])
    summaries = results.write(merged, DIRECTORY)
    PLOT.write_text(plot.draw(summaries, _caption(merged), picture(summaries)))
    console.print(f"written to {DIRECTORY}", soft_wrap=True)


def _caption(runs: results.Runs) -> list[str]:
    told = list(runs.machines.values())
    machines = " / ".join(dict.fromkeys(one["machine"] for one in told))
    counts, days = sorted({int(one["runs"]) for one in told}), sorted({one["day"] for one in told})
    often, when = (" to ".join(dict.fromkeys((str(those[0]), str(those[-1])))) for those in (counts, days))
    return [
        f"{machines}; all of it: API server, two nodes, databases, clients and operator",
        f"medians of {often} runs, with lines from lowest to highest; {when}",
    ]


app = typer.Typer(pretty_exceptions_enable=False, add_completion=False)
app.command()(main)

if __name__ == "__main__":
    app()
