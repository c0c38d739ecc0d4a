"""The planner, asked without anything around it: what comes first, and who is never touched."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest
from msgspec import structs

from database_support.planned_cluster import (
    NOW,
    THREE,
    VIEW,
    WELL,
    asking,
    cut_off,
    instance,
    member,
    observed,
    primary,
)
from steersman.api.apps_v1 import StatefulSet
from steersman.api.core_v1 import PersistentVolumeClaim
from steersman.meta import decode_builtins
from steersman_databases.api import PostgreSQLCluster
from steersman_databases.api.postgresql_cluster import PostgreSQLClusterSpec
from steersman_databases.clusters.observed import Instance, Observed
from steersman_databases.clusters.plan import next_step, stop
from steersman_databases.clusters.steps import (
    BeginAnew,
    ChooseSwitchover,
    CreateInstance,
    EndReplacement,
    EndSwitchover,
    KeepInstance,
    RenewPod,
    RestartServer,
    RetireInstance,
    StopInstance,
    SwitchOver,
    Wait,
)
from steersman_databases.controllers.cluster_status import Findings, describe, judge_available, phase_of
from steersman_databases.engines.cluster import Synchronous
from steersman_databases.engines.topology import Member, MemberState, PendingSetting, SwitchoverRequest


def test_nothing_is_done_where_all_is_as_declared() -> None:
    assert next_step(VIEW, WELL) is None


@pytest.mark.parametrize(
    ("seen", "step"),
    [
        (observed([], initialized=False), CreateInstance(0)),
        (observed([instance(0)], primary(0)), CreateInstance(1)),
        (observed([instance(0), instance(4)], primary(0), member(4)), CreateInstance(5)),
    ],
)
def test_makes_what_is_missing(seen: Observed, step: object) -> None:
    assert next_step(VIEW, seen) == step


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
def test_who_said_that_it_makes_the_data_and_does_not_begins_anew(
    state: MemberState, seconds: int, begun: bool, begins: bool
) -> None:
    seen = observed([instance(0, ready=False)], member(0, state=state), initialized=False, begun=begun)
    seen = replace(seen, now=datetime(2026, 11, 21, 23, 59, tzinfo=UTC) + timedelta(seconds=seconds))
    waits = Wait("Creating", "waiting for instance orders-0")
    assert next_step(VIEW, seen) == (BeginAnew(0) if begins else waits)


def test_takes_the_newest_that_is_not_the_primary() -> None:
    smaller = replace(VIEW, instances=2)
    assert next_step(smaller, WELL) == RetireInstance(2, "spec.instances is smaller")
    led_by_two = observed(THREE, primary(2), member(0), member(1))
    assert next_step(smaller, led_by_two) == RetireInstance(1, "spec.instances is smaller")


def test_all_that_are_to_go_need_not_be_well() -> None:
    alone = replace(VIEW, instances=1)
    pending = observed([instance(0), instance(1, ready=False), instance(2, ready=False)], primary(0))
    assert next_step(alone, pending) == RetireInstance(2, "spec.instances is smaller")
    left = observed([instance(0), instance(1, ready=False)], primary(0))
    assert next_step(alone, left) == RetireInstance(1, "spec.instances is smaller")
    assert isinstance(next_step(replace(VIEW, instances=2), left), Wait), "who stays must be well"


def test_what_is_fenced_is_not_taken_away() -> None:
    fenced = [instance(0), instance(1, fenced=True), instance(2)]
    seen = observed(fenced, primary(0), member(2))
    smaller = replace(asking(fenced=frozenset({1})), instances=2)
    assert next_step(smaller, seen) == Wait(
        "Fenced", "orders-1 is fenced, and stays beside the 2 that spec.instances wants"
    )
    assert next_step(replace(smaller, instances=1), seen) == RetireInstance(2, "spec.instances is smaller")


def test_never_takes_the_only_synchronous_standby() -> None:
    seen = observed(THREE, primary(0), member(1, synchronous=False), member(2))
    assert next_step(replace(VIEW, instances=2), seen) == RetireInstance(1, "spec.instances is smaller")


@pytest.mark.parametrize(
    ("instances", "seen", "step"),
    [
        (2, observed([*THREE[:2], cut_off(2)], primary(0), member(1), member(2)), True),
        # It took over meanwhile, is the only one that has all, or is wanted again; or nobody can be asked.
        (2, observed([*THREE[:2], cut_off(2)], primary(2), member(0), member(1)), False),
        (2, observed([*THREE[:2], cut_off(2)], primary(0), member(1, synchronous=False), member(2)), False),
        (3, observed([*THREE[:2], cut_off(2)], primary(0), member(1), member(2)), False),
        (2, observed([*THREE[:2], cut_off(2)], member(1), member(2)), False),
    ],
)
def test_a_removal_that_was_cut_off_goes_on_only_where_it_would_begin_now(
    instances: int, seen: Observed, step: bool
) -> None:
    goes, stays = RetireInstance(2, "spec.instances is smaller"), KeepInstance(2)
    assert next_step(replace(VIEW, instances=instances), seen) == (goes if step else stays)


def test_disturbs_nobody_while_one_is_not_well() -> None:
    old = [instance(0, hash_="old"), instance(1, hash_="old"), instance(2)]
    for other in (member(2, state="Starting"), member(2, timeline=9)):
        assert isinstance(next_step(VIEW, observed(old, primary(0), member(1), other)), Wait)
    assert isinstance(
        next_step(VIEW, observed(old, primary(0), member(1), member(2), switchover=SwitchoverRequest(to=1))), Wait
    )


def test_renews_the_replica_that_lags_most_and_the_primary_last() -> None:
    old = [instance(n, hash_="old") for n in range(3)]
    seen = observed(old, primary(0), member(1, lag_bytes=5), member(2, lag_bytes=7))
    assert next_step(VIEW, seen) == RenewPod(2, "its pod is not as declared")
    seen = observed(
        [instance(0, hash_="old"), *THREE[1:]], primary(0), member(1, lag_bytes=5), member(2, lag_bytes=7)
    )
    assert next_step(VIEW, seen) == SwitchOver(1, "its primary is renewed")


def test_hands_over_only_to_who_has_all_that_was_committed() -> None:
    seen = observed(
        [instance(0, hash_="old"), *THREE[1:]], primary(0), member(1, synchronous=False), member(2, lag_bytes=9)
    )
    assert next_step(VIEW, seen) == SwitchOver(2, "its primary is renewed")


def test_lowers_on_the_primary_first_and_raises_on_it_last() -> None:
    def pending(former: str, value: str) -> dict[str, Any]:
        setting = PendingSetting(name="max_connections", former=former, value=value)
        return {"pending_restart": True, "pending": (setting,)}

    lower = pending("100", "50")
    seen = observed(THREE, primary(0, **lower), member(1, **lower), member(2, **lower))
    assert next_step(VIEW, seen) == RestartServer(0, "a parameter is lowered")
    higher = pending("50", "100")
    seen = observed(THREE, primary(0, **higher), member(1, **higher), member(2))
    assert next_step(VIEW, seen) == RestartServer(1, "a parameter needs it")
    seen = observed(THREE, primary(0, **higher), member(1), member(2))
    assert next_step(VIEW, seen) == SwitchOver(1, "a parameter needs a restart")


def test_raises_on_the_replicas_before_the_primary_starts_with_both_what_is_more_and_what_is_less() -> None:
    lower = PendingSetting(name="max_connections", former="100", value="50")
    both = {
        "pending_restart": True,
        "pending": (lower, PendingSetting(name="max_worker_processes", former="8", value="16")),
    }
    rest = {"pending_restart": True, "pending": (lower,)}
    first = "a parameter is raised before another one is lowered"
    seen = observed(THREE, primary(0, **both), member(1, **both), member(2, **both))
    assert next_step(VIEW, seen) == RestartServer(1, first)
    # It has the higher one now, and starts with the lower one when its primary has it.
    seen = observed(THREE, primary(0, **both), member(1, **rest), member(2, **both))
    assert next_step(VIEW, seen) == RestartServer(2, first)
    seen = observed(THREE, primary(0, **both), member(1, **rest), member(2, **rest))
    assert next_step(VIEW, seen) == RestartServer(0, "a parameter is lowered")
    seen = observed(THREE, primary(0), member(1, **rest), member(2, **rest))
    assert next_step(VIEW, seen) == RestartServer(1, "a parameter needs it")


def _raised(name: str, former: str, value: str = "10") -> dict[str, Any]:
    return {"pending_restart": True, "pending": (PendingSetting(name=name, former=former, value=value),)}


FIVE = replace(VIEW, instances=5)
LATER = NOW + timedelta(minutes=10)


def _five(*others: Member, late: bool = True, **said: Any) -> Observed:
    """Three replicas stream; the last of four does what ``others`` says."""
    instances = [*(instance(n) for n in range(4)), instance(4, ready=False)]
    seen = observed(instances, primary(0, **said), *(member(n) for n in range(1, 4)), *others)
    return replace(seen, now=LATER) if late else seen


def test_what_keeps_a_replica_from_following_is_raised_without_waiting_for_it() -> None:
    senders = _raised("max_wal_senders", "3")
    runs = member(4, state="Running", synchronous=False)
    hands_over = SwitchOver(1, "a parameter needs a restart")
    assert next_step(FIVE, _five(runs, **senders)) == hands_over
    assert next_step(FIVE, _five(runs, **_raised("max_replication_slots", "3"))) == hands_over
    restarts = replace(runs, pending_restart=True)
    assert next_step(FIVE, _five(restarts, **senders)) == RestartServer(4, "a parameter needs it")
    # A copy takes two senders, or a slot beside those of the members.
    copies = member(4, state="Cloning", synchronous=False)
    for name, former in (("max_wal_senders", "4"), ("max_replication_slots", "4")):
        assert next_step(FIVE, _five(copies, late=False, **_raised(name, former))) == hands_over


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
def test_who_does_not_follow_for_another_reason_is_waited_for(state: MemberState, said: dict[str, Any]) -> None:
    step = next_step(FIVE, _five(member(4, state=state, synchronous=False), **said))
    assert isinstance(step, Wait) and step.reason == "InstanceNotReady"


def test_nobody_is_restarted_for_a_replica_that_may_be_about_to_stream_or_beside_another_that_is_unwell() -> None:
    runs, senders = member(4, state="Running", synchronous=False), _raised("max_wal_senders", "3")
    starts = _five(runs, **senders)
    starts = replace(
        starts, instances=[*starts.instances[:3], replace(starts.instances[3], member=None), starts.instances[4]]
    )
    full = _five(runs, storage=FULL, **senders)
    switched = _five(runs, **senders)
    switched = replace(switched, members=replace(switched.members, switchover=SwitchoverRequest(to=1)))
    for seen in (_five(runs, late=False, **senders), starts, full, switched):
        step = next_step(FIVE, seen)
        assert isinstance(step, Wait) and step.reason == "InstanceNotReady"


def test_a_person_comes_first() -> None:
    broken = observed(THREE, member(0), member(1), member(2, state="StartFailed"), leader=None)
    fenced = next_step(asking(fenced=frozenset({1})), broken)
    assert fenced == RenewPod(1, "it is to be fenced")
    assert next_step(replace(VIEW, hibernated=True), WELL) == StopInstance(1)


def test_a_replica_on_a_lost_node_keeps_nobody_awake_and_no_primary_from_serving_before_an_upgrade() -> None:
    asleep = replace(VIEW, hibernated=True)
    gone = replace(stopped(instance(1)), pod=None)
    lost = stopped(ending(2, NOW - timedelta(seconds=1)))
    seen = observed([instance(0), gone, lost], primary(0))
    way_out = "waiting for orders-2 to stop (if the node of pod orders-2-0 is lost, give it the taint "
    assert next_step(asleep, seen) == StopInstance(0)
    waits = stop(VIEW, seen, "Upgrading")
    assert isinstance(waits, Wait) and waits.message.startswith(way_out)
    former = replace(stopped(instance(0)), pod=None)
    waits = next_step(asleep, observed([former, gone, lost]))
    assert isinstance(waits, Wait) and waits.message.startswith(way_out)
    still = stopped(ending(1, NOW + timedelta(seconds=1)))
    waits = next_step(asleep, observed([instance(0), still, lost], primary(0)))
    assert isinstance(waits, Wait) and waits.message.endswith("before the primary does")


def test_hibernated_is_said_when_nobody_runs_any_more() -> None:
    """Who waits for it may take volumes away."""
    asleep, declared = replace(VIEW, hibernated=True), PostgreSQLCluster(spec=PostgreSQLClusterSpec(hibernated=True))

    def phase(instances: list[Instance]) -> str:
        seen, findings = observed(instances, leader=0), Findings()
        judge_available(asleep, seen, findings)
        describe(declared, asleep, next_step(asleep, seen), findings)
        assert findings.found["Available"].reason == "Hibernated"
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
        ("any", ChooseSwitchover(1)),
        ("orders-2", SwitchOver(2, "it was asked for")),
        ("orders-0", EndSwitchover("orders-0")),
        ("orders-9", EndSwitchover("orders-9", "there is no instance of this name")),
    ],
)
def test_switchover(wanted: str, step: object) -> None:
    assert next_step(asking(switchover=wanted), WELL) == step


@pytest.mark.parametrize(
    ("wanted", "step"),
    [
        ("orders-2", RetireInstance(2, "it was asked for", failed=True)),
        ("orders-0", EndReplacement("orders-0", "it is the primary; make another instance that first")),
        ("orders-9", EndReplacement("orders-9", "there is no instance of this name")),
        ("shop-1", EndReplacement("shop-1", "there is no instance of this name")),
    ],
)
def test_an_instance_is_replaced_on_request(wanted: str, step: object) -> None:
    on_request = replace(asking(replace=wanted), replaces_failed=False)
    assert next_step(on_request, WELL) == step
    assert isinstance(next_step(on_request, observed(THREE, member(0), member(1), member(2), leader=None)), Wait)


def test_what_was_replaced_on_request_ends_it() -> None:
    gone = observed([THREE[0], THREE[1], instance(3)], primary(0), member(1), member(3))
    assert next_step(asking(replace="orders-2"), gone) == EndReplacement("orders-2")


def test_on_request_too_one_is_replaced_at_a_time_and_never_the_only_copy() -> None:
    view = asking(replace="orders-2")
    strays = observed(THREE, primary(0), member(1, state="Running"), member(2))
    assert isinstance(next_step(view, strays), Wait), "the other one does not follow"
    lagging = observed(THREE, primary(0), member(1, synchronous=False), member(2))
    step = next_step(view, lagging)
    assert isinstance(step, EndReplacement) and "the only one that has all" in step.refused
    assert isinstance(next_step(view, observed([THREE[0], THREE[2]], primary(0), member(2))), EndReplacement)
    stray = observed(THREE, primary(0), member(1), member(2, state="Running", synchronous=False))
    assert isinstance(next_step(view, stray), RetireInstance)
    made = observed([THREE[0], THREE[2]], primary(0), member(2, state="Running", synchronous=False))
    assert next_step(view, made) == CreateInstance(3), "another is being made"


def test_a_copy_under_way_is_not_begun_anew() -> None:
    copying = instance(1, ready=False, hash_="other")
    later = NOW + timedelta(hours=1)
    seen = replace(observed([instance(0), copying], primary(0), member(1, state="Cloning")), now=later)
    assert not isinstance(next_step(replace(VIEW, instances=2), seen), RenewPod)


def test_a_switchover_does_not_wait_for_who_is_not_well() -> None:
    cloning = observed([*THREE[:2], instance(2, ready=False)], primary(0), member(1), member(2, state="Cloning"))
    assert next_step(asking(switchover="orders-1"), cloning) == SwitchOver(1, "it was asked for")
    assert next_step(asking(switchover="any"), cloning) == ChooseSwitchover(1)
    assert next_step(asking(switchover="orders-9"), cloning) == EndSwitchover(
        "orders-9", "there is no instance of this name"
    )
    step = next_step(asking(switchover="orders-2"), cloning)
    assert isinstance(step, Wait)
    assert step.message.endswith("is Cloning on timeline 1; the switchover that is asked for waits for it"), step
    handing = replace(cloning, members=replace(cloning.members, switchover=SwitchoverRequest(to=1)))
    assert next_step(asking(switchover="orders-1"), handing) == Wait(
        "InstanceNotReady", "instance orders-2 is Cloning on timeline 1"
    )
    # As where a disk is full, which the switchover leaves, and a third server has crashed for the same.
    crashed = member(2, state="Crashed", storage=FULL)
    full = observed([*THREE[:2], instance(2, ready=False)], primary(0, storage=FULL), member(1), crashed)
    assert next_step(asking(switchover="orders-1"), replace(full, now=LATER)) == SwitchOver(1, "it was asked for")


@pytest.mark.parametrize("state", ["Running", "Isolated", "Starting", "Crashed"])
def test_a_switchover_waits_for_who_is_about_to_be_well(state: MemberState) -> None:
    """MySQL's group appoints nobody while a member joins it, or is gone and still counted."""
    joining = observed([*THREE[:2], instance(2, ready=False)], primary(0), member(1), member(2, state=state))
    assert isinstance(next_step(asking(switchover="orders-1"), joining), Wait)
    if state != "Crashed":
        assert isinstance(next_step(asking(switchover="orders-1"), replace(joining, now=LATER)), Wait)


