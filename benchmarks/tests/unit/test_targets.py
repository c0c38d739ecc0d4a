"""Tests of the targets: medians of Steersman, unmeasured targets skipped."""

from __future__ import annotations

import pytest
from benchmarks.peers import PEERS
from benchmarks.scenarios.catalogue import scenarios
from benchmarks.summary import Summary
from benchmarks.targets import TARGETS, Target, evaluate


def summary(peer: str, *values: float, metric: str = "CPU") -> Summary:
    return Summary("idle", peer, metric, "ms", values)


@pytest.mark.parametrize(("ours", "met"), [(9.9, True), (10.0, True), (10.1, False)])
def test_an_absolute_limit(ours: float, met: bool) -> None:
    (verdict,) = evaluate([summary("steersman", ours)], [Target("idle", "CPU", 10.0)])
    assert (verdict.met, verdict.limit) == (met, 10.0)


@pytest.mark.parametrize(("ours", "met"), [(11.9, True), (12.1, False)])
def test_a_limit_relative_to_the_baseline(ours: float, met: bool) -> None:
    found = evaluate(
        [summary("controller-runtime", 9, 10, 50), summary("steersman", ours)],
        [Target("idle", "CPU", 1.2, relative=True)],
    )
    assert [(v.met, v.limit) for v in found] == [(met, 12.0)]


@pytest.mark.parametrize(("ours", "met"), [(99.0, False), (100.0, True), (101.0, True)])
def test_a_figure_that_must_not_be_lower(ours: float, met: bool) -> None:
    found = evaluate(
        [summary("controller-runtime", 100), summary("steersman", ours)],
        [Target("idle", "CPU", 1.0, relative=True, at_least=True)],
    )
    assert [v.met for v in found] == [met]


def test_the_median_counts_not_the_best_run() -> None:
    (verdict,) = evaluate([summary("steersman", 1, 11, 12)], [Target("idle", "CPU", 10.0)])
    assert not verdict.met


def test_target_applies_to_both_event_loops_only() -> None:
    found = evaluate([summary(peer.name, 1) for peer in PEERS], [Target("idle", "CPU", 10.0)])
    assert [v.peer for v in found] == ["steersman", "steersman-uvloop"]


def test_relative_target_without_baseline_is_skipped() -> None:
    assert evaluate([summary("steersman", 1)], [Target("idle", "CPU", 1.0, relative=True)]) == []


def test_each_target_belongs_to_a_scenario() -> None:
    titles = {scenario.title for scenario in scenarios()}
    assert {target.scenario for target in TARGETS} <= titles
