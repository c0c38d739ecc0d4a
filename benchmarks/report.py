"""Tables for the terminal: results with spread and ratio, and targets."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.table import Table

from benchmarks.peers import BASELINE
from benchmarks.summary import Summary
from benchmarks.targets import TargetResult


def figures(summaries: Sequence[Summary]) -> Iterator[Table]:
    """Yield a table per scenario with metrics as rows, peers as columns."""
    for scenario in dict.fromkeys(s.scenario for s in summaries):
        yield _scenario(scenario, [s for s in summaries if s.scenario == scenario])


def _scenario(title: str, summaries: Sequence[Summary]) -> Table:
    table = Table(title=f"[bold]{title}[/bold]", row_styles=("", "dim"), title_justify="left")
    table.add_column("median xbaseline\n(lowest to highest)", max_width=22)
    peers = list(dict.fromkeys(s.peer for s in summaries))
    for peer in peers:
        table.add_column(peer, justify="right")
    found = {(s.metric, s.peer): s for s in summaries}
    for metric, unit in dict.fromkeys((s.metric, s.unit) for s in summaries):
        baseline = found.get((metric, BASELINE.name))
        label = f"{metric}, {unit}" if unit else metric
        table.add_row(label, *(_cell(found.get((metric, peer)), baseline) for peer in peers))
    return table


def _cell(summary: Summary | None, baseline: Summary | None) -> str:
    if summary is None:
        return "-"
    text = number(summary.median)
    if baseline is not None and baseline is not summary and baseline.median > 0:
        text += f" x{summary.median / baseline.median:.2f}"
    if summary.low != summary.high:
        text += f"\n({number(summary.low)} to {number(summary.high)})"
    return text


def number(value: float) -> str:
    """Format a value with its significant digits."""
    if value == 0:
        return "0"
    digits = 0 if abs(value) >= 100 or value == int(value) else 1 if abs(value) >= 10 else 2
    return f"{value:,.{digits}f}"


def targets(verdicts: Sequence[TargetResult]) -> Table:
    """Return a table of targets with the result of each peer."""
    table = Table(title="targets")
    for column in ("scenario", "figure", "peer", "value", "limit", ""):
        table.add_column(column, justify="right" if column in ("value", "limit") else "left")
    for verdict in verdicts:
        target = verdict.target
        sign = "≥" if target.at_least else "≤"
        limit = f"{sign} {number(verdict.limit)} {verdict.unit}".rstrip()
        if target.relative:
            limit += f" (x{target.limit:g})"
        figure = f"{target.metric}, worst" if target.worst else target.metric
        outcome = "[green]met[/green]" if verdict.met else "[red]missed[/red]"
        value = f"{number(verdict.value)} {verdict.unit}".rstrip()
        table.add_row(target.scenario, figure, verdict.peer, value, limit, outcome)
    return table
