"""Performance targets of Steersman and their evaluation."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from benchmarks.peers import BASELINE, FRAMEWORK, PEERS
from benchmarks.scenarios.catalogue import (
    IDLE,
    PODS,
    RESTART,
    SIZES,
    STEADY,
    WITH_EVENTS,
    cold_start_title,
    pods_title,
)
from benchmarks.summary import Summary

_STEERSMAN_PEERS = tuple(peer.name for peer in PEERS if peer.package == FRAMEWORK)


@dataclass(frozen=True, slots=True)
class Target:
    """A limit for a metric.

    Attributes:
        limit: in the metric's unit. With ``relative``, a multiple of controller-runtime's value.
        at_least: True for a minimum, False for a maximum.
        worst: True if every run must meet the limit. Defaults to the median.
        peers: peers that the target applies to.
    """

    scenario: str
    metric: str
    limit: float
    relative: bool = False
    at_least: bool = False
    worst: bool = False
    peers: tuple[str, ...] = _STEERSMAN_PEERS

    def value(self, summary: Summary) -> float:
        """Return the value to compare with the limit."""
        if not self.worst:
            return summary.median
        return summary.low if self.at_least else summary.high


@dataclass(frozen=True, slots=True)
class TargetResult:
    """A target's result for one peer; ``limit`` is in the metric's unit."""

    target: Target
    peer: str
    value: float
    limit: float
    unit: str

    @property
    def met(self) -> bool:
        """True if the value is within the limit."""
        return self.value >= self.limit if self.target.at_least else self.value <= self.limit


_COLD_STARTS = (*(cold_start_title(n) for n in SIZES), cold_start_title(WITH_EVENTS, events=True))

TARGETS = (
    *(Target(title, "objects per second", 1.0, relative=True, at_least=True) for title in _COLD_STARTS),
    *(Target(title, "CPU per object", 1.0, relative=True) for title in _COLD_STARTS),
    Target(cold_start_title(SIZES[-1]), "peak RSS", 1.2, relative=True),
    Target(STEADY, "latency p99", 1.5, relative=True),
    Target(pods_title(PODS), "memory per pod", 15.0),
    Target(pods_title(PODS), "RSS after churn", 1.5 * 1024),
    Target(pods_title(PODS), "longest pause after churn", 20.0),
    Target(RESTART, "writes", 0.0),
    Target(IDLE, "import", 120.0),
    Target(IDLE, "idle RSS", 45.0),
)


def evaluate(summaries: Iterable[Summary], targets: Sequence[Target] = TARGETS) -> list[TargetResult]:
    """Compare the summaries with the targets. Unmeasured targets are skipped."""
    outcomes = {(s.scenario, s.metric, s.peer): s for s in summaries}
    results: list[TargetResult] = []
    for target in targets:
        baseline = outcomes.get((target.scenario, target.metric, BASELINE.name))
        for peer in target.peers:
            ours = outcomes.get((target.scenario, target.metric, peer))
            if ours is None or (target.relative and baseline is None):
                continue
            limit = target.limit * baseline.median if target.relative and baseline else target.limit
            results.append(TargetResult(target, peer, target.value(ours), limit, ours.unit))
    return results
