"""Recommendations, limits and formats of all rules."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from steersman_databases.features.tuning.window import Period, Window

MIN_OBSERVED_SECONDS = 3600.0
"""Observed time from which on there are recommendations."""
KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
OFTEN = 0.25
"""Part of the observed time that counts as often."""
FACTOR = 2
"""Largest step of a recommendation. The next one follows from new evidence."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of an instance.

    Attributes:
        memory: memory limit in bytes, or None.
    """

    memory: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Recommendation:
    """A value for a parameter.

    Attributes:
        rule: name of the rule.
        current: present value.
        evidence: measurements that the recommendation rests on.
        effect: expected effect, and its cost.
        restart: the value takes effect after a restart of the servers.
    """

    rule: str
    parameter: str
    current: str
    value: str
    evidence: str
    effect: str
    restart: bool = False


RuleFunction = Callable[[Window, Limits], Recommendation | None]


def recommend(window: Window, limits: Limits, rules: Iterable[RuleFunction]) -> Iterator[Recommendation]:
    """Yield the recommendations of all rules."""
    for rule in rules:
        if (found := rule(window, limits)) is not None:
            yield found


def raised(current: float, bound: float) -> float | None:
    """Return twice the current value, at most the bound.

    None if that is hardly more.
    """
    value = min(current * FACTOR, bound)
    return value if current > 0 and value >= 1.25 * current else None


def rises(counter: str, by: float = 0.0) -> Callable[[Period], bool]:
    """Return the condition that a counter rises by more than ``by``."""
    return lambda period: period.increase(counter) > by


def format_hours(window: Window, condition: Callable[[Period], bool]) -> str:
    """Return the observed hours with the condition as text."""
    return f"{window.hours_with(condition)} of {window.hours} hours"


def format_bytes(size: float) -> str:
    """Return a size in units of PostgreSQL.

    Sizes that are not whole GB are rounded down to MB or kB.
    """
    whole = int(size)
    if whole >= GIB and whole % GIB == 0:
        return f"{whole // GIB}GB"
    return f"{whole // MIB}MB" if whole >= MIB else f"{whole // KIB}kB"
