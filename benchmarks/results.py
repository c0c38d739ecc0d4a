"""Result files: ``latest.json`` with medians, ``runs.json`` with every run."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from benchmarks.measurement import Measurement
from benchmarks.summary import Summary, summarise

DIRECTORY = Path(__file__).parent / "results"
_LATEST = "latest.json"
_RUNS = "runs.json"


class Runs(msgspec.Struct):
    """All runs behind ``latest.json``, with the machines they ran on.

    Attributes:
        machines: machine, versions and date per scenario.
        measurements: all measurements of all runs.
    """

    machines: dict[str, dict[str, str]] = {}
    measurements: list[Measurement] = []


def load(directory: Path = DIRECTORY) -> Runs:
    """Load the saved runs. Return empty runs if there are none."""
    file = directory / _RUNS
    return msgspec.json.decode(file.read_bytes(), type=Runs) if file.exists() else Runs()


def merge(previous: Runs, measured: Sequence[Measurement], machine: dict[str, str], *, add: bool = False) -> Runs:
    """Replace whole scenarios in ``previous`` with the measured ones.

    Args:
        add: append to the saved runs instead of replacing them, and add up the ``runs`` of ``machine``.
    """
    scenarios = dict.fromkeys(m.scenario for m in measured)
    retained = [m for m in previous.measurements if add or m.scenario not in scenarios]
    machines = {**previous.machines, **dict.fromkeys(scenarios, machine)}
    for scenario in scenarios.keys() & previous.machines.keys() if add else ():
        runs = int(previous.machines[scenario]["runs"]) + int(machine["runs"])
        machines[scenario] = {**machine, "runs": str(runs)}
    return Runs(machines, [*retained, *measured])


def write(runs: Runs, directory: Path = DIRECTORY) -> list[Summary]:
    """Write both files and return the summaries of ``latest.json``."""
    summaries = summarise(runs.measurements)
    directory.mkdir(exist_ok=True)
    latest = (Measurement(s.scenario, s.peer, s.metric, round(s.median, 3), s.unit) for s in summaries)
    _write(directory / _LATEST, list(latest))
    _write(directory / _RUNS, runs)
    return summaries


def _write(file: Path, content: Any) -> None:
    file.write_bytes(msgspec.json.format(msgspec.json.encode(content), indent=2) + b"\n")


def caption(runs: Runs) -> list[str]:
    """Return the chart's caption: machine, versions, runs and date."""
    machines_of_runs = list(runs.machines.values())
    if not machines_of_runs:
        return []
    machines = " / ".join(dict.fromkeys(one["machine"] for one in machines_of_runs))
    last = machines_of_runs[-1]
    versions = ", ".join(f"{name} {last[name]}" for name in ("controller-runtime", "kube-rs", "kopf", "steersman"))
    counts, days = (
        sorted({int(one["runs"]) for one in machines_of_runs}),
        sorted({one["day"] for one in machines_of_runs}),
    )
    run_counts = " to ".join(dict.fromkeys(str(n) for n in (counts[0], counts[-1])))
    day_range = " to ".join(dict.fromkeys((days[0], days[-1])))
    return [
        f"{machines}; the operator has a core of its own, API server and etcd another",
        f"{versions} (Python {last['python']})",
        f"medians of {run_counts} runs, with lines from lowest to highest; {day_range}",
    ]


def in_order(measurements: Iterable[Measurement], scenarios: Sequence[str]) -> list[Measurement]:
    """Sort the measurements by the order of ``scenarios``."""
    rank = {title: number for number, title in enumerate(scenarios)}
    return sorted(measurements, key=lambda m: rank.get(m.scenario, len(rank)))
