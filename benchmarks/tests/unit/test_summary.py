"""Tests of the statistics: median, spread and percentiles."""

from __future__ import annotations

import pytest
from benchmarks.measurement import Measurement
from benchmarks.summary import percentile, summarise


def measurement(value: float, peer: str = "kopf", metric: str = "CPU") -> Measurement:
    return Measurement("idle", peer, metric, value, "s")


def test_a_summary_has_median_and_spread() -> None:
    (summary,) = summarise([measurement(3), measurement(1), measurement(10)])
    assert (summary.median, summary.low, summary.high) == (3, 1, 10)


def test_summary_of_even_run_count_has_middle_median() -> None:
    (summary,) = summarise([measurement(1), measurement(2), measurement(4), measurement(100)])
    assert summary.median == 3


def test_summarise_groups_by_peer_and_metric_in_order() -> None:
    runs = [measurement(1, "b"), measurement(2, "a"), measurement(3, "b", "RSS"), measurement(5, "b")]
    found = [(s.peer, s.metric, s.values) for s in summarise(runs)]
    assert found == [("b", "CPU", (1, 5)), ("a", "CPU", (2,)), ("b", "RSS", (3,))]


@pytest.mark.parametrize(
    ("percent", "expected"), [(0, 1), (1, 1), (50, 50), (50.5, 51), (99, 99), (99.1, 100), (100, 100)]
)
def test_a_percentile_is_the_nearest_rank(percent: float, expected: float) -> None:
    assert percentile([float(n) for n in range(100, 0, -1)], percent) == expected


def test_the_percentile_of_one_value_is_that_value() -> None:
    assert percentile([7.0], 99) == 7.0


def test_no_values_have_no_percentile() -> None:
    with pytest.raises(ValueError, match="empty list"):
        percentile([], 50)
