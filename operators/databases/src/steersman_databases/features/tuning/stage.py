"""Stage of tuning: observe the primary, recommend, and guard a trial.

The samples are in memory only. A restart of the operator begins the observation again, and ends a running trial.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any, cast

from steersman.meta import ObjectKey, Quantity
from steersman.observability.runtime import Clock
from steersman_databases.api import Cluster, PostgreSQLCluster
from steersman_databases.api.autopilot.automation import AutomationMode, AutomationStatus, limited_mode
from steersman_databases.api.autopilot.tuning import (
    RecommendationStatus,
    TrialStatus,
    TuningMode,
    TuningStatus,
    TuningTrial,
)
from steersman_databases.cluster.state import ClusterState
from steersman_databases.core.context import ClusterContext
from steersman_databases.engines.cluster_engine import ClusterEngine, DeclaredCluster
from steersman_databases.engines.errors import ServerUnreachable
from steersman_databases.engines.parameter_trial import ParameterTrial
from steersman_databases.engines.server import ServerEndpoint
from steersman_databases.engines.server_pod import METRICS_PORT
from steersman_databases.features.parameters.model import stored_parameters
from steersman_databases.features.tuning import figures, mysql_rules, postgresql_rules
from steersman_databases.features.tuning.figures import GetMetrics
from steersman_databases.features.tuning.rules import MIN_OBSERVED_SECONDS, Limits, Recommendation, recommend
from steersman_databases.features.tuning.trial import WINDOW, TrialStep, next_step, recorded_trial, retained
from steersman_databases.features.tuning.window import Sample, Window, periods_of

_INTERVAL = timedelta(minutes=5)
_TRIAL_INTERVAL = timedelta(minutes=1)
_LONG_TRIAL_SAMPLES = 384
"""Samples of a trial at the short interval. Later ones have the usual interval."""


@dataclass(slots=True)
class _Observed:
    samples: list[Sample] = field(default_factory=list[Sample])
    attempted_at: datetime | None = None
    problem: str = ""
    step: TrialStep | None = None

    @property
    def running(self) -> ParameterTrial | None:
        """The trial that has begun and not ended."""
        trial = None if self.step is None else self.step.trial
        return None if trial is None or trial.verdict else trial


def tuning_mode(cluster: Cluster, limit: AutomationMode) -> TuningMode | None:
    """Return the effective mode, or None without `spec.tuning`."""
    settings = cluster.spec.tuning
    if settings is None:
        return None
    return "Disabled" if limited_mode(settings.mode, limit) == "Disabled" else "Recommend"


class TuningReconciler:
    """Observes the primaries of all clusters. There is one for each controller.

    Args:
        get_metrics: requests the metrics of an instance. With None nothing is observed.
        limit: most that automatic functions may do in this installation.
    """

    def __init__(
        self, engine: ClusterEngine, clock: Clock, get_metrics: GetMetrics | None, limit: AutomationMode
    ) -> None:
        self._engine, self._clock, self._get_metrics = engine, clock, get_metrics
        self._limit: AutomationMode = limit
        self._clusters: dict[ObjectKey, _Observed] = {}

    def forget(self, cluster: ObjectKey) -> None:
        """Drop the samples of a deleted cluster."""
        self._clusters.pop(cluster, None)

    def with_trial(self, declared: DeclaredCluster, cluster: Cluster, state: ClusterState) -> DeclaredCluster:
        """Return the cluster with the tried value and its record."""
        trial = _trial_of(cluster)
        observed = self._clusters.setdefault(declared.key, _Observed())
        observed.step = None
        if trial is None or tuning_mode(cluster, self._limit) != "Recommend":
            return declared
        settings = state.members.settings
        observed.step = step = next_step(
            trial,
            recorded_trial(settings),
            observed.samples,
            state.now,
            former=self._value(declared, trial.parameter),
        )
        if step.trial is None:
            return declared
        declared = replace(declared, trial=step.trial)
        if step.trial.verdict is not None:
            return declared
        return replace(declared, parameters={**declared.parameters, trial.parameter: trial.value})

    def _value(self, declared: DeclaredCluster, parameter: str) -> str | None:
        """Return the value that the members' configuration has without a trial."""
        configuration = cast(dict[str, Any], self._engine.shared_configuration(declared))
        return stored_parameters(declared, configuration).get(parameter)

    async def observe(
        self, context: ClusterContext, cluster: Cluster, state: ClusterState, authorities: str
    ) -> tuple[TuningStatus | None, AutomationStatus | None]:
        """Take a sample if one is due, and return the statuses. Both are None without `spec.tuning`."""
        key, mode = context.declared.key, tuning_mode(cluster, self._limit)
        if mode != "Recommend" or self._get_metrics is None:
            self.forget(key)
            return (None, None) if mode is None else (None, _disabled(cluster))
        observed = self._clusters.setdefault(key, _Observed())
        if self._is_due(observed, state.now):
            observed.attempted_at = state.now
            observed.problem = await self._sample(self._get_metrics, observed, state, authorities)
        status = _status(cluster, observed, self._recommendations(observed, context.declared))
        _emit_change(context, cluster, status.trial)
        return status, _automation(status, observed, _trial_of(cluster))

    def _is_due(self, observed: _Observed, now: datetime) -> bool:
        if observed.attempted_at is None:
            return True
        is_long = len(observed.samples) >= _LONG_TRIAL_SAMPLES + WINDOW // _INTERVAL
        is_short = observed.running is not None and not is_long
        return now - observed.attempted_at >= (_TRIAL_INTERVAL if is_short or observed.problem else _INTERVAL)

    async def _sample(
        self, get_metrics: GetMetrics, observed: _Observed, state: ClusterState, authorities: str
    ) -> str:
        """Add a sample of the primary. Return why there is none, or ""."""
        primary = state.primary
        if primary is None or primary.pod is None or not primary.pod.status.pod_ip:
            return "there is no primary"
        endpoint = ServerEndpoint(primary.pod.status.pod_ip, METRICS_PORT)
        known = figures.MYSQL if self._engine.name == "mysql" else figures.POSTGRESQL
        try:
            text = await get_metrics(endpoint, authorities)
            sample = figures.parse_sample(text, primary.pod.metadata.uid, state.now, known)
        except (ServerUnreachable, ValueError) as error:
            return str(error)
        if sample is None:
            return "the primary does not report that it is the primary"
        observed.samples = [*retained([*observed.samples, sample], observed.running, sample.at)]
        return ""

    def _recommendations(self, observed: _Observed, declared: DeclaredCluster) -> Sequence[Recommendation] | None:
        """Return the recommendations, or None if too little is observed."""
        periods = periods_of(observed.samples)
        if sum(period.seconds for period in periods) < MIN_OBSERVED_SECONDS:
            return None
        rules = mysql_rules.RULES if self._engine.name == "mysql" else postgresql_rules.RULES
        return list(recommend(Window(periods), Limits(_memory(declared)), rules))


