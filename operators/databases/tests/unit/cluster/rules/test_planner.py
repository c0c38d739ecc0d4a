"""The planner, asked without anything around it: what comes first, and who is never touched."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest
from msgspec import structs

from database_support.unit.planned_cluster import (
    DECLARED,
    HEALTHY,
    NOW,
    THREE,
    cluster_state,
    instance,
    interrupted_removal,
    member,
    primary,
    requesting,
)
from steersman.api.apps_v1 import StatefulSet
from steersman.api.core_v1 import PersistentVolumeClaim
from steersman.meta import decode_builtins
from steersman_databases.api import PostgreSQLCluster
from steersman_databases.api.postgresql_cluster import PostgreSQLClusterSpec
from steersman_databases.cluster.actions import (
    CancelRemoval,
    CreateInstance,
    FinishReplacement,
    FinishSwitchover,
    RecreatePod,
    RemoveInstance,
    ResolveTarget,
    RestartServer,
    RetryBootstrap,
    StopInstance,
    SwitchOver,
    Wait,
)
from steersman_databases.cluster.planner import next_action, stop_all
from steersman_databases.cluster.state import ClusterState, Instance
from steersman_databases.cluster.status.conditions import ConditionSet, evaluate_available, phase_of, set_ready
from steersman_databases.engines.cluster_engine import SynchronousReplication
from steersman_databases.engines.members import Member, MemberState, PendingSetting, SwitchoverRequest


def test_everything_as_declared_plans_nothing() -> None:
    assert next_action(DECLARED, HEALTHY) is None


@pytest.mark.parametrize(
    ("seen", "step"),
    [
        (cluster_state([], is_initialized=False), CreateInstance(0)),
        (cluster_state([instance(0)], primary(0)), CreateInstance(1)),
        (cluster_state([instance(0), instance(4)], primary(0), member(4)), CreateInstance(5)),
    ],
)
def test_missing_instance_is_created(seen: ClusterState, step: object) -> None:
    assert next_action(DECLARED, seen) == step


@pytest.mark.parametrize(
    ("state", "seconds", "begun", "begins"),
    [
        ("Stopped", 61, True, True),
        ("Stopped", 60, True, False),  # it is about to say more
        ("Starting", 6000, True, False),  # initdb runs
        ("Unknown", 6000, True, False),
        ("Stopped", 6000, False, False),
    ],
)
def test_interrupted_bootstrap_is_retried(state: MemberState, seconds: int, begun: bool, begins: bool) -> None:
    seen = cluster_state(
        [instance(0, ready=False)], member(0, state=state), is_initialized=False, bootstrap_claimed=begun
    )
    seen = replace(seen, now=datetime(2026, 11, 21, 23, 59, tzinfo=UTC) + timedelta(seconds=seconds))
    waits = Wait("Creating", "waiting for instance orders-0")
    assert next_action(DECLARED, seen) == (RetryBootstrap(0) if begins else waits)


def test_scale_down_removes_newest_replica() -> None:
    smaller = replace(DECLARED, instances=2)
    assert next_action(smaller, HEALTHY) == RemoveInstance(2, "spec.instances was reduced")
    led_by_two = cluster_state(THREE, primary(2), member(0), member(1))
    assert next_action(smaller, led_by_two) == RemoveInstance(1, "spec.instances was reduced")


def test_scale_down_ignores_health_of_removed() -> None:
    alone = replace(DECLARED, instances=1)
    pending = cluster_state([instance(0), instance(1, ready=False), instance(2, ready=False)], primary(0))
    assert next_action(alone, pending) == RemoveInstance(2, "spec.instances was reduced")
    left = cluster_state([instance(0), instance(1, ready=False)], primary(0))
    assert next_action(alone, left) == RemoveInstance(1, "spec.instances was reduced")
    assert isinstance(next_action(replace(DECLARED, instances=2), left), Wait), "who stays must be well"


def test_scale_down_keeps_fenced_instances() -> None:
    fenced = [instance(0), instance(1, fenced=True), instance(2)]
    seen = cluster_state(fenced, primary(0), member(2))
    smaller = replace(requesting(fenced=frozenset({1})), instances=2)
    assert next_action(smaller, seen) == Wait("Fenced", "orders-1 is fenced and not counted in spec.instances (2)")
    assert next_action(replace(smaller, instances=1), seen) == RemoveInstance(2, "spec.instances was reduced")


def test_scale_down_keeps_only_synchronous_standby() -> None:
    seen = cluster_state(THREE, primary(0), member(1, synchronous=False), member(2))
    assert next_action(replace(DECLARED, instances=2), seen) == RemoveInstance(1, "spec.instances was reduced")


@pytest.mark.parametrize(
    ("instances", "seen", "step"),
    [
        (2, cluster_state([*THREE[:2], interrupted_removal(2)], primary(0), member(1), member(2)), True),
        # It took over meanwhile, is the only one that has all, or is wanted again; or nobody can be asked.
        (2, cluster_state([*THREE[:2], interrupted_removal(2)], primary(2), member(0), member(1)), False),
        (
            2,
            cluster_state([*THREE[:2], interrupted_removal(2)], primary(0), member(1, synchronous=False), member(2)),
            False,
        ),
        (3, cluster_state([*THREE[:2], interrupted_removal(2)], primary(0), member(1), member(2)), False),
        (2, cluster_state([*THREE[:2], interrupted_removal(2)], member(1), member(2)), False),
    ],
)
def test_interrupted_removal_resumes_only_if_still_due(instances: int, seen: ClusterState, step: bool) -> None:
    goes, stays = RemoveInstance(2, "spec.instances was reduced"), CancelRemoval(2)
    assert next_action(replace(DECLARED, instances=instances), seen) == (goes if step else stays)


def test_unhealthy_instance_blocks_disruption() -> None:
    old = [instance(0, hash_="old"), instance(1, hash_="old"), instance(2)]
    for other in (member(2, state="Starting"), member(2, timeline=9)):
        assert isinstance(next_action(DECLARED, cluster_state(old, primary(0), member(1), other)), Wait)
    assert isinstance(
        next_action(
            DECLARED, cluster_state(old, primary(0), member(1), member(2), switchover_request=SwitchoverRequest(to=1))
        ),
        Wait,
    )


def test_rollout_recreates_most_lagging_first_primary_last() -> None:
    old = [instance(n, hash_="old") for n in range(3)]
    seen = cluster_state(old, primary(0), member(1, lag_bytes=5), member(2, lag_bytes=7))
    assert next_action(DECLARED, seen) == RecreatePod(2, "its pod differs from the declaration")
    seen = cluster_state(
        [instance(0, hash_="old"), *THREE[1:]], primary(0), member(1, lag_bytes=5), member(2, lag_bytes=7)
    )
    assert next_action(DECLARED, seen) == SwitchOver(1, "the pod of the primary must be recreated")


def test_switchover_requires_fully_replicated_target() -> None:
    seen = cluster_state(
        [instance(0, hash_="old"), *THREE[1:]], primary(0), member(1, synchronous=False), member(2, lag_bytes=9)
    )
    assert next_action(DECLARED, seen) == SwitchOver(2, "the pod of the primary must be recreated")


def test_lowered_parameter_restarts_primary_first() -> None:
    def pending(former: str, value: str) -> dict[str, Any]:
        setting = PendingSetting(name="max_connections", previous=former, value=value)
        return {"pending_restart": True, "pending_settings": (setting,)}

    lower = pending("100", "50")
    seen = cluster_state(THREE, primary(0, **lower), member(1, **lower), member(2, **lower))
    assert next_action(DECLARED, seen) == RestartServer(0, "a parameter was lowered")
    higher = pending("50", "100")
    seen = cluster_state(THREE, primary(0, **higher), member(1, **higher), member(2))
    assert next_action(DECLARED, seen) == RestartServer(1, "a parameter needs a restart")
    seen = cluster_state(THREE, primary(0, **higher), member(1), member(2))
    assert next_action(DECLARED, seen) == SwitchOver(1, "a parameter needs a restart")


def test_outdated_pod_restarts_once_for_parameter_and_declaration() -> None:
    setting = PendingSetting(name="shared_buffers", previous="192MB", value="384MB")
    waits: dict[str, Any] = {"pending_restart": True, "pending_settings": (setting,)}
    former = [instance(n, hash_="old") for n in range(3)]
    seen = cluster_state(former, primary(0, **waits), member(1, **waits), member(2, **waits))
    assert isinstance(next_action(DECLARED, seen), RecreatePod)
    seen = cluster_state([*THREE[:2], former[2]], primary(0), member(1, **waits), member(2, **waits))
    assert next_action(DECLARED, seen) == RestartServer(1, "a parameter needs a restart")
    raised = {**waits, "pending_settings": (PendingSetting(name="max_connections", previous="50", value="60"),)}
    seen = cluster_state(former, primary(0, **raised), member(1, **raised), member(2, **raised))
    assert isinstance(next_action(DECLARED, seen), RestartServer), "the order of such parameters matters"


def test_mixed_parameters_restart_replicas_first() -> None:
    lower = PendingSetting(name="max_connections", previous="100", value="50")
    both = {
        "pending_restart": True,
        "pending_settings": (lower, PendingSetting(name="max_worker_processes", previous="8", value="16")),
    }
    rest = {"pending_restart": True, "pending_settings": (lower,)}
    first = "a parameter must be raised before another one is lowered"
    seen = cluster_state(THREE, primary(0, **both), member(1, **both), member(2, **both))
    assert next_action(DECLARED, seen) == RestartServer(1, first)
    # It has the higher one now, and starts with the lower one when its primary has it.
    seen = cluster_state(THREE, primary(0, **both), member(1, **rest), member(2, **both))
    assert next_action(DECLARED, seen) == RestartServer(2, first)
    seen = cluster_state(THREE, primary(0, **both), member(1, **rest), member(2, **rest))
    assert next_action(DECLARED, seen) == RestartServer(0, "a parameter was lowered")
    seen = cluster_state(THREE, primary(0), member(1, **rest), member(2, **rest))
    assert next_action(DECLARED, seen) == RestartServer(1, "a parameter needs a restart")


def _raised(name: str, former: str, value: str = "10") -> dict[str, Any]:
    return {"pending_restart": True, "pending_settings": (PendingSetting(name=name, previous=former, value=value),)}


FIVE = replace(DECLARED, instances=5)
LATER = NOW + timedelta(minutes=10)


def _five(*others: Member, late: bool = True, **said: Any) -> ClusterState:
    """Three replicas stream; the last of four does what ``others`` says."""
    instances = [*(instance(n) for n in range(4)), instance(4, ready=False)]
    seen = cluster_state(instances, primary(0, **said), *(member(n) for n in range(1, 4)), *others)
    return replace(seen, now=LATER) if late else seen


def test_parameter_blocking_replica_is_raised_at_once() -> None:
    senders = _raised("max_wal_senders", "3")
    runs = member(4, state="Running", synchronous=False)
    hands_over = SwitchOver(1, "a parameter needs a restart")
    assert next_action(FIVE, _five(runs, **senders)) == hands_over
    assert next_action(FIVE, _five(runs, **_raised("max_replication_slots", "3"))) == hands_over
    restarts = replace(runs, pending_restart=True)
    assert next_action(FIVE, _five(restarts, **senders)) == RestartServer(4, "a parameter needs a restart")
    # A copy takes two senders, or a slot beside those of the members.
    copies = member(4, state="Cloning", synchronous=False)
    for name, former in (("max_wal_senders", "4"), ("max_replication_slots", "4")):
        assert next_action(FIVE, _five(copies, late=False, **_raised(name, former))) == hands_over


@pytest.mark.parametrize(
    ("state", "said"),
    [
        ("Running", {}),
        ("Running", _raised("max_wal_senders", "10", "3")),
        ("Running", _raised("max_connections", "3")),
        ("Starting", _raised("max_wal_senders", "3")),
        ("Stopped", _raised("max_wal_senders", "3")),
        ("Cloning", _raised("max_wal_senders", "5")),  # one may be under way
        ("Cloning", _raised("max_replication_slots", "5")),
    ],
)
def test_replica_blocked_for_other_reason_is_waited_for(state: MemberState, said: dict[str, Any]) -> None:
    step = next_action(FIVE, _five(member(4, state=state, synchronous=False), **said))
    assert isinstance(step, Wait) and step.reason == "InstanceNotReady"


def test_restart_waits_for_streaming_and_unhealthy_replicas() -> None:
    runs, senders = member(4, state="Running", synchronous=False), _raised("max_wal_senders", "3")
    starts = _five(runs, **senders)
    starts = replace(
        starts, instances=[*starts.instances[:3], replace(starts.instances[3], member=None), starts.instances[4]]
    )
    full = _five(runs, storage=FULL, **senders)
    switched = _five(runs, **senders)
    switched = replace(switched, members=replace(switched.members, switchover_request=SwitchoverRequest(to=1)))
    for seen in (_five(runs, late=False, **senders), starts, full, switched):
        step = next_action(FIVE, seen)
        assert isinstance(step, Wait) and step.reason == "InstanceNotReady"


def test_user_request_has_precedence() -> None:
    broken = cluster_state(THREE, member(0), member(1), member(2, state="StartFailed"), leader=None)
    fenced = next_action(requesting(fenced=frozenset({1})), broken)
    assert fenced == RecreatePod(1, "it is fenced by annotation")
    assert next_action(replace(DECLARED, hibernated=True), HEALTHY) == StopInstance(1)


def test_lost_node_does_not_block_hibernation_or_upgrade() -> None:
    asleep = replace(DECLARED, hibernated=True)
    gone = replace(stopped(instance(1)), pod=None)
    lost = stopped(ending(2, NOW - timedelta(seconds=1)))
    seen = cluster_state([instance(0), gone, lost], primary(0))
    way_out = "waiting for orders-2 to stop (if the node of pod orders-2-0 is lost, add the taint "
    assert next_action(asleep, seen) == StopInstance(0)
    waits = stop_all(DECLARED, seen, "Upgrading")
    assert isinstance(waits, Wait) and waits.message.startswith(way_out)
    former = replace(stopped(instance(0)), pod=None)
    waits = next_action(asleep, cluster_state([former, gone, lost]))
    assert isinstance(waits, Wait) and waits.message.startswith(way_out)
    still = stopped(ending(1, NOW + timedelta(seconds=1)))
    waits = next_action(asleep, cluster_state([instance(0), still, lost], primary(0)))
    assert isinstance(waits, Wait) and waits.message.endswith("before the primary")


def test_hibernated_is_reported_once_all_stopped() -> None:
    """Who waits for it may take volumes away."""
    asleep, declared = (
        replace(DECLARED, hibernated=True),
        PostgreSQLCluster(spec=PostgreSQLClusterSpec(hibernated=True)),
    )

    def phase(instances: list[Instance]) -> str:
        seen, findings = cluster_state(instances, leader=0), ConditionSet()
        evaluate_available(asleep, seen, findings)
        set_ready(declared, asleep, next_action(asleep, seen), findings)
        assert findings.updates["Available"].reason == "Hibernated"
        return phase_of(declared, findings)

    gone = [replace(i, pod=None, statefulset=_stopped(i)) for i in THREE]
    ends = replace(THREE[0], statefulset=_stopped(THREE[0]), pod=instance(0, ready=False).pod)
    assert phase([ends, *gone[1:]]) != "Hibernated"
    assert phase(gone) == "Hibernated"


def _stopped(one: Instance) -> StatefulSet:
    assert one.statefulset is not None
    return msgspec.structs.replace(one.statefulset, spec=msgspec.structs.replace(one.statefulset.spec, replicas=0))


@pytest.mark.parametrize(
    ("wanted", "step"),
    [
        ("any", ResolveTarget(1)),
        ("orders-2", SwitchOver(2, "a user requested it")),
        ("orders-0", FinishSwitchover("orders-0")),
        ("orders-9", FinishSwitchover("orders-9", "no instance has this name")),
    ],
)
def test_switchover(wanted: str, step: object) -> None:
    assert next_action(requesting(switchover=wanted), HEALTHY) == step


@pytest.mark.parametrize(
    ("wanted", "step"),
    [
        ("orders-2", RemoveInstance(2, "a user requested it", has_failed=True)),
        ("orders-0", FinishReplacement("orders-0", "it is the primary. Switch over to another instance first")),
        ("orders-9", FinishReplacement("orders-9", "no instance has this name")),
        ("shop-1", FinishReplacement("shop-1", "no instance has this name")),
    ],
)
def test_requested_replacement_removes_instance(wanted: str, step: object) -> None:
    on_request = replace(requesting(replace=wanted), automatic_replacement=False)
    assert next_action(on_request, HEALTHY) == step
    assert isinstance(
        next_action(on_request, cluster_state(THREE, member(0), member(1), member(2), leader=None)), Wait
    )


def test_requested_replacement_finishes_once_done() -> None:
    gone = cluster_state([THREE[0], THREE[1], instance(3)], primary(0), member(1), member(3))
    assert next_action(requesting(replace="orders-2"), gone) == FinishReplacement("orders-2")


def test_requested_replacement_is_one_at_a_time() -> None:
    view = requesting(replace="orders-2")
    strays = cluster_state(THREE, primary(0), member(1, state="Running"), member(2))
    assert isinstance(next_action(view, strays), Wait), "the other one does not follow"
    lagging = cluster_state(THREE, primary(0), member(1, synchronous=False), member(2))
    step = next_action(view, lagging)
    assert isinstance(step, FinishReplacement) and "the only synchronous standby" in step.refusal
    assert isinstance(
        next_action(view, cluster_state([THREE[0], THREE[2]], primary(0), member(2))), FinishReplacement
    )
    stray = cluster_state(THREE, primary(0), member(1), member(2, state="Running", synchronous=False))
    assert isinstance(next_action(view, stray), RemoveInstance)
    made = cluster_state([THREE[0], THREE[2]], primary(0), member(2, state="Running", synchronous=False))
    assert next_action(view, made) == CreateInstance(3), "another is being made"


def test_running_copy_is_not_restarted() -> None:
    copying = instance(1, ready=False, hash_="other")
    later = NOW + timedelta(hours=1)
    seen = replace(cluster_state([instance(0), copying], primary(0), member(1, state="Cloning")), now=later)
    assert not isinstance(next_action(replace(DECLARED, instances=2), seen), RecreatePod)


def test_switchover_does_not_wait_for_unhealthy_replica() -> None:
    cloning = cluster_state([*THREE[:2], instance(2, ready=False)], primary(0), member(1), member(2, state="Cloning"))
    assert next_action(requesting(switchover="orders-1"), cloning) == SwitchOver(1, "a user requested it")
    assert next_action(requesting(switchover="any"), cloning) == ResolveTarget(1)
    assert next_action(requesting(switchover="orders-9"), cloning) == FinishSwitchover(
        "orders-9", "no instance has this name"
    )
    step = next_action(requesting(switchover="orders-2"), cloning)
    assert isinstance(step, Wait)
    assert step.message.endswith("is Cloning on timeline 1. The requested switchover waits for it"), step
    handing = replace(cloning, members=replace(cloning.members, switchover_request=SwitchoverRequest(to=1)))
    assert next_action(requesting(switchover="orders-1"), handing) == Wait(
        "InstanceNotReady", "instance orders-2 is Cloning on timeline 1"
    )
    # As where a disk is full, which the switchover leaves, and a third server has crashed for the same.
    crashed = member(2, state="Crashed", storage=FULL)
    full = cluster_state([*THREE[:2], instance(2, ready=False)], primary(0, storage=FULL), member(1), crashed)
    assert next_action(requesting(switchover="orders-1"), replace(full, now=LATER)) == SwitchOver(
        1, "a user requested it"
    )


@pytest.mark.parametrize("state", ["Running", "Isolated", "Starting", "Crashed"])
def test_switchover_waits_for_recovering_replica(state: MemberState) -> None:
    """MySQL's group appoints nobody while a member joins it, or is gone and still counted."""
    joining = cluster_state([*THREE[:2], instance(2, ready=False)], primary(0), member(1), member(2, state=state))
    assert isinstance(next_action(requesting(switchover="orders-1"), joining), Wait)
    if state != "Crashed":
        assert isinstance(next_action(requesting(switchover="orders-1"), replace(joining, now=LATER)), Wait)