def test_a_switchover_waits_until_all_have_what_is_lowered() -> None:
    lower = {"pending_restart": True, "pending": (PendingSetting(name="max_connections", former="100", value="50"),)}
    five = [*THREE[:2], instance(2, ready=False)]
    seen = observed(five, primary(0), member(1, **lower), member(2, state="Cloning"))
    assert isinstance(next_step(asking(switchover="orders-1"), seen), Wait)


def test_of_all_that_are_fenced_the_primary_is_the_last() -> None:
    view = asking(fenced="*")
    assert next_step(view, observed(THREE, primary(0), member(1), member(2))) == RenewPod(1, "it is to be fenced")
    two = [instance(0), instance(1, fenced=True, ready=True), ending(2, NOW + timedelta(seconds=100))]
    assert next_step(view, observed(two, primary(0), member(2))) == Wait("Fenced", "waiting for orders-2 to stop")
    lost = [*two[:2], ending(2, NOW - timedelta(seconds=1))]
    assert next_step(view, observed(lost, primary(0), member(2))) == RenewPod(0, "it is to be fenced")


def test_of_all_that_were_fenced_the_former_primary_is_the_first() -> None:
    alone = replace(VIEW, synchronous=Synchronous(mode="Off"))
    fenced = [instance(n, fenced=True) for n in range(3)]
    assert next_step(alone, observed(fenced, former_leader=1)) == RenewPod(1, "it is not fenced any more")
    starting = [fenced[0], instance(1, ready=False), fenced[2]]
    assert next_step(alone, observed(starting, member(1, state="Starting"), former_leader=1)) == Wait(
        "InstanceNotReady", "waiting for the former primary orders-1"
    )
    without = asking(fenced=frozenset({1}))
    assert next_step(without, observed(fenced, former_leader=1)) == RenewPod(0, "it is not fenced any more")
    there = [fenced[0], instance(1), fenced[2]]
    assert next_step(alone, observed(there, primary(1))) == RenewPod(0, "it is not fenced any more")


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


