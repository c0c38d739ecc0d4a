"""Crash loops, and the changes before them. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, cast

from steersman_databases.cluster.state import ClusterState, Instance
from steersman_databases.engines.annotation_io import as_mapping
from steersman_databases.engines.cluster_engine import DeclaredCluster
from steersman_databases.engines.members import MAX_CRASHES
from steersman_databases.engines.server_pod import server_statuses
from steersman_databases.features.parameters.changes import RECORD_KEY
from steersman_databases.features.parameters.model import (
    ParameterTrials,
    RevertedParameter,
    stored_parameters,
    validated_parameters,
)

LEAST_CRASHES = 3
_LEAST_CRASHES_OF_ONE = 2
"""Least crashes of one server. An outage of all nodes ends each server once."""
MAX_INTERVAL = timedelta(minutes=10)
"""Longest time between two crashes of one loop."""
SUSPECT_TIME = timedelta(minutes=30)
"""Longest time from the change of a suspect to the first crash."""
_LAST_CHANGE_TIME = timedelta(days=1)
_CHANGED = "changed"


@dataclass(frozen=True, slots=True, kw_only=True)
class CrashLoop:
    """Crashes of a cluster's servers in close succession.

    Attributes:
        times: the oldest first.
        instances: names of the instances whose servers have crashed.
        cause: why the last container ended, in the terms of Kubernetes, or "".
        begins_here: no earlier crash belongs to the loop. False if pods no longer report the first one.
    """

    times: Sequence[datetime]
    instances: Sequence[str]
    cause: str = ""
    begins_here: bool = True

    @property
    def description(self) -> str:
        """Sentence about the crashes."""
        cause = f" ({self.cause})" if self.cause else ""
        return (
            f"the servers of {', '.join(self.instances)} crashed {len(self.times)} times since "
            f"{self.times[0]:%Y-%m-%d %H:%M:%S} UTC{cause}"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangedParameter:
    """A parameter that was changed recently. `previous` is empty if it was not set before."""

    name: str
    value: str
    previous: str
    at: datetime


def find_crash_loop(cluster: DeclaredCluster, state: ClusterState) -> CrashLoop | None:
    """Return the crash loop that the servers are in, or None."""
    crashes = sorted((time, i.ordinal) for i in state.instances for time in _crashes(i) if time <= state.now)
    loop: list[tuple[datetime, int]] = []
    later = state.now
    for time, ordinal in reversed(crashes):
        if later - time > MAX_INTERVAL:
            break
        loop.insert(0, (time, ordinal))
        later = time
    by_instance = Counter(ordinal for _, ordinal in loop)
    if len(loop) < LEAST_CRASHES or max(by_instance.values()) < _LEAST_CRASHES_OF_ONE:
        return None
    first, ordinals = loop[0][0], sorted(by_instance)
    crashed = [i for i in state.instances if i.ordinal in ordinals]
    return CrashLoop(
        times=[time for time, _ in loop],
        instances=[cluster.names.instance(ordinal) for ordinal in ordinals],
        cause=next((cause for i in crashed if (cause := _cause(i))), ""),
        begins_here=not any(len(times := _crashes(i)) >= MAX_CRASHES and times[0] >= first for i in crashed),
    )


def suspects(cluster: DeclaredCluster, state: ClusterState, loop: CrashLoop | None) -> Sequence[ChangedParameter]:
    """Return the parameters that may have caused the crashes.

    They were changed shortly before the first crash and are still declared. A change during the loop may be an
    attempt to end it.
    """
    if loop is None or not loop.begins_here:
        return ()
    declared, first = validated_parameters(cluster), loop.times[0]
    return [
        one
        for one in recorded_changes(state.members.settings or {})
        if declared.get(one.name) == one.value and one.at <= first <= one.at + SUSPECT_TIME
    ]


def with_reverts(cluster: DeclaredCluster, state: ClusterState, trials: ParameterTrials) -> ParameterTrials:
    """Revert the parameters that may have caused a crash loop, too."""
    loop = find_crash_loop(cluster, state)
    known = {one.name for one in trials.reverted}
    found = [
        RevertedParameter(one.name, one.value, one.previous, crashes=len(loop.times))
        for one in suspects(cluster, state, loop)
        if loop is not None and one.name not in known
    ]
    names = {one.name for one in found}
    pending = [one for one in trials.pending if one.name not in names]
    return replace(trials, reverted=[*trials.reverted, *found], pending=pending) if found else trials


def recorded_changes(settings: Mapping[str, Any]) -> Sequence[ChangedParameter]:
    """Return the changes that are recorded in settings, the oldest first."""
    recorded = as_mapping(as_mapping(settings.get(RECORD_KEY)).get(_CHANGED))
    found = (_change(name, as_mapping(entry)) for name, entry in recorded.items())
    return sorted((one for one in found if one is not None), key=lambda one: (one.at, one.name))


def record_changes(
    cluster: DeclaredCluster,
    stored: Mapping[str, Any],
    settings: Mapping[str, Any],
    trials: ParameterTrials,
    now: datetime,
) -> Mapping[str, Any]:
    """Return the settings with the record of recent changes.

    The write that changes a parameter also records it, so that no crash of the operator separates the two. An entry
    is removed after a day.

    Args:
        stored: the present settings.
        settings: those to write.
    """
    before, after = stored_parameters(cluster, stored), stored_parameters(cluster, settings)
    recorded = [one for one in recorded_changes(stored) if one.at + _LAST_CHANGE_TIME > now]
    if before and before != after:
        # Sized values follow the memory of the pods, so their previous ones may not fit.
        others = {one.name for one in (*trials.reverted, *cluster.sized)}
        names = {n for n in validated_parameters(cluster) if after.get(n) not in (None, before.get(n))} - others
        changed = [
            ChangedParameter(name=n, value=after[n], previous=before.get(n, ""), at=now) for n in sorted(names)
        ]
        recorded = [*(one for one in recorded if one.name not in names), *changed]
    if not recorded:
        return settings
    entries = {one.name: {"value": one.value, "former": one.previous, "at": one.at.isoformat()} for one in recorded}
    return {**settings, RECORD_KEY: {**settings.get(RECORD_KEY, {}), _CHANGED: entries}}


def last_change(state: ClusterState, loop: CrashLoop) -> str:
    """Return a sentence about the last change before the crashes."""
    first = loop.times[0]
    found = [each for each in _changes(state) if first - _LAST_CHANGE_TIME <= each[0] <= first]
    return max(found)[1] if found else "nothing was changed within a day before"


def _changes(state: ClusterState) -> Iterator[tuple[datetime, str]]:
    by_time: dict[datetime, list[str]] = {}
    for one in recorded_changes(state.members.settings or {}):
        by_time.setdefault(one.at, []).append(one.name)
    for at, names in by_time.items():
        yield at, f"the last change before: {', '.join(names)} at {at:%Y-%m-%d %H:%M:%S} UTC"
    for instance in state.instances:
        created = None if instance.pod is None else instance.pod.metadata.creation_timestamp
        if instance.pod is not None and created is not None:
            pod = f"pod {instance.pod.metadata.name} was created with image {instance.image}"
            yield created, f"the last change before: {pod} at {created:%Y-%m-%d %H:%M:%S} UTC"


def _crashes(instance: Instance) -> Sequence[datetime]:
    return () if instance.member is None else instance.member.crashes


def _cause(instance: Instance) -> str:
    for container in () if instance.pod is None else server_statuses(instance.pod):
        terminated = container.last_state.terminated
        if terminated is not None and terminated.exit_code:
            return f"last: {terminated.reason or 'exit'}, exit code {terminated.exit_code}"
    return ""


def _change(name: str, entry: Mapping[str, Any]) -> ChangedParameter | None:
    """Return a recorded change. None if it is malformed, since others may write the record."""
    texts = [entry.get(key) for key in ("value", "former", "at")]
    if not all(isinstance(each, str) for each in texts):
        return None
    value, previous, at = cast(Sequence[str], texts)
    try:
        time = datetime.fromisoformat(at)
    except ValueError:
        return None
    return None if time.tzinfo is None else ChangedParameter(name=name, value=value, previous=previous, at=time)
