"""Trial of a value: its metrics, its begin and its end.

A trial begins only when its guard can compare: the operator has observed the server before. It ends by its time, by a
restart or a change of the primary, by a restart of the operator, or when a metric is worse. The end is recorded next
to the settings, by the request that restores the previous value.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Any, cast

from steersman_databases.api.autopilot.tuning import TuningTrial, VerdictKind
from steersman_databases.engines.parameter_trial import ParameterTrial
from steersman_databases.features.parameters.changes import RECORD_KEY, TRIAL_KEY
from steersman_databases.features.tuning.verdict import MIN_VALUES, Verdict, compare, guard_length
from steersman_databases.features.tuning.window import Period, Sample, periods_of

MIN_COMMITS = 60
"""Commits in a period from which on a metric per transaction counts."""
_MAX_BEFORE = 24
_MAX_GAP = timedelta(minutes=15)
_LEAST_SLOWDOWN = 0.3
_MAX_DURING = 1024
"""Samples of one trial."""
WINDOW = timedelta(hours=24)
"""Time for which samples are kept without a trial."""
_UNITS: Mapping[str, int] = {"kB": 1 << 10, "MB": 1 << 20, "GB": 1 << 30}


@dataclass(frozen=True, slots=True)
class Metric:
    """A metric per transaction. Less is better.

    Attributes:
        counter: figure whose increase counts. "" if it is a gauge.
        gauge: figure whose rise counts.
        least_effect: smallest relative change that counts.
    """

    name: str
    counter: str = ""
    gauge: str = ""
    least_effect: float = 0.1

    def values(self, periods: Sequence[Period]) -> Sequence[float]:
        """Return the values of the periods with enough commits."""
        busy = [period for period in periods if period.increase("commits") >= MIN_COMMITS]
        return [self._amount(period) / period.increase("commits") for period in busy]

    def _amount(self, period: Period) -> float:
        return period.increase(self.counter) if self.counter else period.rise(self.gauge)


OBJECTIVES: Mapping[str, Metric] = {
    "autovacuum_vacuum_cost_limit": Metric("the growth of dead rows per transaction", gauge="dead_rows"),
    "bgwriter_lru_maxpages": Metric("blocks written by sessions per transaction", counter="session_blocks"),
    "max_wal_size": Metric("WAL bytes per transaction", counter="wal_bytes"),
    "work_mem": Metric("bytes in temporary files per transaction", counter="temporary_bytes"),
}
"""The metric that a parameter should improve."""
GUARD = Metric("seconds of active sessions per transaction", counter="active_seconds", least_effect=_LEAST_SLOWDOWN)
"""The metric that no trial may worsen."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """Periods before and during a trial, on one server."""

    before: Sequence[Period]
    during: Sequence[Period]


@dataclass(frozen=True, slots=True)
class TrialStep:
    """Decision about a declared trial.

    Without `trial` it waits, and `message` has the cause.
    """

    trial: ParameterTrial | None
    verdict: VerdictKind | None
    message: str


def recorded_trial(settings: Mapping[str, Any] | None) -> ParameterTrial | None:
    """Return the trial in the settings of the members."""
    record = (settings or {}).get(RECORD_KEY)
    return ParameterTrial.from_record(cast(Mapping[str, Any], record or {}).get(TRIAL_KEY))


def collect(samples: Sequence[Sample], trial: ParameterTrial) -> Evidence:
    """Divide the periods by the reported value of the parameter."""
    tried = [_is_tried(sample, trial) for sample in samples]
    servers = {sample.server for sample in samples[-1:]}
    values = {id(sample): is_tried for sample, is_tried in zip(samples, tried, strict=True)}
    periods = [period for period in periods_of(samples) if period.end.server in servers]
    before = [p for p in periods if not values[id(p.start)] and not values[id(p.end)]]
    during = [p for p in periods if values[id(p.start)] and values[id(p.end)]]
    return Evidence(before[-_MAX_BEFORE:], during)


def retained(samples: Sequence[Sample], trial: ParameterTrial | None, now: datetime) -> Sequence[Sample]:
    """Return the samples to keep.

    Those before a trial stay, however long it takes. Of a long trial every other sample is dropped.
    """
    tried = [] if trial is None else [sample for sample in samples if _is_tried(sample, trial)]
    if not tried:
        return [sample for sample in samples if now - sample.at <= WINDOW]
    dropped = {id(sample) for sample in tried[-2::-2]} if len(tried) > _MAX_DURING else set[int]()
    return [sample for sample in samples if id(sample) not in dropped]


def _is_tried(sample: Sample, trial: ParameterTrial) -> bool:
    return sample.gauges.get(trial.parameter) == base_value(trial.value)


def interruption(samples: Sequence[Sample], trial: ParameterTrial, now: datetime) -> str:
    """Return why nothing can be compared any more, or ""."""
    if not samples:
        return "the operator restarted"
    if now - samples[-1].at > _MAX_GAP:
        return f"the metrics of the primary were unreachable since {samples[-1].at:%H:%M} UTC"
    objective = OBJECTIVES[trial.parameter]
    if len(objective.values(collect(samples, trial).before)) < MIN_VALUES:
        before = not all(_is_tried(sample, trial) for sample in samples)
        return "the primary restarted or changed" if before else "the operator restarted"
    if any(_is_reset(start, end) for start, end in pairwise(samples[-2:])):
        return "the statistics were reset, by a crash of the server or a user"
    return ""


def _is_reset(start: Sample, end: Sample) -> bool:
    return start.server == end.server and any(end.counters.get(n, v) < v for n, v in start.counters.items())


def judge(parameter: str, evidence: Evidence, *, is_running: bool) -> tuple[VerdictKind, str]:
    """Return the verdict about a trial, and the measurements.

    One worse metric is enough for Worse.

    Args:
        is_running: compare at few moments only, since each comparison may be wrong by chance.
    """
    found = list[tuple[Metric, Verdict]]()
    for metric in (OBJECTIVES[parameter], GUARD):
        during = metric.values(evidence.during)
        during = during[: guard_length(len(during))] if is_running else during
        found.append((metric, compare(metric.values(evidence.before), during, least_effect=metric.least_effect)))
    worse = [each for each in found if each[1].kind == "Worse"]
    metric, verdict = worse[0] if worse else found[0]
    return verdict.kind, describe(metric, verdict)


def describe(metric: Metric, verdict: Verdict) -> str:
    """Return a sentence about a comparison."""
    if verdict.reason:
        return f"{metric.name}: {verdict.reason}"
    before, during = _format(verdict.before), _format(verdict.during)
    values = f"{metric.name}: {before} before the trial, {during} during it"
    return f"{values} ({verdict.change:+.0%}, interval {verdict.low:+.0%} to {verdict.high:+.0%})"


def _format(value: float) -> str:
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"


def next_step(
    declared: TuningTrial,
    recorded: ParameterTrial | None,
    samples: Sequence[Sample],
    now: datetime,
    *,
    former: str | None,
) -> TrialStep:
    """Return the trial to record with the settings.

    Args:
        recorded: the trial in the settings of the members.
        samples: observed samples, in the order of time.
        former: value of the parameter without the trial.
    """
    trial = ParameterTrial(parameter=declared.parameter, value=declared.value, until=declared.until, former=former)
    has_begun = recorded is not None and recorded.is_same(trial)
    if recorded is not None and has_begun and recorded.verdict is not None:
        return TrialStep(recorded, recorded.verdict, recorded.message)
    if not has_begun:
        return _begin(trial, samples, now)
    trial = replace(trial, former=recorded.former if recorded is not None else former)
    if cause := interruption(samples, trial, now):
        return _ended(trial, "Unclear", f"{cause}, so nothing can be compared")
    is_over = now >= trial.until
    kind, message = judge(trial.parameter, collect(samples, trial), is_running=not is_over)
    if is_over:
        return _ended(trial, kind, f"the time of the trial is over. {message}")
    return _ended(trial, kind, message) if kind == "Worse" else TrialStep(trial, kind, message)


def _begin(trial: ParameterTrial, samples: Sequence[Sample], now: datetime) -> TrialStep:
    """Begin, or return why the trial waits."""
    if now >= trial.until:
        return _ended(trial, "Unclear", "its time was over before it could begin")
    if not samples or now - samples[-1].at > _MAX_GAP:
        return TrialStep(None, None, "the primary does not report its metrics")
    if _is_tried(samples[-1], trial):
        return TrialStep(None, None, f"{trial.parameter} is {trial.value} already")
    before = collect(samples, trial).before
    if (known := len(OBJECTIVES[trial.parameter].values(before))) < MIN_VALUES:
        rule = f"{known} of {MIN_VALUES} periods with at least {MIN_COMMITS} commits are observed"
        return TrialStep(None, None, f"the trial begins when there is something to compare: {rule}")
    return TrialStep(trial, None, "the trial begins")


def _ended(trial: ParameterTrial, verdict: VerdictKind, message: str) -> TrialStep:
    return TrialStep(replace(trial, verdict=verdict, message=message), verdict, message)


def base_value(value: str) -> float:
    """Return a declared value in bytes, or as a number."""
    digits = value.rstrip("kMGB")
    return float(digits) * _UNITS.get(value[len(digits) :], 1)