def test_nobody_who_has_no_room_becomes_the_primary() -> None:
    first = [instance(0, hash_="old"), *THREE[1:]]
    seen = observed(THREE, primary(0), member(1, storage=FULL), member(2, lag_bytes=9))
    assert next_step(asking(switchover="any"), seen) == ChooseSwitchover(2)
    step = next_step(asking(switchover="orders-1"), seen)
    assert isinstance(step, EndSwitchover) and "its volume is full" in step.refused
    step = next_step(VIEW, observed(first, primary(0), member(1, storage=FULL), member(2, storage=FULL)))
    assert step == Wait("DiskFull", "no room is left at orders-1, orders-2")


def test_nobody_is_asked_to_be_primary_who_is_newer_than_others_of_its_group() -> None:
    first = [instance(0, hash_="old"), *THREE[1:]]
    seen = observed(first, primary(0), member(1, newer=True), member(2, newer=True))
    assert next_step(VIEW, seen) == RenewPod(0, "its pod is not as declared")
    seen = observed(THREE, primary(0), member(1, newer=True), member(2, lag_bytes=9))
    assert next_step(asking(switchover="any"), seen) == ChooseSwitchover(2)
    step = next_step(asking(switchover="orders-1"), seen)
    assert isinstance(step, EndSwitchover) and "newer than another of its group" in step.refused


def test_a_server_without_room_is_not_stopped_unless_somebody_wants_it() -> None:
    first = [instance(0, hash_="old"), *THREE[1:]]
    seen = observed(first, primary(0, storage=FULL), member(1), member(2))
    assert next_step(VIEW, seen) == Wait("DiskFull", "no room is left at orders-0")
    assert next_step(asking(switchover="any"), seen) == ChooseSwitchover(1)
    pending = {"pending_restart": True, "pending": (PendingSetting(name="max_connections", former="5", value="9"),)}
    seen = observed(THREE, primary(0, storage=FULL, **pending), member(1, **pending), member(2))
    assert isinstance(next_step(VIEW, seen), Wait)


def test_it_is_where_its_volume_grows_then() -> None:
    condition = {"type": "FileSystemResizePending", "status": "True"}
    claim = {"metadata": {"name": "data-orders-0"}, "status": {"phase": "Bound", "conditions": [condition]}}
    grown = replace(instance(0, hash_="old"), data=decode_builtins(claim, PersistentVolumeClaim))
    seen = observed([grown, *THREE[1:]], primary(0, storage=FULL), member(1), member(2))
    assert next_step(VIEW, seen) == SwitchOver(1, "its primary is renewed")
