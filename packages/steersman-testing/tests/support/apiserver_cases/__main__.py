"""``make conformance``: every case on both servers; each must pass on both, and be answered alike.

Alike is: the same codes, the same content, and of refusals the same reason. What differs on purpose is in ``gaps``.

Usage: ``python -m apiserver_cases [BEGINNING …]`` runs the cases whose names begin so; without one, all. A table
counts by area as it goes; the last line counts all. The exit code is 1 where a case differs, 2 where there is none of
the names.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import sys
import time
import traceback
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from apiserver_cases import CASES, CRDS, DIFFERENTLY_ANSWERED, NOT_IMITATED_YET
from apiserver_cases.installation import install
from apiserver_cases.servers import Outcome, new_namespace, run_in_memory, run_on
from apiserver_cases.transcript import difference, outcome_difference
from steersman.client import connect
from steersman.client.transport import Transport
from steersman_testing.envtest import Envtest

_ROW = "{:22}{:>8}{:>12}{:>13}{:>8}"


@dataclass(slots=True)
class _Report:
    """What was found so far.

    Attributes:
        cases: those that ran.
        differences: what differs, by case.
        worded: how many cases agree, but have a refusal that is told in other words.
    """

    console: Console
    cases: list[str] = field(default_factory=list[str])
    differences: dict[str, str] = field(default_factory=dict[str, str])
    worded: int = 0

    def row(self, area: str, chosen: Sequence[str], seconds: float) -> None:
        """A line of the table."""
        differences = sum(n in self.differences for n in chosen)
        agreements = len(chosen) - differences - _left_out(chosen)
        row = _ROW.format(area, len(chosen), agreements, differences, f"{seconds:.1f} s")
        self.console.print(row, style="red" if differences else None, markup=False)

    def count(self, seconds: float) -> None:
        """What differs, and the last line."""
        for name, text in self.differences.items():
            self.console.print(f"\n✗ {name}\n{text}", markup=False, soft_wrap=True)
        left_out = _left_out(self.cases)
        agreements = len(self.cases) - len(self.differences) - left_out
        rest = f", {left_out} not imitated" if left_out else ""
        known = sum(n in DIFFERENTLY_ANSWERED for n in self.cases)
        self.console.print(
            f"\nOf the agreements, {self.worded} tell a refusal in other words, "
            f"and {known} are of codes and reasons alone (see gaps.py).",
            soft_wrap=True,
        )
        self.console.print(
            f"{len(self.cases)} cases in {seconds:.0f} s: {agreements} agreements, "
            f"{len(self.differences)} differences{rest}",
            soft_wrap=True,
        )


def main(beginnings: Sequence[str]) -> int:
    """Runs the cases; the exit code."""
    report = _Report(Console(highlight=False))
    chosen = [n for n in CASES if not beginnings or n.startswith(tuple(beginnings))]
    if not chosen:
        report.console.print("No case has such a name.")
        return 2
    # The cases provoke warnings of the real server.
    logging.disable(logging.WARNING)
    started = time.monotonic()
    with Envtest.start() as environment:
        asyncio.run(_compare(environment, chosen, report))
    report.count(time.monotonic() - started)
    return 1 if report.differences else 0


async def _compare(environment: Envtest, chosen: Sequence[str], report: _Report) -> None:
    report.console.print(_ROW.format("area", "cases", "agreements", "differences", "time"), style="bold")
    async with connect(environment.config, retry=None) as transport, _progress(report, len(chosen)) as progress:
        await install(transport, CRDS)
        for area, names in itertools.groupby(chosen, key=lambda n: n.partition("-")[0]):
            started, here = time.monotonic(), list(names)
            for name in here:
                progress.update(progress.task_ids[0], description=f"{name[:48]:48}")
                if text := await _difference(environment, transport, name, report):
                    report.differences[name] = text
                report.cases.append(name)
                progress.advance(progress.task_ids[0])
            report.row(area, here, time.monotonic() - started)


@asynccontextmanager
async def _progress(report: _Report, total: int) -> AsyncGenerator[Progress]:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=report.console, transient=True) as progress:
        progress.add_task("Installing the kinds", total=total)
        yield progress


async def _difference(environment: Envtest, transport: Transport, name: str, report: _Report) -> str:
    """What the servers say differently of one case; empty where nothing."""
    namespace = new_namespace()
    theirs = await run_on(environment, transport, CASES[name], namespace)
    if theirs.failure is not None:
        last = theirs.exchanges[-1].answered if theirs.exchanges else ""
        return f"  fails on the real server: {_told(theirs.failure)}\n  last answer: {str(last)[:600]}"
    if name in NOT_IMITATED_YET:
        return ""
    ours = await asyncio.to_thread(run_in_memory, CASES[name], CRDS, namespace)
    text = _between(name, ours, theirs)
    report.worded += (
        not text
        and name not in DIFFERENTLY_ANSWERED
        and difference(ours.exchanges, theirs.exchanges, wording=True) != ""
    )
    return text


def _between(name: str, ours: Outcome, theirs: Outcome) -> str:
    if ours.failure is not None:
        return f"  fails in memory: {_told(ours.failure)}"
    compare = outcome_difference if name in DIFFERENTLY_ANSWERED else difference
    text = compare(ours.exchanges, theirs.exchanges)
    return f"  is answered differently (in memory != on the real server):\n  {text}" if text else ""


def _told(error: BaseException) -> str:
    places = [f for f in traceback.extract_tb(error.__traceback__) if "/apiserver_cases/" in f.filename]
    where = " < ".join(f"{f.name}: {f.line}" for f in reversed(places[-2:]))
    return f"{type(error).__name__}: {error} ({where})"[:900]


def _left_out(names: Sequence[str]) -> int:
    return sum(n in NOT_IMITATED_YET for n in names)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
