"""Tests of the tables: digits, spread, baseline ratio and targets."""

from __future__ import annotations

from io import StringIO

import pytest
from benchmarks import report
from benchmarks.summary import Summary
from benchmarks.targets import Target, evaluate
from rich.console import Console, RenderableType


def rendered(table: RenderableType) -> str:
    output = StringIO()
    Console(file=output, width=200).print(table)
    return output.getvalue()


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0"),
        (0.123, "0.12"),
        (1.0, "1"),
        (9.876, "9.88"),
        (12.34, "12.3"),
        (415.849, "416"),
        (17615.4, "17,615"),
    ],
)
def test_numbers_have_the_digits_that_are_worth_reading(value: float, text: str) -> None:
    assert report.number(value) == text


def test_a_cell_has_median_ratio_and_spread() -> None:
    summaries = [
        Summary("cold start", "controller-runtime", "CPU", "ms", (2.0,)),
        Summary("cold start", "steersman", "CPU", "ms", (1.0, 3.0, 5.0)),
    ]
    (table,) = report.figures(summaries)
    text = rendered(table)
    assert "3 x1.50" in text
    assert "(1 to 5)" in text
    assert "CPU, ms" in text


def test_report_has_a_table_per_scenario_with_blank_gaps() -> None:
    summaries = [
        Summary("idle", "controller-runtime", "RSS", "MiB", (30.0,)),
        Summary("idle", "kopf", "import", "ms", (900.0,)),
        Summary("cold start", "kopf", "CPU", "ms", (3.3,)),
    ]
    idle, cold_start = (rendered(table) for table in report.figures(summaries))
    assert "cold start" in cold_start
    assert "controller-runtime" not in cold_start
    assert [line.count("-") for line in idle.splitlines() if "import" in line or "RSS" in line] == [1, 1]


def test_report_shows_target_limit_and_result() -> None:
    summaries = [
        Summary("idle", "controller-runtime", "RSS", "MiB", (30.0,)),
        Summary("idle", "steersman", "RSS", "MiB", (40.0,)),
    ]
    targets = [Target("idle", "RSS", 1.2, relative=True), Target("idle", "RSS", 45.0)]
    text = rendered(report.targets(evaluate(summaries, targets)))
    missed, met = (line for line in text.splitlines() if "steersman" in line)
    assert "≤ 36 MiB (x1.2)" in missed
    assert "missed" in missed
    assert "≤ 45 MiB" in met
    assert "met" in met
