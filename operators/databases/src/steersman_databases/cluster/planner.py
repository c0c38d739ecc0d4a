"""Planner: the next action of a cluster, derived from the observed state.

Requests of users come first (fencing, hibernation), then failures, then differences. No action that interrupts a
member is taken before the previous one has been recovered from.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Literal

from steersman_databases.cluster.actions import (
    Action,
    CancelRemoval,
    CreateInstance,
    FinishSwitchover,
    RecreatePod,
    RemoveInstance,
    RetryBootstrap,
    StartInstance,
    StopInstance,
    Wait,
)
from steersman_databases.cluster.rules import (
    failed_instances,
    image_contract,
    last_volume,
    requests,
    rolling_update,
    scaling,
    switchover_attempts,
)
from steersman_databases.cluster.state import OUT_OF_SERVICE_TAINT, ClusterState, Instance, awaits_recovery, has_data
from steersman_databases.engines.cluster_engine import DeclaredCluster
from steersman_databases.engines.members import MemberState
from steersman_databases.features.major_upgrade import model as major_upgrade_model
from steersman_databases.features.parameters import model as parameters_model
from steersman_databases.features.restore_in_place import model as restore_in_place_model

_PREVIOUS_PRIMARY_START_TIMEOUT = timedelta(minutes=5)
# Longer than a member takes from the claim of the bootstrap to the report of it.
_BOOTSTRAP_START_TIMEOUT = timedelta(minutes=1)
# Longer than an absent member is still counted.
_LEAVE_TIMEOUT = timedelta(minutes=1)
_DOWN_STATES: Sequence[MemberState] = ("Crashed", "Offline", "StartFailed", "Stopped")


def next_action(cluster: DeclaredCluster, state: ClusterState) -> Action | Wait | None:
    """Return the next action, a reason to wait, or None.

    An interrupted removal continues only if the instance would be removed now. Meanwhile it may be the primary,
    or the only one with all committed transactions.
    """
    step = image_contract.guard(cluster, state, last_volume.guard(cluster, state, _decide(cluster, state)))
    removed = step.instance if isinstance(step, RemoveInstance) else None
    kept = next((i for i in state.instances if i.removal_interrupted and i.ordinal != removed), None)
    return step if kept is None else CancelRemoval(kept.ordinal)


def _decide(cluster: DeclaredCluster, state: ClusterState) -> Action | Wait | None:
    state, previous = major_upgrade_model.split_by_version(cluster, state)
    if previous and state.primary is not None:
        return RemoveInstance(previous[0].ordinal, f"the data are upgraded to PostgreSQL {cluster.version}")
    state, replaced = restore_in_place_model.split_by_lineage(state)
    if replaced and state.primary is not None:
        return RemoveInstance(replaced[0].ordinal, "a restore replaced its data")
    for rule in (
        _bootstrap,
        _recover,
        _hibernate,
        _fence,
        failed_instances.recreate_stuck,
        failed_instances.recreate_resized,
        failed_instances.recreate_distrusting,
        _start_stopped,
        _require_primary,
        requests.requested_replacement,
        failed_instances.replace,
        scaling.scale_up,
        _restart_to_unblock,
        _requested_switchover,
        _require_healthy,
        failed_instances.switch_from_lost_primary,
        scaling.scale_down,
        last_volume.keep,
        _require_disk_space,
        rolling_update.await_resize,
        parameters_model.restart,
        rolling_update.next_pod,
        requests.requested_switchover,
        rolling_update.await_resize_request,
        _report_fenced,
    ):
        step = rule(cluster, state)
        if step is not None:
            return step
    return None


def _bootstrap(cluster: DeclaredCluster, state: ClusterState) -> Action | Wait | None:
    """Create the first instance alone until it has initialized the data.

    Without any data, start again: no data have been served, or a user accepts their loss. See `cluster.data_loss`.
    """
    if not state.instances:
        return None if cluster.hibernated else CreateInstance(state.next_ordinal)
    if not any(map(has_data, state.instances)):
        return RemoveInstance(state.instances[0].ordinal, "all volumes are lost", has_failed=True)
    return None


def _recover(cluster: DeclaredCluster, state: ClusterState) -> Wait | None:
    """No server starts before its volume is filled."""
    if any(i.overwriting for i in state.instances):
        return Wait("Restoring", "waiting for the restore")
    instance = next(filter(awaits_recovery, state.instances), None)
    return None if instance is None else Wait("Recovering", f"waiting for Job {cluster.names.recovery_job.name}")


def _hibernate(cluster: DeclaredCluster, state: ClusterState) -> Action | Wait | None:
    if not cluster.hibernated:
        return None
    return stop_all(cluster, state, "Hibernating") or Wait("Hibernated", "all instances are stopped")


def stop_all(
    cluster: DeclaredCluster, state: ClusterState, reason: Literal["Hibernating", "Restoring", "Upgrading"]
) -> Action | Wait | None:
    """Stop all instances, the primary last, so that it has every transaction. None if no pod is left.

    A pod that cannot end, on a lost node, does not prevent hibernation. Before an upgrade or a restore the primary
    serves until that node returns or is given up, since nothing could be done meanwhile.
    """
    primary = state.members.leader
    for instance in state.instances:
        if instance.ordinal != primary and not instance.stopped:
            return StopInstance(instance.ordinal)
    running = [i for i in state.instances if i.ordinal != primary and i.pod is not None]
    overdue = [i for i in running if _is_overdue(i, state)]
    if running and (reason != "Hibernating" or len(overdue) < len(running)):
        return Wait(reason, f"{_waiting_to_stop(cluster, state, running)} before the primary")
    for instance in state.instances:
        if not instance.stopped:
            return StopInstance(instance.ordinal)
    remaining = [i for i in state.instances if i.pod is not None]
    return Wait(reason, _waiting_to_stop(cluster, state, remaining)) if remaining else None


def _waiting_to_stop(cluster: DeclaredCluster, state: ClusterState, running: Sequence[Instance]) -> str:
    """Action or wait for pods that have not ended."""
    names = ", ".join(cluster.names.instance(i.ordinal) for i in running)
    overdue = ", ".join(i.pod.metadata.name for i in running if i.pod is not None and _is_overdue(i, state))
    advice = f" (if the node of pod {overdue} is lost, add the taint {OUT_OF_SERVICE_TAINT} to it)" if overdue else ""
    return f"waiting for {names} to stop{advice}"


def _fence(cluster: DeclaredCluster, state: ClusterState) -> Action | Wait | None:
    """Fence instances, the primary last. Otherwise a switchover could go to the next one to be fenced."""
    wrongly_fenced = [
        i
        for i in state.instances
        if i.pod is not None and not i.pod_terminating and i.fenced != cluster.requests.is_fenced(i.ordinal)
    ]
    if to_fence := [i for i in wrongly_fenced if not i.fenced]:
        last = state.members.leader
        instance = next((i for i in to_fence if i.ordinal != last), to_fence[0])
        stopping = [i for i in state.replicas() if i.pod_terminating and not i.fenced and not _is_overdue(i, state)]
        if instance.ordinal == last and stopping:
            return Wait("Fenced", f"waiting for {cluster.names.instance(stopping[0].ordinal)} to stop")
        return RecreatePod(instance.ordinal, "it is fenced by annotation")
    if not wrongly_fenced:
        return None
    first = _first_to_start(cluster, state, wrongly_fenced)
    return first if isinstance(first, Wait) else RecreatePod(first.ordinal, "it is no longer fenced")


def _is_overdue(instance: Instance, state: ClusterState) -> bool:
    """Return True if its pod should have ended by now. Its node may be lost."""
    end = None if instance.pod is None else instance.pod.metadata.deletion_timestamp
    return end is not None and state.now > end


def _start_stopped(cluster: DeclaredCluster, state: ClusterState) -> Action | Wait | None:
    idle = [i for i in state.instances if i.statefulset is None or i.stopped]
    if not idle:
        return None
    first = _first_to_start(cluster, state, idle)
    return first if isinstance(first, Wait) else _start_instance(first)


def _first_to_start(cluster: DeclaredCluster, state: ClusterState, idle: Sequence[Instance]) -> Instance | Wait:
    """The previous primary starts first: it has all committed transactions."""
    ordinal = state.members.last_leader
    previous = None if ordinal is None else state.instance(ordinal)
    if previous is None or state.primary is not None or _start_timed_out(previous, state):
        return idle[0]
    if cluster.needs_all_members and previous not in idle:
        return idle[0]
    if cluster.requests.is_fenced(previous.ordinal):
        # A user requested the removal.
        return idle[0]
    if previous in idle:
        return previous
    return Wait("InstanceNotReady", f"waiting for the previous primary {cluster.names.instance(previous.ordinal)}")


def _start_instance(instance: Instance) -> Action:
    # Without a StatefulSet: adopted, interrupted after its PVC was created, or deleted by a user.
    return StartInstance(instance.ordinal) if instance.statefulset else CreateInstance(instance.ordinal)


def _start_timed_out(instance: Instance, state: ClusterState) -> bool:
    return instance.unready_for(state.now) > _PREVIOUS_PRIMARY_START_TIMEOUT


def _require_primary(cluster: DeclaredCluster, state: ClusterState) -> Action | Wait | None:
    """Wait while there is no primary. Its election is up to the members."""
    if state.primary is not None:
        return None
    if all(i.fenced for i in state.instances):
        return Wait("Fenced", "all instances are fenced")
    if not state.members.is_initialized:
        first = state.instances[0]
        if _bootstrap_interrupted(first, state):
            return RetryBootstrap(first.ordinal)
        return Wait("Creating", f"waiting for instance {cluster.names.instance(first.ordinal)}")
    return Wait("NoPrimary", "waiting for a primary")


def _bootstrap_interrupted(first: Instance, state: ClusterState) -> bool:
    """Return True if a claimed bootstrap was interrupted.

    Its pod is gone, or received no response. All members wait then, and none of them withdraws the claim.
    """
    members = state.members
    idle = bool(members.members) and all(m.state == "Stopped" for m in members.members)
    return members.bootstrap_claimed and idle and first.unready_for(state.now) > _BOOTSTRAP_START_TIMEOUT


def _restart_to_unblock(cluster: DeclaredCluster, state: ClusterState) -> Action | Wait | None:
    """Restart replicas that cannot follow before a raised parameter takes effect.

    The regular restart would wait for them, and they for it.
    """
    unhealthy = _unhealthy(cluster, state)
    if (
        not unhealthy
        or not all(parameters_model.blocks_catch_up(state, i) for i in unhealthy)
        or _is_switching_over(state)
    ):
        return None
    if rolling_update.lacks_standbys(cluster, state) or any(i.disk_full for i in state.instances):
        return None
    return parameters_model.restart(replace(cluster, waits_for_window=False), state)


def _requested_switchover(cluster: DeclaredCluster, state: ClusterState) -> Action | None:
    """Return the requested switchover while an instance is lastingly unhealthy.

    If no replica can be promoted because of the unhealthy instance, the request stands.
    """
    unhealthy = _unhealthy(cluster, state)
    if not unhealthy or _is_switching_over(state) or not all(_is_lastingly_absent(i, state) for i in unhealthy):
        return None
    if parameters_model.is_lowering(state):
        return None
    step = requests.requested_switchover(cluster, state)
    return None if isinstance(step, FinishSwitchover) and step.refusal in requests.TRANSIENT_REFUSALS else step


def _is_lastingly_absent(instance: Instance, cluster_state: ClusterState) -> bool:
    """Return True if it will not be a member soon.

    MySQL's group does not appoint a primary while a member joins or leaves.
    """
    state = None if instance.member is None else instance.member.state
    if state == "Cloning":
        return True
    return state in (None, *_DOWN_STATES) and instance.unready_for(cluster_state.now) > _LEAVE_TIMEOUT


def _is_switching_over(state: ClusterState) -> bool:
    return state.members.switchover_request is not None or switchover_attempts.is_in_flight(state)


def _unhealthy(cluster: DeclaredCluster, state: ClusterState) -> Sequence[Instance]:
    """Instances that should serve and do not."""
    primary, leaving = state.members.primary, scaling.surplus(cluster, state)
    assert primary is not None
    desired = [i for i in state.instances if not cluster.requests.is_fenced(i.ordinal) and i not in leaving]
    return [i for i in desired if not i.is_following(primary)]


def _require_healthy(cluster: DeclaredCluster, state: ClusterState) -> Action | Wait | None:
    """Wait for healthy instances, so that at most one is interrupted."""
    if unhealthy := _unhealthy(cluster, state):
        waits = cluster.requests.switchover and not _is_switching_over(state)
        message = ". The requested switchover waits for it" if waits else ""
        return Wait("InstanceNotReady", f"{_describe_absence(cluster, unhealthy[0])}{message}")
    if _is_switching_over(state):
        return Wait("RollingOut", "a switchover is in progress")
    if rolling_update.lacks_standbys(cluster, state):
        waiting = Wait("NoSynchronousStandby", "waiting for a standby to become synchronous")
        return _report_fenced(cluster, state) or waiting
    return None


def _require_disk_space(cluster: DeclaredCluster, state: ClusterState) -> Action | Wait | None:
    """Wait if a volume is full, unless a switchover is requested.

    A stopped server might not start again.
    """
    full = [cluster.names.instance(i.ordinal) for i in state.instances if i.disk_full]
    if not full:
        return None
    return requests.requested_switchover(cluster, state) or Wait(
        "DiskFull", f"the volume of {', '.join(full)} is full"
    )


def _report_fenced(cluster: DeclaredCluster, state: ClusterState) -> Action | Wait | None:
    """Report fenced instances. They do not serve, so the declaration is not met."""
    fenced = [cluster.names.instance(i.ordinal) for i in state.instances if i.fenced]
    if not fenced:
        return None
    others = len(state.instances) > cluster.instances
    still_fenced = f" and not counted in spec.instances ({cluster.instances})" if others else ""
    return Wait("Fenced", f"{', '.join(fenced)} {'is' if len(fenced) == 1 else 'are'} fenced{still_fenced}")


def _describe_absence(cluster: DeclaredCluster, instance: Instance) -> str:
    name, member = cluster.names.instance(instance.ordinal), instance.member
    state = "has not started" if member is None else f"is {member.state}"
    detail = f"{name} {state}"
    if member is not None and member.timeline:
        detail = f"instance {detail} on timeline {member.timeline}"
    return f"{detail}: {instance.not_following_reason}" if instance.not_following_reason else detail
