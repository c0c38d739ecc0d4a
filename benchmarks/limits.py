"""Measure CPU and memory of the worst input at each limit.

One event loop serves all namespaces, so one step may take 100 ms. Memory may be 16 times the size of the input, and
4 MiB for small ones.
"""

from __future__ import annotations

import sys
import time
import tracemalloc
from collections.abc import Callable

import typer
from rich.console import Console
from rich.table import Table

from database_support.unit.input_cases import input_cases

MAX_SECONDS = 0.1
MAX_MEMORY_FACTOR = 16
_MIN_MEMORY_BYTES = 4 * 2**20
_RUNS = 3


def main() -> None:
    """Print the costs. Exits with 1 if one exceeds its bound."""
    table = Table("input", "bytes", "CPU ms", "peak memory KiB")
    exceeded: list[str] = []
    for name, case in input_cases().items():
        for label, run in ((name, case.accept), (f"{name}, refused", case.refuse)):
            seconds, memory = min(_cpu_seconds(run) for _ in range(_RUNS)), _peak_bytes(run)
            table.add_row(label, str(case.size), f"{seconds * 1000:.2f}", str(memory // 1024))
            if seconds > MAX_SECONDS or memory > max(_MIN_MEMORY_BYTES, MAX_MEMORY_FACTOR * case.size):
                exceeded.append(label)
    Console(width=100).print(table)
    for label in exceeded:
        sys.stderr.write(f"{label}: more than {MAX_SECONDS * 1000:.0f} ms, or {MAX_MEMORY_FACTOR} times its size\n")
    raise typer.Exit(1 if exceeded else 0)


def _cpu_seconds(run: Callable[[], object]) -> float:
    began = time.process_time()
    run()
    return time.process_time() - began


def _peak_bytes(run: Callable[[], object]) -> int:
    tracemalloc.start()
    try:
        run()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


if __name__ == "__main__":
    typer.run(main)
