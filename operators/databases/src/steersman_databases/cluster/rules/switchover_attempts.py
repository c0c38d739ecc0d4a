"""Switchover attempts: one request per target and declaration.

Each attempt blocks all writes. The members remove the request when it is done and when it is rejected. A request
that is gone without a change of the primary has been rejected.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from steersman_databases.cluster.actions import SwitchOver, Wait
from steersman_databases.cluster.state import ClusterState, Instance
from steersman_databases.engines.cluster_engine import DeclaredCluster

# The members accept a request within two seconds. Later it would be visible as theirs, or be gone.
_ACCEPTED_WITHIN = timedelta(seconds=10)
REJECTED = "the primary rejected it. Read the logs of the primary"


def declaration_id(cluster: DeclaredCluster) -> str:
    """Identifies a declaration of a cluster."""
    return f"{cluster.generation} {cluster.requests.restarted_at}".rstrip()


def is_in_flight(state: ClusterState) -> bool:
    """Return True if a recent request may not be visible yet."""
    attempt = state.attempt
    if attempt is None or not attempt.sent or attempt.has_ended or attempt.to == state.members.leader:
        return False
    return state.now - attempt.at < _ACCEPTED_WITHIN


def has_just_failed(state: ClusterState, to: int) -> bool:
    """Return True if an unrecorded switchover to `to` has failed."""
    attempt = state.attempt
    if attempt is None or not attempt.sent or attempt.has_ended:
        return False
    return attempt.to == to and not is_in_flight(state)


def already_tried(cluster: DeclaredCluster, state: ClusterState) -> frozenset[int]:
    """Targets that rejected a switchover for the current declaration."""
    attempt = state.attempt
    if attempt is None or attempt.declaration_id != declaration_id(cluster):
        return frozenset()
    return attempt.rejected_by | {attempt.to} if attempt.sent else attempt.rejected_by


def plan_switchover(
    cluster: DeclaredCluster, state: ClusterState, successors: Sequence[Instance], reason: str
) -> SwitchOver | Wait | None:
    """Switch over to the first of `successors` without a previous request.

    None if all have one and a user requests a switchover: that request comes first then.
    """
    rejected = already_tried(cluster, state)
    if (to := next((i for i in successors if i.ordinal not in rejected), None)) is not None:
        return SwitchOver(to.ordinal, reason)
    if cluster.requests.switchover:
        return None
    names = ", ".join(sorted(cluster.names.instance(i.ordinal) for i in successors))
    return Wait("SwitchoverRejected", f"switchover to {names} failed ({reason}): {REJECTED}")