def test_switchover_waits_for_lowered_parameter() -> None:
    lower = {
        "pending_restart": True,
        "pending_settings": (PendingSetting(name="max_connections", previous="100", value="50"),),
    }
    five = [*THREE[:2], instance(2, ready=False)]
    seen = cluster_state(five, primary(0), member(1, **lower), member(2, state="Cloning"))
    assert isinstance(next_action(requesting(switchover="orders-1"), seen), Wait)


def test_fencing_all_stops_primary_last() -> None:
    view = requesting(fenced="*")
    assert next_action(view, cluster_state(THREE, primary(0), member(1), member(2))) == RecreatePod(
        1, "it is fenced by annotation"
    )
    two = [instance(0), instance(1, fenced=True, ready=True), ending(2, NOW + timedelta(seconds=100))]
    assert next_action(view, cluster_state(two, primary(0), member(2))) == Wait(
        "Fenced", "waiting for orders-2 to stop"
    )
    lost = [*two[:2], ending(2, NOW - timedelta(seconds=1))]
    assert next_action(view, cluster_state(lost, primary(0), member(2))) == RecreatePod(
        0, "it is fenced by annotation"
    )


def test_unfencing_all_starts_previous_primary_first() -> None:
    alone = replace(DECLARED, synchronous=SynchronousReplication(mode="Disabled"))
    fenced = [instance(n, fenced=True) for n in range(3)]
    assert next_action(alone, cluster_state(fenced, previous_leader=1)) == RecreatePod(1, "it is no longer fenced")
    starting = [fenced[0], instance(1, ready=False), fenced[2]]
    assert next_action(alone, cluster_state(starting, member(1, state="Starting"), previous_leader=1)) == Wait(
        "InstanceNotReady", "waiting for the previous primary orders-1"
    )
    without = requesting(fenced=frozenset({1}))
    assert next_action(without, cluster_state(fenced, previous_leader=1)) == RecreatePod(0, "it is no longer fenced")
    there = [fenced[0], instance(1), fenced[2]]
    assert next_action(alone, cluster_state(there, primary(1))) == RecreatePod(0, "it is no longer fenced")


