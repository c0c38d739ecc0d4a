"""The files that a run leaves: ``latest.json`` for programs, ``runs.json`` with every run and the machine."""

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
    """All runs that ``latest.json`` sums up, each with what it was measured on.

    Attributes:
        machines: by scenario, the machine, the versions and the day.
        measurements: each figure of each run.
    """

    machines: dict[str, dict[str, str]] = {}
    measurements: list[Measurement] = []


def load(directory: Path = DIRECTORY) -> Runs:
    """What was written last, or nothing."""
    file = directory / _RUNS
    return msgspec.json.decode(file.read_bytes(), type=Runs) if file.exists() else Runs()


def merge(previous: Runs, measured: Sequence[Measurement], machine: dict[str, str], *, add: bool = False) -> Runs:
    """``before``, with each scenario that ``now`` has replaced as a whole: what is compared is of one run.

    Args:
        add: ``now`` has more of the same, measured later. It is added, and so are the ``runs`` of ``machine``.
    """
    scenarios = dict.fromkeys(m.scenario for m in measured)
    retained = [m for m in previous.measurements if add or m.scenario not in scenarios]
    machines = {**previous.machines, **dict.fromkeys(scenarios, machine)}
    for scenario in scenarios.keys() & previous.machines.keys() if add else ():
        runs = int(previous.machines[scenario]["runs"]) + int(machine["runs"])
        machines[scenario] = {**machine, "runs": str(runs)}
    return Runs(machines, [*retained, *measured])


def write(runs: Runs, directory: Path = DIRECTORY) -> list[Summary]:
    """Writes both files; returns what ``latest.json`` says."""
    summaries = summarise(runs.measurements)
    directory.mkdir(exist_ok=True)
    latest = (Measurement(s.scenario, s.peer, s.metric, round(s.median, 3), s.unit) for s in summaries)
    _write(directory / _LATEST, list(latest))
    _write(directory / _RUNS, runs)
    return summaries


def _write(file: Path, content: Any) -> None:
    file.write_bytes(msgspec.json.format(msgspec.json.encode(content), indent=2) + b"\n")


def caption(runs: Runs) -> list[str]:
    """Lines below the picture: machine, versions, and how often and when it was measured."""
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
    """The measurements in the order of ``scenarios``, whenever each was measured."""
    rank = {title: number for number, title in enumerate(scenarios)}
    return sorted(measurements, key=lambda m: rank.get(m.scenario, len(rank)))
