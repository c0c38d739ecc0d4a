"""Count the function calls that one object costs in a cold start.

The number of calls does not depend on the speed of the machine, so CI can compare it where it cannot compare times.
The operator runs in a process of its own under cProfile, against a real API server. Two cold starts of different size
are profiled, and the difference is divided by the difference in objects: imports and start-up do not count.

Calls of built-in functions count for the module that makes them. The modules of the event loop are listed but not
compared: a slow machine reads a response in more parts, which adds about 1 % of calls there.
"""

from __future__ import annotations

import asyncio
import cProfile
import json
import marshal
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from benchmarks import machine, work
from benchmarks.environment import NAMESPACE, BenchmarkConfig, api_server
from benchmarks.load import create_works
from benchmarks.peers import OperatorSettings
from benchmarks.process import run_operator
from benchmarks.scenarios.cold_start import TIMEOUT_SECONDS, wait_until_all_done

SMALL, LARGE = 300, 1300
ALLOWED_GROWTH = 0.03
EVENT_LOOP = ("asyncio", "concurrent/futures", "selectors", "socket", "ssl")
"""Modules whose calls depend on how responses are split."""

BASELINE = Path(__file__).parent / "results" / "calls.json"
BUILT_IN = "~"
"""The file of a built-in function in a profile."""
_PROFILE = "--profile"

CallCounts = Counter[str]
"""Calls by module."""


def main(
    record: Annotated[bool, typer.Option(help="Write the result as the baseline.")] = False,
    modules: Annotated[int, typer.Option(help="How many modules to list.", min=1)] = 25,
) -> None:
    """Count calls per object and compare them with the recorded baseline.

    Exits with 1 when the count is more than 3 % above the baseline.
    """
    baseline: int | None = json.loads(BASELINE.read_text())["calls_per_object"] if BASELINE.exists() else None
    per_object = asyncio.run(_measure())
    total = round(sum(count for module, count in per_object.items() if not is_event_loop(module)))
    Console().print(_table(per_object, modules))
    if record:
        BASELINE.write_text(json.dumps({"calls_per_object": total}) + "\n")
    grew = not record and baseline is not None and total > baseline * (1 + ALLOWED_GROWTH)
    if grew:
        sys.stderr.write(f"The recorded count is {baseline}. Remove the new calls, or run with --record.\n")
    sys.stdout.write(f"calls of the event loop per object, not compared: {round(per_object.total()) - total}\n")
    sys.stdout.write(f"calls per object: {total}\n")
    raise typer.Exit(1 if grew else 0)


async def _measure() -> CallCounts:
    small, large = [await _profile(objects) for objects in (SMALL, LARGE)]
    return Counter({name: (count - small[name]) / (LARGE - SMALL) for name, count in large.items()})


async def _profile(objects: int) -> CallCounts:
    """Return the function calls of one cold start."""
    config = BenchmarkConfig({}, machine.assign_cores())
    with tempfile.NamedTemporaryFile(suffix=".prof") as file:
        async with api_server(config) as server:
            version = await create_works(server, objects)
            settings = OperatorSettings(server.kubeconfig, NAMESPACE)
            command = [sys.executable, "-m", "benchmarks.calls", _PROFILE, file.name]
            async with run_operator(command, settings.environment(), config.cores.operator) as operator:
                await operator.wait_for(wait_until_all_done(server.client, version, objects), TIMEOUT_SECONDS)
        return count_by_module(marshal.loads(file.read()))


def count_by_module(stats: dict[tuple[str, int, str], Any]) -> CallCounts:
    """Sum the calls of a marshalled profile by module.

    `stats` maps (file, line, function) to (primitive calls, calls, own time, total time, callers), as dumped by
    `cProfile`. Calls of built-in functions are added to the modules of their callers.
    """
    counts: CallCounts = Counter()
    for (file, _, _), (_, calls, _, _, callers) in stats.items():
        if file != BUILT_IN:
            counts[_module(file)] += calls
            continue
        for (caller, _, _), (_, calls_by_caller, *_) in callers.items():
            counts[_module(caller)] += calls_by_caller
    return counts


def is_event_loop(module: str) -> bool:
    """Return True if a module belongs to the event loop."""
    _, _, name = module.partition("/")
    return name.startswith(EVENT_LOOP)


def _module(file: str) -> str:
    if file == BUILT_IN:
        return "built-in functions"
    for marker in ("/src/", "/site-packages/", "/python3."):
        if marker in file:
            return file.rpartition(marker)[2].removesuffix(".py")
    return file


def _table(per_object: CallCounts, modules: int) -> Table:
    table = Table("module", "calls per object", title="Cold start")
    table.columns[1].justify = "right"
    for name, count in per_object.most_common(modules):
        table.add_row(name, f"{count:.1f}")
    return table


def _run_profiled(file: str) -> None:
    profile = cProfile.Profile()
    sys.argv[1:] = ["asyncio"]
    try:
        profile.runcall(work.main, work.run)
    finally:
        profile.dump_stats(file)


if __name__ == "__main__":
    if sys.argv[1:2] == [_PROFILE]:
        _run_profiled(sys.argv[2])
    else:
        typer.run(main)