def _trial_of(cluster: Cluster) -> TuningTrial | None:
    settings = cluster.spec.tuning if isinstance(cluster, PostgreSQLCluster) else None
    return None if settings is None else settings.trial


def _memory(declared: DeclaredCluster) -> int | None:
    limit = declared.pod_settings.resources.limits.get("memory")
    return None if limit is None else int(Decimal(Quantity(str(limit)).value))


def _status(cluster: Cluster, observed: _Observed, found: Sequence[Recommendation] | None) -> TuningStatus:
    previous = cluster.status.tuning
    kept = () if previous is None else previous.recommendations
    shown = kept if found is None else tuple(map(_recommendation_status, found))
    since = observed.samples[0].at if observed.samples else None
    trial, step = _trial_of(cluster), observed.step
    return TuningStatus(
        observed_since=since,
        recommendations=shown,
        trial=None if trial is None or step is None else _trial_status(trial, step),
    )


def _recommendation_status(found: Recommendation) -> RecommendationStatus:
    return RecommendationStatus(
        parameter=found.parameter,
        rule=found.rule,
        current=found.current,
        value=found.value,
        evidence=found.evidence,
        effect=found.effect,
        restart=found.restart,
    )


def _trial_status(trial: TuningTrial, step: TrialStep) -> TrialStatus:
    ended = step.trial is not None and step.trial.verdict is not None
    return TrialStatus(
        parameter=trial.parameter,
        value=trial.value,
        state="Waiting" if step.trial is None else "Ended" if ended else "Running",
        verdict=step.verdict,
        message=step.message,
    )


def _emit_change(context: ClusterContext, cluster: Cluster, trial: TrialStatus | None) -> None:
    """Emit an Event if a trial has begun or ended."""
    previous = None if cluster.status.tuning is None else cluster.status.tuning.trial
    is_same = previous is not None and trial is not None and previous.state == trial.state
    if trial is None or trial.state == "Waiting" or is_same:
        return
    name = f"trial of {trial.parameter} = {trial.value}"
    if trial.state == "Running":
        context.events.normal(cluster, "TrialStarted", f"{name} started")
    else:
        context.events.normal(
            cluster, "TrialEnded", f"{name} ended with the verdict {trial.verdict}: {trial.message}"
        )


def _disabled(cluster: Cluster) -> AutomationStatus:
    declared = cluster.spec.tuning is not None and cluster.spec.tuning.mode == "Disabled"
    message = f"disabled by {'tuning.mode' if declared else 'the flag --automation of the operator'}"
    return AutomationStatus(name="Tuning", mode="Disabled", decision="Disabled", message=message)


def _automation(status: TuningStatus, observed: _Observed, trial: TuningTrial | None) -> AutomationStatus:
    """Return the summary of the status. A trial is more important than recommendations."""
    if status.trial is not None and trial is not None:
        return _entry(
            f"Trial{status.trial.state}",
            f"trial of {trial.parameter} = {trial.value}: {status.trial.state}",
            evidence=status.trial.message,
            next_action_time=trial.until if status.trial.state == "Running" else None,
        )
    if observed.problem:
        return _entry("Unobserved", f"the primary cannot be observed: {observed.problem}")
    if status.recommendations:
        listed = ", ".join(f"{each.parameter} = {each.value}" for each in status.recommendations)
        return _entry("Recommended", f"recommended: {listed}", evidence=status.recommendations[0].evidence)
    if not _is_observed(observed):
        return _entry("Observing", "recommendations follow after one hour")
    return _entry("Idle", "no parameter needs another value")


def _entry(
    decision: str, message: str, *, evidence: str | None = None, next_action_time: datetime | None = None
) -> AutomationStatus:
    return AutomationStatus(
        name="Tuning",
        mode="Recommend",
        decision=decision,
        message=message,
        evidence=evidence,
        next_action_time=next_action_time,
    )


def _is_observed(observed: _Observed) -> bool:
    return sum(period.seconds for period in periods_of(observed.samples)) >= MIN_OBSERVED_SECONDS
