"""Instances that do not recover by themselves."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Literal

from steersman_databases.cluster.actions import Action, RecreatePod, RemoveInstance, Wait
from steersman_databases.cluster.rules import rolling_update, switchover_attempts
from steersman_databases.cluster.state import ClusterState, Instance, is_lost
from steersman_databases.cluster.status.pod_problems import is_stuck
from steersman_databases.engines.cluster_engine import DeclaredCluster

_STUCK_AFTER = timedelta(minutes=5)
_CORRUPT_AFTER = timedelta(minutes=5)
# Online growth of a file system is pending for a moment as well.
_RESIZE_MISSED_AFTER = timedelta(minutes=1)
_EXIT_CODE_UNREADABLE_DATA = 65
"""Exit code of a server's container with unreadable data: EX_DATAERR of sysexits.h."""


def recreate_stuck(cluster: DeclaredCluster, state: ClusterState) -> Action | None:
    """Recreate a failing pod that was created for another declaration.

    The current declaration may fix it.
    """
    for instance in state.instances:
        if instance.pod is None or instance.pod_ready or instance.is_orphan:
            continue
        outdated = rolling_update.is_outdated(cluster, state, instance)
        if not outdated and not rolling_update.pull_settings_changed(cluster, instance):
            continue
        if instance.member is not None and instance.member.state == "Cloning":
            # A large copy takes hours, and would start again.
            continue
        if is_stuck(instance.pod) or instance.unready_for(state.now) > _STUCK_AFTER:
            return RecreatePod(instance.ordinal, "it cannot start, and the declaration has changed")
    return None


def recreate_resized(cluster: DeclaredCluster, state: ClusterState) -> Action | Wait | None:
    """Recreate pods whose full volume was resized, except a serving primary.

    The most important instance comes first.
    """
    serving, members = state.members.primary, state.members
    leader_instance = members.last_leader
    resized = [
        i
        for i in state.instances
        if i.member is not None and i.member.disk_full and i.resize_missed(state.now, _RESIZE_MISSED_AFTER)
        if i.member != serving and _may_recreate(cluster, i)
    ]
    resized.sort(key=lambda i: i.ordinal != leader_instance)
    if resized and resized[0].ordinal == leader_instance and (candidates := _candidates(cluster, state, resized[0])):
        pod = cluster.names.pod(resized[0].ordinal).name
        return Wait(
            "DiskFull",
            f"pod {pod} must restart to use its resized volume. With asynchronous replication this may fail over to "
            f"{', '.join(candidates)} and lose recent commits. Delete pod {pod} to accept that",
        )
    return _recreate_first(cluster, state, resized, "its full volume was resized", "DiskFull")


def _candidates(cluster: DeclaredCluster, state: ClusterState, leader_instance: Instance) -> Sequence[str]:
    """Instances that could be promoted without all committed transactions."""
    if cluster.synchronous.mode != "Disabled":
        return ()
    others = (i for i in state.instances if i != leader_instance and i.pod_ready and not i.fenced)
    return [cluster.names.instance(i.ordinal) for i in others if i.member is not None and not i.member.disk_full]


def recreate_distrusting(cluster: DeclaredCluster, state: ClusterState) -> Action | Wait | None:
    """Recreate pods that trust none of the current CAs.

    That happens when all certificate Secrets are lost at once. A recreated replica follows once the primary
    reloads its files, which `DeclaredCluster.distrusting` causes. The primary comes last, and only when all
    replicas follow. Its successor must have every committed transaction: without synchronous replication a member
    that lacks up to a megabyte could be promoted.
    """
    leader, primary = state.members.leader, state.members.primary
    distrusting = [i for i in state.instances if i.distrusts_ca and not i.disk_full and _may_recreate(cluster, i)]
    distrusting.sort(key=lambda i: i.ordinal == leader)
    if distrusting and distrusting[0].ordinal == leader:
        others = [i for i in state.replicas() if not i.fenced]
        if primary is None or not all(i.is_following(primary) for i in others):
            return None
    return _recreate_first(cluster, state, distrusting, "it trusts only CAs whose Secrets are lost", "RollingOut")


