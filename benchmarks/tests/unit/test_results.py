"""The files that a run leaves, and that those in the repository belong together."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from benchmarks import plot, results
from benchmarks.measurement import Measurement
from benchmarks.results import Runs
from benchmarks.summary import summarise

ROOT = Path(__file__).parents[3]


def measured(scenario: str, peer: str, value: float) -> Measurement:
    return Measurement(scenario, peer, "CPU", value, "s")


def test_latest_is_a_list_of_medians(tmp_path: Path) -> None:
    results.write(Runs({}, [measured("idle", "kopf", v) for v in (1.0, 9.0, 2.0)]), tmp_path)
    assert json.loads((tmp_path / "latest.json").read_text()) == [
        {"scenario": "idle", "peer": "kopf", "metric": "CPU", "value": 2.0, "unit": "s"}
    ]


def test_what_was_written_is_read_again(tmp_path: Path) -> None:
    runs = Runs({"idle": {"machine": "a small one"}}, [measured("idle", "kopf", 1.0)])
    results.write(runs, tmp_path)
    assert results.load(tmp_path) == runs


def test_before_the_first_run_there_is_nothing(tmp_path: Path) -> None:
    assert results.load(tmp_path) == Runs()


def test_a_scenario_is_replaced_as_a_whole_and_others_are_kept() -> None:
    before = Runs(
        {"idle": {"day": "old"}, "restart": {"day": "old"}},
        [measured("idle", "kopf", 1.0), measured("idle", "kube-rs", 1.0), measured("restart", "kopf", 1.0)],
    )
    merged = results.merge(before, [measured("idle", "kopf", 2.0)], {"day": "new"})
    assert merged.machines == {"idle": {"day": "new"}, "restart": {"day": "old"}}
    assert merged.measurements == [measured("restart", "kopf", 1.0), measured("idle", "kopf", 2.0)]


def test_more_runs_of_a_scenario_are_added_where_that_is_asked_for() -> None:
    before = Runs({"idle": {"runs": "5", "day": "old"}}, [measured("idle", "kopf", 1.0)])
    now = [measured("idle", "kopf", 2.0), measured("restart", "kopf", 3.0)]
    merged = results.merge(before, now, {"runs": "2", "day": "new"}, add=True)
    assert merged.machines == {"idle": {"runs": "7", "day": "new"}, "restart": {"runs": "2", "day": "new"}}
    assert merged.measurements == [measured("idle", "kopf", 1.0), *now]


def test_measurements_are_kept_in_the_order_of_the_scenarios() -> None:
    runs = [measured("late", "kopf", 1.0), measured("early", "kopf", 2.0), measured("early", "kube-rs", 3.0)]
    ordered = results.in_order(runs, ["early", "late"])
    assert [m.value for m in ordered] == [2.0, 3.0, 1.0]


def told(runs: str, day: str) -> dict[str, str]:
    names = ("machine", "controller-runtime", "kube-rs", "kopf", "steersman", "python")
    return {**{name: f"<{name}>" for name in names}, "runs": runs, "day": day}


def test_below_the_picture_machine_versions_and_runs_are_told() -> None:
    runs = Runs({"idle": told("5", "2026-11-21"), "restart": told("3", "2026-11-22")})
    machine, versions, often = results.caption(runs)
    assert machine.startswith("<machine>;")
    assert "kube-rs <kube-rs>" in versions
    assert "(Python <python>)" in versions
    assert "medians of 3 to 5 runs" in often
    assert "2026-11-21 to 2026-11-22" in often


def test_of_one_run_each_there_is_no_range() -> None:
    *_, often = results.caption(Runs({"idle": told("5", "2026-11-21")}))
    assert "medians of 5 runs" in often
    assert often.endswith("2026-11-21")


@pytest.mark.parametrize("name", ["latest.json", "docs/assets/benchmarks.svg"])
def test_what_is_committed_is_of_the_committed_runs(name: str, tmp_path: Path) -> None:
    runs = results.load()
    results.write(runs, tmp_path)
    if name == "latest.json":
        assert (results.DIRECTORY / name).read_text() == (tmp_path / name).read_text()
    else:
        assert (ROOT / name).read_text() == plot.draw(summarise(runs.measurements), results.caption(runs))
