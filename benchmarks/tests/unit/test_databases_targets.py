"""Tests of the database targets: existing metrics, and failure on a miss."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import typer
from benchmarks import plot, results
from benchmarks.databases import __main__ as command
from benchmarks.databases.catalog import ROLLING, SCENARIOS, picture
from benchmarks.databases.planned_disruptions import DIRECT, POOLED
from benchmarks.databases.scenarios import DatabaseBenchmark, DatabaseScenario
from benchmarks.databases.targets import TARGETS
from benchmarks.measurement import Measurement
from benchmarks.summary import summarise
from benchmarks.targets import evaluate


def test_each_target_has_a_committed_figure() -> None:
    """An unknown metric would be skipped, so its target could not fail."""
    kept = {(s.scenario, s.metric, s.peer) for s in summarise(results.load(command.DIRECTORY).measurements)}
    assert {(t.scenario, t.metric, peer) for t in TARGETS for peer in t.peers} <= kept


def test_committed_results_meet_their_targets() -> None:
    judged = evaluate(summarise(results.load(command.DIRECTORY).measurements), TARGETS)
    assert judged and [v for v in judged if not v.met] == []


def test_each_scenario_except_creation_has_a_target() -> None:
    assert {scenario.title for scenario in SCENARIOS} - {target.scenario for target in TARGETS} == {
        "A cluster is made"
    }


@pytest.mark.parametrize(
    ("gaps", "code", "outcome"),
    [((0.9, 2.0), 0, "met"), ((0.9, 0.9, 0.9, 2.1), 1, "missed")],
)
def test_command_exit_code_follows_the_worst_run(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    gaps: tuple[float, ...],
    code: int,
    outcome: str,
) -> None:
    """Writes without a pooler have no target."""

    def measure(bench: DatabaseBenchmark, title: str) -> Iterator[Measurement]:
        for gap in gaps:
            yield Measurement(title, POOLED, "write gap", gap, "s")
            yield Measurement(title, DIRECT, "write gap", 60.0, "s")

    def nothing(*_: object) -> None: ...

    scenarios = (DatabaseScenario("rolling", ROLLING, measure), DatabaseScenario("drift", "drift", measure_nothing))
    for name, value in {"SCENARIOS": scenarios, "select_target": nothing, "install": nothing}.items():
        monkeypatch.setattr(command, name, value)
    # A narrow terminal would wrap the row under test.
    monkeypatch.setattr(command.console, "width", 200)
    with pytest.raises(typer.Exit) as ended:
        command.main(["rolling"], runs=1, keep=False)
    assert ended.value.exit_code == code
    (row,) = (line for line in capsys.readouterr().out.splitlines() if "write gap, worst" in line)
    assert POOLED in row and "≤ 2 s" in row and outcome in row


def measure_nothing(bench: DatabaseBenchmark, title: str) -> Iterator[Measurement]:
    pytest.fail("it was not asked for")


def test_the_committed_picture_is_of_the_committed_runs() -> None:
    runs = results.load(command.DIRECTORY)
    summaries = summarise(runs.measurements)
    assert command.PLOT.read_text() == plot.draw(summaries, command.caption(runs), picture(summaries))


def test_run_count_is_that_of_the_rarest_figure(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Several samples of one run count as one run."""

    def measure(bench: DatabaseBenchmark, title: str) -> Iterator[Measurement]:
        yield Measurement(title, "who", "all Ready", 1.0, "s")
        yield from (Measurement(title, "who", "healed after", value, "s") for value in (2.0, 3.0))

    def nothing(*_: object) -> None: ...

    given = {
        "DIRECTORY": tmp_path,
        "PLOT": tmp_path / "picture.svg",
        "SCENARIOS": (DatabaseScenario("t", "t", measure),),
        "select_target": nothing,
        "install": nothing,
    }
    for name, value in given.items():
        monkeypatch.setattr(command, name, value)
    with pytest.raises(typer.Exit):
        command.main(None)
    assert results.load(tmp_path).machines["t"]["runs"] == "1"
