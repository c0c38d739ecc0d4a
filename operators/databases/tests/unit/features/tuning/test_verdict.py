"""Verdicts about generated series: noisy, correlated in time, with spikes and drift."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from random import Random

import pytest

from steersman_databases.features.tuning.verdict import compare, guard_length

SERIES = 1000
FACTORS = {"improves": (0.4, 0.75), "worsens": (1.3, 2.5), "no effect": (1.0, 1.0), "one spike": (1.0, 1.0)}
RIGHT = {
    "improves": {"Better", "Unclear"},
    "worsens": {"Worse", "Unclear"},
    "no effect": {"NoEffect", "Unclear"},
    "one spike": {"NoEffect", "Unclear"},
}
LEAST_CLEAR = {"improves": 0.8, "worsens": 0.8, "no effect": 0.5, "one spike": 0.3}


def noisy(random: Random, number: int, level: float, noise: float, correlation: float) -> list[float]:
    """A series around a level. Each deviation resembles the one before."""
    deviation, found = random.gauss(0, noise), list[float]()
    for _ in range(number):
        deviation = correlation * deviation + math.sqrt(1 - correlation**2) * random.gauss(0, noise)
        found.append(level * math.exp(deviation))
    return found


def generated(random: Random, kind: str) -> tuple[Sequence[float], Sequence[float]]:
    """A series before and one during a trial, of any length and noise that occur."""
    level, noise, correlation = 10 ** random.uniform(-3, 6), random.uniform(0.02, 0.2), random.uniform(0, 0.6)
    before = noisy(random, random.randint(12, 24), level, noise, correlation)
    factor = random.uniform(*FACTORS[kind])
    during = noisy(random, random.choice([12, 24, 48, 96, 120]), level * factor, noise, correlation)
    if kind == "one spike":
        spoiled = random.choice([before, during])
        first = random.randrange(len(spoiled))
        for at in range(first, min(first + random.randint(1, 3), len(spoiled))):
            spoiled[at] *= random.uniform(3, 30)
    return before, during


@pytest.mark.parametrize("kind", FACTORS)
def test_thousand_generated_series_have_no_wrong_verdict(kind: str) -> None:
    random = Random(f"tuning {kind}")
    found = Counter(compare(*generated(random, kind)).kind for _ in range(SERIES))
    assert found.keys() <= RIGHT[kind]
    assert 1 - found["Unclear"] / SERIES >= LEAST_CLEAR[kind]


def test_metric_that_drifts_by_itself_is_unclear() -> None:
    drifting = [100 * 1.02**at for at in range(60)]
    assert compare(drifting[:24], drifting[24:]).reason == "the metric rises or falls by itself"


@pytest.mark.parametrize(
    ("before", "during", "reason"),
    [
        ([1.0] * 11, [1.0] * 30, "11 values before the trial and 30 during it; at least 12 of each are required"),
        ([1.0] * 30, [], "30 values before the trial and 0 during it; at least 12 of each are required"),
        ([0.0] * 12, [1.0] * 12, "the metric was 0 before the trial"),
    ],
)
def test_series_that_cannot_be_compared_are_unclear(before: list[float], during: list[float], reason: str) -> None:
    verdict = compare(before, during)
    assert (verdict.kind, verdict.reason) == ("Unclear", reason)


def test_effect_below_the_least_one_is_no_effect() -> None:
    assert compare([100.0] * 12, [92.0] * 12).kind == "NoEffect"
    assert compare([100.0] * 12, [125.0] * 12, least_effect=0.3).kind == "NoEffect"
    assert compare([100.0] * 12, [125.0] * 12).kind == "Worse"


@pytest.mark.parametrize(("values", "length"), [(5, 5), (12, 12), (23, 12), (24, 24), (200, 192)])
def test_running_trial_is_judged_at_few_moments(values: int, length: int) -> None:
    assert guard_length(values) == length
