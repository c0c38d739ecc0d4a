"""HistogramValue: buckets, sums and merging."""

from __future__ import annotations

from steersman.observability.histogram import HistogramValue


def test_histogram_counts_values_up_to_each_bound() -> None:
    histogram = HistogramValue((1.0, 10.0))
    for value in (0.5, 1.0, 5.0, 50.0):
        histogram.observe(value)
    assert histogram.buckets() == [("1.0", 2), ("10.0", 3), ("+Inf", 4)]
    assert histogram.total == 56.5


def test_merge_adds_counts_and_totals() -> None:
    parts = [HistogramValue((1.0,)), HistogramValue((1.0,))]
    parts[0].observe(0.5)
    parts[1].observe(2.0)
    merged = HistogramValue.merge(parts)
    assert merged.buckets() == [("1.0", 1), ("+Inf", 2)]
    assert merged.total == 2.5