def _recreate_first(
    cluster: DeclaredCluster,
    state: ClusterState,
    instances: Sequence[Instance],
    cause: str,
    reason: Literal["DiskFull", "RollingOut"],
) -> Action | Wait | None:
    """Recreate the first of the pods, once no other pod is starting."""
    if not instances:
        return None
    starting = next((i for i in state.instances if i not in instances and _is_starting(i, state)), None)
    if starting is not None:
        return Wait(reason, f"waiting for instance {cluster.names.instance(starting.ordinal)} to start")
    return RecreatePod(instances[0].ordinal, cause)


def _may_recreate(cluster: DeclaredCluster, instance: Instance) -> bool:
    """Return True if its StatefulSet recreates it and it is not fenced."""
    return not cluster.requests.is_fenced(instance.ordinal) and not instance.is_orphan


def _is_starting(instance: Instance, state: ClusterState) -> bool:
    """Return True if its pod is starting and may be Ready soon."""
    if instance.statefulset is None or instance.stopped or instance.pod_ready:
        return False
    return instance.unready_for(state.now) <= _STUCK_AFTER


def replace(cluster: DeclaredCluster, state: ClusterState) -> Action | Wait | None:
    """Remove a failed replica, so that another is created. Needs a primary, and never removes it."""
    if not cluster.automatic_replacement or state.primary is None or not state.primary.pod_ready:
        return None
    if len(state.instances) < cluster.instances:
        # Another instance is being replaced.
        return None
    for instance in state.replicas():
        others = (i for i in state.replicas() if i.ordinal != instance.ordinal)
        if any(i.member is None and not failure_reason(i, state) for i in others):
            # One at a time: another instance is copying the primary's data.
            continue
        if (reason := failure_reason(instance, state)) and not cluster.requests.is_fenced(instance.ordinal):
            return RemoveInstance(instance.ordinal, reason, has_failed=True)
    return None


def switch_from_lost_primary(cluster: DeclaredCluster, state: ClusterState) -> Action | Wait | None:
    """Switch over from a primary whose PVC is being deleted.

    It serves while its pod runs, and is replaced then.
    """
    primary = state.primary
    if not cluster.automatic_replacement or primary is None or not is_lost(primary):
        return None
    if not (to := rolling_update.successors(cluster, state)):
        return None
    return switchover_attempts.plan_switchover(cluster, state, to, "the volume of the primary is lost")


def failure_reason(instance: Instance, state: ClusterState) -> str:
    """Return why an instance cannot recover without replacement, or ""."""
    if is_lost(instance):
        return "its volume is lost"
    if instance.node_lost:
        return "its node is lost"
    member = instance.member
    if instance.wal_missing and member is not None and not (member.synchronous or member.disk_full):
        return instance.not_following_reason
    timeout = instance.unready_for(state.now) > _CORRUPT_AFTER
    return "its data are corrupt" if timeout and _has_corrupt_data(instance, state) else ""


def is_not_following(instance: Instance, state: ClusterState) -> bool:
    """Return True if a replica has not followed for too long."""
    if state.primary is None or not state.primary.pod_ready or instance.fenced or instance.member is None:
        return False
    serves = instance.member.role == "Replica" and instance.member.state in ("Running", "Streaming")
    return serves and not instance.member.timeline_diverged and instance.unready_for(state.now) > _CORRUPT_AFTER


def _has_corrupt_data(instance: Instance, state: ClusterState) -> bool:
    """Return True if its data prevent its start.

    A new copy would help.
    """
    member, primary = instance.member, state.primary
    if member is not None and member.synchronous:
        # The primary relies on this replica's data. Without usable data, that ends by itself.
        return False
    if instance.exit_code == _EXIT_CODE_UNREADABLE_DATA:
        return True
    # A copy would be on a volume of the same size. Data that await a user's decision are not replaced by a copy.
    if member is None or member.disk_full or member.maybe_errant:
        return False
    # It may fail with parameters that were declared since the primary's start, and a copy would fail as well. Nothing
    # is replaced before a running server has read all of them.
    affected = primary is not None and instance.restart_hash == primary.restart_hash
    return member.timeline_diverged or (
        member.state == "StartFailed" and affected and state.config_unreadable is False
    )
