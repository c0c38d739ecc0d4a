"""Recommendations for parameters, and trials of a value."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal

from steersman.meta import Field, FrozenStruct, Rule, schema

TuningMode = Literal["Disabled", "Recommend"]
TrialParameter = Literal["autovacuum_vacuum_cost_limit", "bgwriter_lru_maxpages", "max_wal_size", "work_mem"]
"""Parameters for trials.

A reload changes them, and no value endangers the data.
"""
TrialState = Literal["Waiting", "Running", "Ended"]
VerdictKind = Literal["Better", "Worse", "NoEffect", "Unclear"]


class TuningSettings(FrozenStruct):
    """Recommendations for parameters, from statistics of the primary."""

    mode: TuningMode = "Recommend"
    """Recommend shows recommendations in ``status.tuning``. Disabled observes nothing, and ends a trial."""


@schema(
    rules=[
        Rule(
            rule="self.parameter in ['max_wal_size', 'work_mem'] ? self.value.matches('^[1-9][0-9]{0,6}(kB|MB|GB)$')"
            " : self.value.matches('^[1-9][0-9]{0,4}$')",
            message="the value is a number, for max_wal_size and work_mem with the unit kB, MB or GB, such as 64MB",
            field_path=".value",
        ),
    ]
)
class TuningTrial(FrozenStruct):
    """A value of a parameter for some time. It overrides the declared value, and no server restarts."""

    parameter: TrialParameter
    """Parameter to try."""
    value: Annotated[str, Field(min_length=1, max_length=16)]
    """Value to try, such as 2GB."""
    until: datetime
    """End of the trial. The previous value returns then, or earlier if a metric is worse. To keep the value, declare
    it in ``spec.postgresql.parameters`` and remove the trial."""


class PostgreSQLTuningSettings(TuningSettings):
    """Recommendations for parameters, from statistics of the primary, and a trial."""

    trial: TuningTrial | None = None
    """A value to try on the servers."""


class RecommendationStatus(FrozenStruct):
    """A recommended value."""

    parameter: str
    """Name of the parameter."""
    rule: str
    """Rule that the recommendation follows from."""
    current: str
    """Present value."""
    value: str
    """Recommended value."""
    evidence: str
    """Measurements that the recommendation rests on."""
    effect: str
    """Expected effect, and its cost."""
    restart: bool
    """The value takes effect after a restart of the servers. Then a trial is not possible."""


class TrialStatus(FrozenStruct):
    """The declared trial."""

    parameter: str
    """Parameter to try."""
    value: str
    """Value to try."""
    state: TrialState
    """State of the trial.

    It is Waiting (for measurements before the trial), Running, or Ended (the previous value is back).
    """
    verdict: VerdictKind | None = None
    """Better, Worse, NoEffect or Unclear, by the measurements so far."""
    message: str
    """Measurements, or the cause of the state."""


class TuningStatus(FrozenStruct):
    """Recommendations, and the declared trial."""

    observed_since: datetime | None = None
    """Begin of the observation, at most 24 hours ago. A restart of the operator begins it again."""
    recommendations: Annotated[
        tuple[RecommendationStatus, ...], Field(list_map_keys=("parameter",), max_items=16)
    ] = ()
    """Recommended values. Those of an earlier observation stay until one hour is observed."""
    trial: TrialStatus | None = None
    """The declared trial."""
