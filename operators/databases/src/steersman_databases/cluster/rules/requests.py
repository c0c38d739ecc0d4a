"""Requests by annotation: a switchover, or the replacement of an instance."""

from __future__ import annotations

from steersman_databases.cluster.actions import (
    Action,
    FinishReplacement,
    FinishSwitchover,
    RemoveInstance,
    ResolveTarget,
    SwitchOver,
)
from steersman_databases.cluster.rules import rolling_update, switchover_attempts
from steersman_databases.cluster.state import ClusterState
from steersman_databases.engines.cluster_engine import DeclaredCluster

_REASON = "a user requested it"
_NO_CANDIDATE = "no replica can be promoted"
TRANSIENT_REFUSALS = frozenset({_NO_CANDIDATE, *rolling_update.PROMOTION_PROBLEMS})
"""Refusals of a switchover that may not occur at another time."""


def requested_switchover(cluster: DeclaredCluster, state: ClusterState) -> Action | None:
    """Start a requested switchover. Finish it when it has happened or is impossible."""
    desired = cluster.requests.switchover
    if not desired:
        return None
    if desired == "any":
        to = rolling_update.successors(cluster, state)
        return ResolveTarget(to[0].ordinal) if to else FinishSwitchover(desired, _NO_CANDIDATE)
    ordinal = cluster.names.ordinal(desired)
    target = None if ordinal is None else state.instance(ordinal)
    if ordinal is None or target is None:
        return FinishSwitchover(desired, "no instance has this name")
    if ordinal == state.members.leader:
        return FinishSwitchover(desired)
    if switchover_attempts.has_just_failed(state, ordinal):
        return FinishSwitchover(desired, switchover_attempts.REJECTED)
    if problem := rolling_update.promotion_problem(cluster, state, target):
        return FinishSwitchover(desired, problem)
    return SwitchOver(ordinal, _REASON)


def requested_replacement(cluster: DeclaredCluster, state: ClusterState) -> Action | None:
    """Remove a replica on request, so that another is created. There is a primary.

    As with failed ones, one at a time: while another instance does not follow, this one stays.
    """
    desired, primary = cluster.requests.replace, state.members.primary
    if not desired or primary is None:
        return None
    ordinal = cluster.names.ordinal(desired)
    instance = None if ordinal is None else state.instance(ordinal)
    if ordinal is None or instance is None:
        was_there = ordinal is not None and ordinal < state.next_ordinal
        return FinishReplacement(desired, "" if was_there else "no instance has this name")
    if ordinal == state.members.leader:
        return FinishReplacement(desired, "it is the primary. Switch over to another instance first")
    others = [i for i in state.replicas() if i.ordinal != ordinal and not i.fenced]
    is_healthy = instance.is_following(primary)
    sources = any(i.member is not None and i.member.synchronous for i in others)
    if is_healthy and not sources and cluster.synchronous.mode != "Disabled":
        return FinishReplacement(desired, "it is the only synchronous standby. Add another one first")
    if len(state.instances) < cluster.instances or (is_healthy and not all(i.is_following(primary) for i in others)):
        return None
    return RemoveInstance(ordinal, _REASON, has_failed=True)
