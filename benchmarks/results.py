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


def merge(before: Runs, now: Sequence[Measurement], machine: dict[str, str]) -> Runs:
    """``before``, with each scenario that ``now`` has replaced as a whole: what is compared is of one run."""
    scenarios = dict.fromkeys(m.scenario for m in now)
    kept = [m for m in before.measurements if m.scenario not in scenarios]
    machines = {**before.machines, **dict.fromkeys(scenarios, machine)}
    return Runs(machines, [*kept, *now])


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


def in_order(measurements: Iterable[Measurement], scenarios: Sequence[str]) -> list[Measurement]:
    """The measurements in the order of ``scenarios``, whenever each was measured."""
    rank = {title: number for number, title in enumerate(scenarios)}
    return sorted(measurements, key=lambda m: rank.get(m.scenario, len(rank)))
