"""``make conformance``: runs all cases on both servers and compares the responses.

Responses agree if they have the same code and content, or the same reason for errors. ``gaps`` lists accepted
differences.

Usage: ``python -m apiserver_cases [PREFIX …]`` runs the cases whose names start with a prefix. Without one it runs
all of them. A table counts the cases by area, and the last line has the totals. The exit code is 1 if a case differs,
and 2 if no case has the prefix.
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

from apiserver_cases import CASES, CRDS, KNOWN_DIFFERENCES, NOT_IMPLEMENTED
from apiserver_cases.installation import install_crds
from apiserver_cases.servers import CaseResult, new_namespace, run_in_memory, run_on_real_server
from apiserver_cases.transcript import difference, outcome_difference
from steersman.client import connect
from steersman.client.transport import Transport
from steersman_testing.envtest import Envtest

_ROW = "{:22}{:>8}{:>12}{:>13}{:>8}"


@dataclass(slots=True)
class _Report:
    """Results of the cases so far.

    Attributes:
        cases: cases that ran.
        differences: differences by case.
        worded: number of cases that agree except for the wording of an error.
    """

    console: Console
    cases: list[str] = field(default_factory=list[str])
    differences: dict[str, str] = field(default_factory=dict[str, str])
    wording_differences: int = 0

    def print_row(self, area: str, case_names: Sequence[str], seconds: float) -> None:
        """Print a line of the table."""
        differences = sum(n in self.differences for n in case_names)
        agreements = len(case_names) - differences - _count_not_implemented(case_names)
        row = _ROW.format(area, len(case_names), agreements, differences, f"{seconds:.1f} s")
        self.console.print(row, style="red" if differences else None, markup=False)

    def print_summary(self, seconds: float) -> None:
        """Print the differences and the totals."""
        for name, text in self.differences.items():
            self.console.print(f"\n✗ {name}\n{text}", markup=False, soft_wrap=True)
        dropped_lines = _count_not_implemented(self.cases)
        agreements = len(self.cases) - len(self.differences) - dropped_lines
        not_implemented = f", {dropped_lines} not implemented" if dropped_lines else ""
        known_differences = sum(n in KNOWN_DIFFERENCES for n in self.cases)
        self.console.print(
            f"\nOf the agreements, {self.wording_differences} tell a refusal in other words, "
            f"and {known_differences} are of codes and reasons alone (see gaps.py).",
            soft_wrap=True,
        )
        self.console.print(
            f"{len(self.cases)} cases in {seconds:.0f} s: {agreements} agreements, "
            f"{len(self.differences)} differences{not_implemented}",
            soft_wrap=True,
        )


def main(prefixes: Sequence[str]) -> int:
    """Run the cases and return the exit code."""
    report = _Report(Console(highlight=False))
    case_names = [n for n in CASES if not prefixes or n.startswith(tuple(prefixes))]
    if not case_names:
        report.console.print("No case has such a name.")
        return 2
    # The cases cause warnings of the real server.
    logging.disable(logging.WARNING)
    started = time.monotonic()
    with Envtest.start() as environment:
        asyncio.run(_compare(environment, case_names, report))
    report.print_summary(time.monotonic() - started)
    return 1 if report.differences else 0


async def _compare(environment: Envtest, case_names: Sequence[str], report: _Report) -> None:
    report.console.print(_ROW.format("area", "cases", "agreements", "differences", "time"), style="bold")
    async with connect(environment.config, retry=None) as transport, _progress(report, len(case_names)) as progress:
        await install_crds(transport, CRDS)
        for area, names in itertools.groupby(case_names, key=lambda n: n.partition("-")[0]):
            started, area_cases = time.monotonic(), list(names)
            for name in area_cases:
                progress.update(progress.task_ids[0], description=f"{name[:48]:48}")
                if text := await _run_case(environment, transport, name, report):
                    report.differences[name] = text
                report.cases.append(name)
                progress.advance(progress.task_ids[0])
            report.print_row(area, area_cases, time.monotonic() - started)


@asynccontextmanager
async def _progress(report: _Report, total: int) -> AsyncGenerator[Progress]:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=report.console, transient=True) as progress:
        progress.add_task("Installing the kinds", total=total)
        yield progress


async def _run_case(environment: Envtest, transport: Transport, name: str, report: _Report) -> str:
    """Return the differences of one case, or an empty string."""
    namespace = new_namespace()
    real_result = await run_on_real_server(environment, transport, CASES[name], namespace)
    if real_result.failure is not None:
        last = real_result.exchanges[-1].response if real_result.exchanges else ""
        return f"  fails on the real server: {_describe_error(real_result.failure)}\n  last answer: {str(last)[:600]}"
    if name in NOT_IMPLEMENTED:
        return ""
    memory_result = await asyncio.to_thread(run_in_memory, CASES[name], CRDS, namespace)
    text = _compare_results(name, memory_result, real_result)
    report.wording_differences += (
        not text
        and name not in KNOWN_DIFFERENCES
        and difference(memory_result.exchanges, real_result.exchanges, wording=True) != ""
    )
    return text


def _compare_results(name: str, memory_result: CaseResult, real_result: CaseResult) -> str:
    if memory_result.failure is not None:
        return f"  fails in memory: {_describe_error(memory_result.failure)}"
    compare = outcome_difference if name in KNOWN_DIFFERENCES else difference
    text = compare(memory_result.exchanges, real_result.exchanges)
    return f"  is answered differently (in memory != on the real server):\n  {text}" if text else ""


def _describe_error(error: BaseException) -> str:
    places = [f for f in traceback.extract_tb(error.__traceback__) if "/apiserver_cases/" in f.filename]
    where = " < ".join(f"{f.name}: {f.line}" for f in reversed(places[-2:]))
    return f"{type(error).__name__}: {error} ({where})"[:900]


def _count_not_implemented(names: Sequence[str]) -> int:
    return sum(n in NOT_IMPLEMENTED for n in names)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