def ending(number: int, end: datetime) -> Instance:
    """One whose pod was told to end, by then at the latest."""
    there = instance(number)
    assert there.pod is not None
    metadata = structs.replace(there.pod.metadata, deletion_timestamp=end)
    return replace(there, pod=structs.replace(there.pod, metadata=metadata))


def stopped(there: Instance) -> Instance:
    """As it is when its StatefulSet was told to run no pod."""
    assert there.statefulset is not None
    spec = structs.replace(there.statefulset.spec, replicas=0)
    return replace(there, statefulset=structs.replace(there.statefulset, spec=spec))


FULL = {"data": 100}


def test_full_disk_replica_is_not_promoted() -> None:
    first = [instance(0, hash_="old"), *THREE[1:]]
    seen = cluster_state(THREE, primary(0), member(1, storage=FULL), member(2, lag_bytes=9))
    assert next_action(requesting(switchover="any"), seen) == ResolveTarget(2)
    step = next_action(requesting(switchover="orders-1"), seen)
    assert isinstance(step, FinishSwitchover) and "its volume is full" in step.refusal
    step = next_action(DECLARED, cluster_state(first, primary(0), member(1, storage=FULL), member(2, storage=FULL)))
    assert step == Wait("DiskFull", "the volume of orders-1, orders-2 is full")


