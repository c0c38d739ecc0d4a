"""Tests of the result files, including the committed ones."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from benchmarks import plot, results
from benchmarks.measurement import Measurement
from benchmarks.results import Runs
from benchmarks.summary import summarise

ROOT = Path(__file__).parents[3]


def measurement(scenario: str, peer: str, value: float) -> Measurement:
    return Measurement(scenario, peer, "CPU", value, "s")


def test_latest_is_a_list_of_medians(tmp_path: Path) -> None:
    results.write(Runs({}, [measurement("idle", "kopf", v) for v in (1.0, 9.0, 2.0)]), tmp_path)
    assert json.loads((tmp_path / "latest.json").read_text()) == [
        {"scenario": "idle", "peer": "kopf", "metric": "CPU", "value": 2.0, "unit": "s"}
    ]


def test_results_written_are_loaded_again(tmp_path: Path) -> None:
    runs = Runs({"idle": {"machine": "a small one"}}, [measurement("idle", "kopf", 1.0)])
    results.write(runs, tmp_path)
    assert results.load(tmp_path) == runs


def test_results_load_before_first_run_is_empty(tmp_path: Path) -> None:
    assert results.load(tmp_path) == Runs()


def test_merge_replaces_scenario_and_keeps_others() -> None:
    before = Runs(
        {"idle": {"day": "old"}, "restart": {"day": "old"}},
        [measurement("idle", "kopf", 1.0), measurement("idle", "kube-rs", 1.0), measurement("restart", "kopf", 1.0)],
    )
    merged = results.merge(before, [measurement("idle", "kopf", 2.0)], {"day": "new"})
    assert merged.machines == {"idle": {"day": "new"}, "restart": {"day": "old"}}
    assert merged.measurements == [measurement("restart", "kopf", 1.0), measurement("idle", "kopf", 2.0)]


def test_merge_with_add_appends_runs() -> None:
    before = Runs({"idle": {"runs": "5", "day": "old"}}, [measurement("idle", "kopf", 1.0)])
    now = [measurement("idle", "kopf", 2.0), measurement("restart", "kopf", 3.0)]
    merged = results.merge(before, now, {"runs": "2", "day": "new"}, add=True)
    assert merged.machines == {"idle": {"runs": "7", "day": "new"}, "restart": {"runs": "2", "day": "new"}}
    assert merged.measurements == [measurement("idle", "kopf", 1.0), *now]


def test_in_order_sorts_by_scenario() -> None:
    runs = [measurement("late", "kopf", 1.0), measurement("early", "kopf", 2.0), measurement("early", "kube-rs", 3.0)]
    ordered = results.in_order(runs, ["early", "late"])
    assert [m.value for m in ordered] == [2.0, 3.0, 1.0]


def run_metadata(runs: str, day: str) -> dict[str, str]:
    names = ("machine", "controller-runtime", "kube-rs", "kopf", "steersman", "python")
    return {**{name: f"<{name}>" for name in names}, "runs": runs, "day": day}


def test_caption_names_machine_versions_and_runs() -> None:
    runs = Runs({"idle": run_metadata("5", "2026-11-21"), "restart": run_metadata("3", "2026-11-22")})
    machine, versions, often = results.caption(runs)
    assert machine.startswith("<machine>;")
    assert "kube-rs <kube-rs>" in versions
    assert "(Python <python>)" in versions
    assert "medians of 3 to 5 runs" in often
    assert "2026-11-21 to 2026-11-22" in often


def test_caption_of_equal_runs_has_no_range() -> None:
    *_, often = results.caption(Runs({"idle": run_metadata("5", "2026-11-21")}))
    assert "medians of 5 runs" in often
    assert often.endswith("2026-11-21")


@pytest.mark.parametrize("name", ["latest.json", "docs/assets/benchmarks.svg"])
def test_committed_files_match_committed_runs(name: str, tmp_path: Path) -> None:
    runs = results.load()
    results.write(runs, tmp_path)
    if name == "latest.json":
        assert (results.DIRECTORY / name).read_text() == (tmp_path / name).read_text()
    else:
        assert (ROOT / name).read_text() == plot.draw(summarise(runs.measurements), results.caption(runs))
