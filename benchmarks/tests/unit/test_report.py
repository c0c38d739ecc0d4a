"""What a person reads: few digits, the spread where there is one, the ratio to the baseline, met or missed."""

from __future__ import annotations

from io import StringIO

import pytest
from benchmarks import report
from benchmarks.summary import Summary
from benchmarks.targets import Target, verdicts
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


def test_each_scenario_has_a_table_and_what_a_peer_lacks_is_left_blank() -> None:
    summaries = [
        Summary("idle", "controller-runtime", "RSS", "MiB", (30.0,)),
        Summary("idle", "kopf", "import", "ms", (900.0,)),
        Summary("cold start", "kopf", "CPU", "ms", (3.3,)),
    ]
    idle, cold_start = (rendered(table) for table in report.figures(summaries))
    assert "cold start" in cold_start
    assert "controller-runtime" not in cold_start
    assert [line.count("-") for line in idle.splitlines() if "import" in line or "RSS" in line] == [1, 1]


def test_a_target_is_shown_with_its_limit_and_whether_it_is_met() -> None:
    summaries = [
        Summary("idle", "controller-runtime", "RSS", "MiB", (30.0,)),
        Summary("idle", "steersman", "RSS", "MiB", (40.0,)),
    ]
    targets = [Target("idle", "RSS", 1.2, relative=True), Target("idle", "RSS", 45.0)]
    text = rendered(report.targets(verdicts(summaries, targets)))
    missed, met = (line for line in text.splitlines() if "steersman" in line)
    assert "≤ 36 MiB (x1.2)" in missed
    assert "missed" in missed
    assert "≤ 45 MiB" in met
    assert "met" in met