def test_newer_version_member_is_not_promoted() -> None:
    first = [instance(0, hash_="old"), *THREE[1:]]
    seen = cluster_state(first, primary(0), member(1, newer_version=True), member(2, newer_version=True))
    assert next_action(DECLARED, seen) == RecreatePod(0, "its pod differs from the declaration")
    seen = cluster_state(THREE, primary(0), member(1, newer_version=True), member(2, lag_bytes=9))
    assert next_action(requesting(switchover="any"), seen) == ResolveTarget(2)
    step = next_action(requesting(switchover="orders-1"), seen)
    assert isinstance(step, FinishSwitchover) and "a newer version than another instance" in step.refusal


def test_full_disk_server_is_not_stopped_unless_requested() -> None:
    first = [instance(0, hash_="old"), *THREE[1:]]
    seen = cluster_state(first, primary(0, storage=FULL), member(1), member(2))
    assert next_action(DECLARED, seen) == Wait("DiskFull", "the volume of orders-0 is full")
    assert next_action(requesting(switchover="any"), seen) == ResolveTarget(1)
    pending = {
        "pending_restart": True,
        "pending_settings": (PendingSetting(name="max_connections", previous="5", value="9"),),
    }
    seen = cluster_state(THREE, primary(0, storage=FULL, **pending), member(1, **pending), member(2))
    assert isinstance(next_action(DECLARED, seen), Wait)


def test_full_disk_server_is_stopped_if_resize_needs_it() -> None:
    condition = {"type": "FileSystemResizePending", "status": "True"}
    claim = {"metadata": {"name": "data-orders-0"}, "status": {"phase": "Bound", "conditions": [condition]}}
    grown = replace(instance(0, hash_="old"), data=decode_builtins(claim, PersistentVolumeClaim))
    seen = cluster_state([grown, *THREE[1:]], primary(0, storage=FULL), member(1), member(2))
    assert next_action(DECLARED, seen) == SwitchOver(1, "the pod of the primary must be recreated")
