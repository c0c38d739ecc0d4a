"""Verdict about a trial: a metric before and during it.

Both series are reduced to blocks by their medians. So neighbouring values that resemble each other count once, and a
spike spoils one block at most. All pairs of blocks are compared. The interval of their differences is that of the
Mann-Whitney test, which assumes no distribution.

Source: Hollander, Wolfe and Chicken, "Nonparametric Statistical Methods", 4.3 (Moses interval).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median
from typing import NamedTuple

from steersman_databases.api.autopilot.tuning import VerdictKind

MIN_VALUES = 12
"""Values of each series for a verdict."""
_BLOCKS = 12
_EFFECT_SIGMAS = 4.1  # about one wrong effect in 20,000 comparisons without an effect
_NO_EFFECT_SIGMAS = 2.6  # 99 %
_TREND_SIGMAS = 2.5
_NEGLIGIBLE = 0.15


@dataclass(frozen=True, slots=True)
class Verdict:
    """Result of a comparison.

    Attributes:
        change: typical relative change. -0.3 means 30 % less than before.
        low: lower end of the interval of the change.
        high: upper end of the interval.
        before: median before the trial.
        during: median during the trial.
        reason: why no comparison is possible.
    """

    kind: VerdictKind
    change: float = 0.0
    low: float = -math.inf
    high: float = math.inf
    before: float = 0.0
    during: float = 0.0
    reason: str = ""


def compare(before: Sequence[float], during: Sequence[float], *, least_effect: float = 0.1) -> Verdict:
    """Compare a metric. Less is better.

    Args:
        before: values in the order of time, without the trial.
        during: values with the trial.
        least_effect: relative change below which nothing is better or worse.
    """
    if min(len(before), len(during)) < MIN_VALUES:
        shown = f"{len(before)} values before the trial and {len(during)} during it"
        return Verdict("Unclear", reason=f"{shown}; at least {MIN_VALUES} of each are required")
    scale = median(before)
    if scale <= 0:
        return Verdict("Unclear", during=median(during), reason="the metric was 0 before the trial")
    earlier, later = blocks(before), blocks(during)
    if any(_has_trend(each, scale, least_effect) for each in (earlier, later)):
        return Verdict("Unclear", before=scale, during=median(during), reason="the metric rises or falls by itself")
    effect = _interval(earlier, later, scale, sigmas=_EFFECT_SIGMAS)
    rest = _interval(earlier, later, scale, sigmas=_NO_EFFECT_SIGMAS)
    kind = _kind(effect, rest, least_effect)
    return Verdict(kind, effect.change, effect.low, effect.high, scale, median(during))


def guard_length(values: int) -> int:
    """Return the number of values to judge a running trial by.

    It is 12, 24, 48 and so on. Each comparison may be wrong by chance, so a long trial must not have many of them.
    """
    length = MIN_VALUES
    while length * 2 <= values:
        length *= 2
    return min(length, values)


def blocks(values: Sequence[float], number: int = _BLOCKS) -> Sequence[float]:
    """Return the medians of consecutive blocks of nearly equal length."""
    edges = [len(values) * i // number for i in range(number + 1)]
    return [median(values[start:end]) for start, end in pairwise(edges)]


class _Interval(NamedTuple):
    """Typical relative change, and the ends of its interval."""

    change: float
    low: float
    high: float

    def shows_effect(self, least: float) -> bool:
        return abs(self.change) >= least and (self.low > 0 or self.high < 0)


def _kind(effect: _Interval, rest: _Interval, least_effect: float) -> VerdictKind:
    if effect.shows_effect(least_effect):
        return "Better" if effect.change < 0 else "Worse"
    bound = max(_NEGLIGIBLE, least_effect)
    is_small = abs(rest.change) < least_effect and rest.low > -bound and rest.high < bound
    return "NoEffect" if is_small else "Unclear"


def _has_trend(values: Sequence[float], scale: float, least_effect: float) -> bool:
    half = len(values) // 2
    return _interval(values[:half], values[half:], scale, sigmas=_TREND_SIGMAS).shows_effect(least_effect)


def _interval(before: Sequence[float], during: Sequence[float], scale: float, *, sigmas: float) -> _Interval:
    """Compare all pairs. The ends of the interval leave out as many pairs as the test allows."""
    differences = sorted((later - earlier) / scale for earlier in before for later in during)
    pairs = len(differences)
    deviation = math.sqrt(pairs * (len(before) + len(during) + 1) / 12)
    skipped = max(int(pairs / 2 - sigmas * deviation), 0)
    return _Interval(median(differences), differences[skipped], differences[pairs - 1 - skipped])
