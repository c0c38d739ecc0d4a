"""Record of switchovers in the status. It precedes the request to the members.

Annotations hold requests of users.
"""

from __future__ import annotations

from datetime import datetime
from typing import TypeVar

from msgspec.structs import replace

from steersman.api.core_v1 import ConfigMap
from steersman.client import MergePatch
from steersman_databases.api import Cluster, ClusterStatus
from steersman_databases.api.cluster_common import LastSwitchover
from steersman_databases.cluster.actions import FinishReplacement, FinishSwitchover, ResolveTarget, SwitchOver
from steersman_databases.cluster.declared import REPLACE_ANNOTATION, SWITCHOVER_ANNOTATION
from steersman_databases.cluster.rules.switchover_attempts import already_tried, declaration_id
from steersman_databases.cluster.state import ClusterState, SwitchoverAttempt
from steersman_databases.cluster.status.conditions import status_of
from steersman_databases.core.context import ClusterContext
from steersman_databases.engines.cluster_engine import DeclaredCluster
from steersman_databases.engines.members import Members

S = TypeVar("S", bound=ClusterStatus)

_REQUESTED = "Requested"
_SUCCEEDED = "Succeeded"


def pending_attempt(
    declared: DeclaredCluster, status: ClusterStatus | None, members: Members
) -> SwitchoverAttempt | None:
    """Last switchover that was decided and has not succeeded."""
    last = None if status is None else status.last_switchover
    to = None if last is None else declared.names.ordinal(last.to or "")
    if last is None or to is None or last.time is None or last.outcome == _SUCCEEDED:
        return None
    before = (declared.names.ordinal(name) for name in last.refused)
    return SwitchoverAttempt(
        to=to,
        at=last.time,
        declaration_id=last.declared or "",
        sent=last.store_version is not None and last.store_version == members.switchover_version,
        has_ended=last.outcome != _REQUESTED,
        rejected_by=frozenset(ordinal for ordinal in before if ordinal is not None),
    )


async def record_intent(context: ClusterContext, cluster: Cluster, action: SwitchOver, state: ClusterState) -> None:
    """Record a switchover and the version that the store will have afterwards."""
    declared, names = context.declared, context.declared.names
    store = await context.client.live.get(ConfigMap, declared.dcs.requests)
    status = status_of(await context.client.live.get(type(cluster), cluster.key))
    recorded = LastSwitchover(
        time=context.clock.now(),
        former=status.primary,
        to=names.instance(action.to),
        outcome=_REQUESTED,
        declared=declaration_id(declared),
        refused=tuple(sorted(names.instance(n) for n in already_tried(declared, state) - {action.to})),
        store_version=store.metadata.resource_version,
    )
    await context.client.apply_status(cluster, replace(status, last_switchover=recorded))


def with_result(status: S, now: datetime, refusal: str = "") -> S:
    """Return the status with the switchover's outcome: `refusal`, or an observed success."""
    last = status.last_switchover
    if last is None or last.outcome != _REQUESTED or not (refusal or last.to == status.primary):
        return status
    return replace(status, last_switchover=_finished(last, now, refusal))


def _finished(last: LastSwitchover, now: datetime, refusal: str) -> LastSwitchover:
    return replace(last, time=now, outcome=f"rejected: {refusal}" if refusal else _SUCCEEDED)


def was_planned(status: ClusterStatus, primary: str | None) -> bool:
    """Return True if `primary` became primary by the switchover in `status`.

    A switchover causes one change of primary: the next change to the same instance is a failover.
    """
    last = status.last_switchover
    if last is None or last.to != primary or last.store_version is None:
        return False
    return last.outcome in (_REQUESTED, _SUCCEEDED)


def consume_intent(status: S) -> S:
    """Status after the change of primary that the switchover caused."""
    last = status.last_switchover
    if last is None or not was_planned(status, status.primary):
        return status
    # Not at once: the component that observes the new leader writes success, and its timeline may be visible later.
    return replace(status, last_switchover=replace(last, store_version=None))


async def record_target(context: ClusterContext, action: ResolveTarget) -> None:
    """Record the target if a user requested any, to recognize the outcome."""
    await _annotate(
        context,
        context.cluster.metadata.resource_version,
        SWITCHOVER_ANNOTATION,
        context.declared.names.instance(action.to),
    )


async def finish(context: ClusterContext, cluster: Cluster, action: FinishSwitchover, state: ClusterState) -> None:
    """Report the outcome in status and Event, then remove the annotation.

    The annotation is the request, so it is removed last. Rejections of the declared switchover are kept if a user
    requested another target.
    """
    status = status_of(cluster)
    last = status.last_switchover
    subject = last
    if subject is None or subject.to != action.to:
        refused = tuple(sorted(context.declared.names.instance(n) for n in already_tried(context.declared, state)))
        subject = LastSwitchover(to=action.to, declared=declaration_id(context.declared), refused=refused)
    reported = replace(status, last_switchover=_finished(subject, context.clock.now(), action.refusal))
    applied = await context.client.apply_status(cluster, reported)
    await _annotate(context, applied.metadata.resource_version, SWITCHOVER_ANNOTATION, None)
    if action.refusal:
        context.events.warning(cluster, "SwitchoverRejected", f"switchover to {action.to} rejected: {action.refusal}")
    else:
        context.events.normal(cluster, "Switchover", f"{action.to} is the primary after the requested switchover")


async def finish_replacement(context: ClusterContext, action: FinishReplacement) -> None:
    """Remove the annotation. The replacement itself was reported earlier."""
    await _annotate(context, context.cluster.metadata.resource_version, REPLACE_ANNOTATION, None)
    if action.refusal:
        context.events.warning(
            context.cluster, "ReplacementRejected", f"replacement of {action.instance} rejected: {action.refusal}"
        )


async def _annotate(context: ClusterContext, version: str, name: str, value: str | None) -> None:
    # A newer request must not be overwritten.
    metadata = {"resourceVersion": version, "annotations": {name: value}}
    await context.client.patch(type(context.cluster), context.declared.key, MergePatch({"metadata": metadata}))
