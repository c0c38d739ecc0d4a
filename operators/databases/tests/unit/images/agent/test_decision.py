"""What a member does: each reason to wait, and what follows when it is gone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from steersman_agent.group.decision import (
    GroupMember,
    GroupState,
    GroupView,
    MemberDecision,
    MemberState,
    SwitchoverTarget,
    decide,
)
from steersman_agent.group.group_status import is_different_group, is_older_view
from steersman_instance.gtids import GtidSet

GROUP = "aaaaaaaa-aaaa-aaaa-aaaa-aaaaaaaaaaaa"
ERRANT = "bbbbbbbb-bbbb-bbbb-bbbb-bbbbbbbbbbbb"
STORE = GroupState(
    epoch=1, known_instances=frozenset({0, 1, 2}), leader=0, leader_uuid="server-0", leader_view="17:3"
)


def member(instance: int, state: MemberState, *, has: str = f"{GROUP}:1-10", primary: bool = False) -> GroupMember:
    uuid = "" if state == "Empty" else f"server-{instance}"
    return GroupMember(instance=instance, state=state, uuid=uuid, gtids=GtidSet.parse(has), primary=primary)


def decision(me: GroupMember, *members: GroupMember, store: GroupState = STORE, **view: Any) -> MemberDecision:
    return decide(GroupView(own=me, others=members, store=store, **view))


def others(state: MemberState, **says: Any) -> Sequence[GroupMember]:
    return [member(1, state, **says), member(2, state, **says)]


def test_first_instance_initialises_and_bootstraps() -> None:
    new = GroupState(known_instances=frozenset({0}))
    assert decision(member(0, "Empty", has=""), store=new).operation == "Initialise"
    assert decision(member(0, "Stopped", has=""), store=new).operation == "Start"
    assert decision(member(0, "Offline", has=""), store=new).operation == "Found"


@pytest.mark.parametrize(
    ("me", "store"),
    [
        (member(1, "Empty", has=""), GroupState(known_instances=frozenset({0, 1}))),
        # The operator has not said yet who belongs to the cluster.
        (member(0, "Empty", has=""), GroupState()),
        # There has been a group: its data are somewhere, or a person has to know that they are not.
        (member(0, "Empty", has=""), GroupState(epoch=1, known_instances=frozenset({0}))),
    ],
)
def test_other_instances_never_initialise(me: GroupMember, store: GroupState) -> None:
    assert decision(me, store=store).operation == "Wait"


def test_recreated_group_config_proves_nothing() -> None:
    lost, empty = GroupState(known_instances=frozenset({0, 1})), member(0, "Empty", has="")
    assert "instance 1 has not been seen" in decision(empty, store=lost).reason
    assert decision(empty, member(1, "Stopped"), store=lost).operation == "Wait"
    assert decision(empty, member(1, "Empty", has=""), store=lost).operation == "Initialise"
    # A member's volume remembers the group that it was in last.
    was_in_one = replace(member(1, "Empty", has=""), epoch=4)
    assert decision(empty, was_in_one, store=lost).operation == "Wait"
    with_data = GroupView(own=member(0, "Offline"), others=[replace(member(1, "Offline"), epoch=4)], store=lost)
    assert decide(with_data).operation == "Found" and with_data.epoch == 4


@pytest.mark.parametrize("state", ["Empty", "Stopped", "Starting", "Cloning", None])
def test_never_member_is_not_waited_for(state: MemberState | None) -> None:
    """Its pod may never run: no node, no image, no volume."""
    store = replace(STORE, members=frozenset({0, 1}))
    never = [] if state is None else [member(2, state, has="")]
    seen = GroupView(own=member(0, "Offline"), others=[member(1, "Offline"), *never], store=store)
    assert decide(seen).operation == "Found" and not seen.unseen_instances
    assert decision(member(0, "Offline"), *never, store=store).reason.endswith("instance 1 has not been seen")
    # Where it is not known who was, or the store is an earlier one than the data, everybody may have been.
    if state != "Empty":
        assert decision(member(0, "Offline"), member(1, "Offline"), *never).operation == "Wait"
        later = replace(member(1, "Offline"), epoch=2)
        assert decision(member(0, "Offline"), later, *never, store=store).operation == "Wait"


def test_new_member_clones_and_joins() -> None:
    known = GroupState(known_instances=frozenset({0, 1}), members=frozenset({0}))
    assert known.with_member(1).members == known.with_member(1).with_member(1).members == {0, 1}
    assert GroupState(known_instances=frozenset({0, 1})).with_member(0).members == {0, 1}
    assert GroupState().with_member(0).members is None, "nobody said yet who there is"


@pytest.mark.parametrize("store", [GroupState(), replace(STORE, known_instances=frozenset({1, 2}))])
def test_foreign_instance_neither_bootstraps_nor_joins(store: GroupState) -> None:
    alive = GtidSet.parse(f"{GROUP}:1-20")
    assert decision(member(0, "Offline"), store=store).operation == "Wait"
    assert decision(member(0, "Offline"), store=replace(store, forced_recovery_instance=0)).operation == "Wait"
    assert decision(member(0, "Offline"), *others("Online"), store=store, group_executed=alive).operation == "Wait"


def test_join_waits_for_group_name() -> None:
    founded, alive = replace(STORE, leader_view=""), GtidSet.parse(f"{GROUP}:1-20")
    assert decision(member(0, "Offline"), *others("Online"), store=founded, group_executed=alive) == MemberDecision(
        "Wait", "the primary has not written down yet which group it leads"
    )


def test_empty_member_clones_from_replica_first() -> None:
    assert decision(
        member(0, "Empty", has=""), member(1, "Online", primary=True), member(2, "Online")
    ) == MemberDecision("Clone", "instance 2 is online", 2)


@pytest.mark.parametrize(("failed", "next_one"), [([], 1), ([1], 2), ([1, 2], 0), ([1, 2, 0], 1), ([2, 0, 1], 2)])
def test_failed_donor_is_tried_last(failed: list[int], next_one: int) -> None:
    there = [member(0, "Online", primary=True), member(1, "Online"), member(2, "Online")]
    empty = decision(member(3, "Empty", has=""), *there, failed_donors=failed)
    assert (empty.operation, empty.target) == ("Clone", next_one)
    store, group = replace(STORE, known_instances=frozenset(range(4))), GtidSet.parse(f"{GROUP}:1-20")
    lacking = decision(
        member(3, "Offline", has=""),
        *there,
        store=store,
        group_executed=group,
        purged_by_donor=[GtidSet.parse(f"{GROUP}:1-5")],
        failed_donors=failed,
    )
    assert (lacking.operation, lacking.target) == ("Clone", next_one)


def test_errant_member_stays_out_and_names_transactions() -> None:
    group = GtidSet.parse(f"{GROUP}:1-20")
    me = member(0, "Offline", has=f"{GROUP}:1-10,{ERRANT}:1-2")
    found = decision(me, *others("Online"), group_executed=group)
    assert found.operation == "Wait" and f"{ERRANT}:1-2" in found.reason
    assert decision(member(0, "Offline"), *others("Online"), group_executed=group).operation == "Join"
    # Nobody has said what the group has: a published set may be an old one.
    assert decision(member(0, "Offline"), *others("Online")).operation == "Wait"


def test_in_flight_transactions_are_waited_for() -> None:
    view = GroupView(own=member(0, "Offline", has=f"{GROUP}:1-12"), others=others("Online"), store=STORE)
    early = replace(view, group_executed=GtidSet.parse(f"{GROUP}:1-10"))
    found = decide(early)
    assert found.operation == "Wait" and found.reason.endswith("as far as its members know by now")
    late = decide(replace(early, errant_gtids=GtidSet.parse(f"{GROUP}:11-12")))
    assert late == MemberDecision("Wait", f"it has 2 transactions that the group has not: {GROUP}:11-12")
    assert decide(replace(early, group_executed=GtidSet.parse(f"{GROUP}:1-12"))).operation == "Join"


def test_missing_purged_transactions_trigger_clone() -> None:
    group = GtidSet.parse(f"{GROUP}:1-30")
    gone, partly = GtidSet.parse(f"{GROUP}:1-20"), GtidSet.parse(f"{GROUP}:1-14")
    me = member(0, "Offline", has=f"{GROUP}:1-10")

    def found(me: GroupMember, *purged: GtidSet, **view: Any) -> MemberDecision:
        return decision(me, *others("Online"), group_executed=group, purged_by_donor=purged, **view)

    assert found(me, gone, partly) == MemberDecision(
        "Clone",
        "nobody in the group has the binary logs of 4 transactions that this one lacks: its data are replaced by"
        " another copy",
        1,
    )
    # One who has them is enough, and who has all of what is gone needs none.
    assert found(me, gone, GtidSet.parse(f"{GROUP}:1-10")).operation == "Join"
    assert found(member(0, "Offline", has=f"{GROUP}:1-20"), gone).operation == "Join"
    assert found(me).operation == "Join"
    # One that has not answered may have them; Group Replication would not wait for it.
    assert found(me, gone, all_answered=False).operation == "Wait"
    assert found(me, GtidSet.parse(f"{GROUP}:1-10"), all_answered=False).operation == "Join"
    # What nobody else has is not thrown away.
    assert found(member(0, "Offline", has=f"{GROUP}:1-10,{ERRANT}:1"), gone).operation == "Wait"


def test_group_without_quorum_is_not_joined() -> None:
    """Its primary would wait for who is joining, once it has given up, and that one for the primary."""
    group, me = GtidSet.parse(f"{GROUP}:1-10"), member(1, "Offline", has=f"{GROUP}:1-10")
    assert decision(me, *others("Online"), group_executed=group).operation == "Join"
    waits = decision(me, *others("Online"), group_executed=group, quorum_lost=True)
    assert waits == MemberDecision(
        "Wait", "most of the group does not answer who is left of it, and it takes nobody in"
    )


def test_listed_member_does_not_join() -> None:
    """It ended a moment ago, and they have not noticed."""
    group, me = GtidSet.parse(f"{GROUP}:1-10"), member(1, "Offline", has=f"{GROUP}:1-10")
    waits = decision(me, *others("Online"), group_executed=group, is_listed=True)
    assert waits == MemberDecision("Wait", "the group has not put out yet who this one was before it ended")


@pytest.mark.parametrize("state", ["Stopped", "Starting", "Joining", "Recovering", "Failed", "Cloning"])
def test_bootstrap_requires_all_outside_a_group(state: MemberState) -> None:
    assert decision(member(0, "Offline"), member(1, "Offline"), member(2, state)).operation == "Wait"
    assert decision(member(0, "Offline"), *others("Offline")).operation == "Found"
    assert decision(member(0, "Offline"), member(1, "Offline"), member(2, "Empty", has="")).operation == "Found"


def test_bootstrap_requires_all_seen() -> None:
    found = decision(member(0, "Offline"), member(1, "Offline"))
    assert found == MemberDecision("Wait", "nobody is online, and instance 2 has not been seen")


def test_bootstrap_requires_all_transactions() -> None:
    more = member(1, "Offline", has=f"{GROUP}:1-12")
    assert decision(member(0, "Offline"), more, member(2, "Offline")) == MemberDecision(
        "Wait", "instance 1 has 2 transactions that this one has not"
    )
    assert decision(more, member(0, "Offline"), member(2, "Offline")).operation == "Found"


def test_mutually_missing_transactions_need_consent() -> None:
    one, other = member(0, "Offline", has=f"{GROUP}:1-11"), member(1, "Offline", has=f"{GROUP}:1-10,{ERRANT}:1")
    store = replace(STORE, known_instances=frozenset({0, 1}))
    assert decision(one, other, store=store).operation == decision(other, one, store=store).operation == "Wait"
    consent = replace(store, forced_recovery_instance=1)
    assert decision(one, other, store=consent).operation == "Wait"
    assert decision(other, one, store=consent).operation == "Found"


def test_equal_members_last_primary_bootstraps() -> None:
    store = replace(STORE, leader=1, leader_uuid="server-1")
    assert decision(member(0, "Offline"), *others("Offline"), store=store).operation == "Wait"
    # It may have died since it said that it is offline.
    assert (
        decision(member(0, "Offline"), *others("Offline"), store=store, yields_to_equals=False).operation == "Found"
    )
    assert (
        decision(member(1, "Offline"), member(0, "Offline"), member(2, "Offline"), store=store).operation == "Found"
    )


def test_missing_last_primary_requires_consent() -> None:
    """It may have acknowledged what the others had in memory alone."""
    lost = [member(0, "Empty", has=""), member(2, "Offline")]
    assert "instance 0" in decision(member(1, "Offline"), *lost).reason
    assert (
        decision(member(1, "Offline"), *lost, store=replace(STORE, forced_recovery_instance=1)).operation == "Found"
    )


def test_stopping_primary_switches_over_first() -> None:
    me = member(0, "Online", primary=True)
    assert decision(me, *others("Online"), has_majority=True, is_stopping=True) == MemberDecision(
        "HandOver", "this pod is about to end", 1
    )
    # Nobody could take over: it leaves, and with it the group ends.
    assert decision(me, *others("Offline"), has_majority=True, is_stopping=True).operation == "Leave"
    assert decision(me, *others("Online"), has_majority=False, is_stopping=True).operation == "Leave"
    assert decision(member(0, "Online"), *others("Online"), has_majority=True, is_stopping=True).operation == "Leave"
    assert decision(member(0, "Offline"), is_stopping=True).operation == "Stop"
    assert decision(member(0, "Stopped"), is_stopping=True).operation == "Wait"


def test_successor_has_shortest_queue() -> None:
    me, behind = member(0, "Online", primary=True), replace(member(1, "Online"), queued=1000)
    assert decision(me, behind, member(2, "Online"), has_majority=True, is_stopping=True).target == 2
    anybody = replace(STORE, switchover=SwitchoverTarget(None))
    assert decision(me, behind, member(2, "Online"), store=anybody, has_majority=True).target == 2
    named = replace(STORE, switchover=SwitchoverTarget(1))
    assert decision(me, behind, member(2, "Online"), store=named, has_majority=True).target == 1


def test_requested_switchover_is_done_by_primary() -> None:
    asked = replace(STORE, switchover=SwitchoverTarget(2))
    primary, replica = member(0, "Online", primary=True), member(1, "Online")
    assert decision(primary, *others("Online"), store=asked, has_majority=True).target == 2
    assert decision(replica, primary, store=asked, has_majority=True).operation == "Wait"
    assert decision(primary, *others("Online"), store=asked, has_majority=False).operation == "Wait"
    anybody = replace(STORE, switchover=SwitchoverTarget(None))
    assert decision(primary, *others("Online"), store=anybody, has_majority=True).target == 1


def test_member_without_quorum_reports_it() -> None:
    found = decision(member(0, "Online", primary=True), has_majority=False)
    assert found.operation == "Wait" and "most of the group" in found.reason


def test_silent_member_is_overruled_by_consent_only() -> None:
    silent = [member(1, "Online", primary=True), member(2, "Offline")]
    assert decision(member(0, "Offline"), *silent).operation == "Wait"
    consented = replace(STORE, forced_recovery_instance=0)
    assert decision(member(0, "Offline"), *silent, store=consented).operation == "Found"
    # A group that lives needs nobody's consent.
    alive = GtidSet.parse(f"{GROUP}:1-20")
    assert decision(member(0, "Offline"), *silent, store=consented, group_executed=alive).operation == "Join"


@pytest.mark.parametrize("state", ["Recovering", "Online"])
@pytest.mark.parametrize("majority", [True, False])
def test_superseded_group_member_leaves(state: MemberState, majority: bool) -> None:
    me = member(0, state, primary=state == "Online")
    assert decision(me, *others("Online"), has_majority=majority, is_superseded=True).operation == "Leave"
    assert decision(me, *others("Online"), has_majority=majority).operation == "Wait"
    # Who is in none joins the new one, if he has nothing that it has not.
    alive = GtidSet.parse(f"{GROUP}:1-20")
    assert (
        decision(member(0, "Offline"), *others("Online"), group_executed=alive, is_superseded=True).operation
        == "Join"
    )


def test_stopping_member_tries_nothing_twice() -> None:
    me = member(0, "Online", primary=True)
    tried: frozenset[str] = frozenset()
    for deed in ("HandOver", "Leave", "Stop", "Stop"):
        assert decision(me, *others("Online"), has_majority=True, is_stopping=True, attempted=tried).operation == deed
        tried |= {deed}


def test_outage_reports_data_for_consent() -> None:
    store = replace(STORE, leader=2, leader_uuid="server-2")
    me = member(0, "Offline", has=f"{GROUP}:1-10")
    ahead = member(1, "Offline", has=f"{GROUP}:1-12")
    seen = GroupView(own=me, others=[ahead, member(2, "Empty", has="")], store=store)
    assert seen.in_outage and str(seen.missing_gtids) == f"{GROUP}:11-12"
    # The last primary's number is there, and its data are not.
    assert seen.unseen_instances == [2]
    assert GroupView(own=me, others=[member(2, "Failed")], store=store).unseen_instances == [1, 2]
    whole = GroupView(own=me, others=others("Offline"), store=store)
    assert not whole.unseen_instances and not whole.missing_gtids
    alive = GtidSet.parse(f"{GROUP}:1-20")
    assert not GroupView(own=me, others=others("Online"), store=store, group_executed=alive).in_outage
    # They may have said so before they died, also those that do not belong to it any more.
    silent = GroupView(own=me, others=[*others("Online"), member(3, "Online")], store=store)
    assert silent.in_outage and silent.unseen_instances == [1, 2, 3]
    # Who cannot look, or does not take part, has reckoned nothing.
    assert not GroupView(own=me, others=others("Online"), store=store, uninspectable_reason="no response").in_outage
    assert not GroupView(own=member(0, "Failed"), others=others("Online"), store=store).in_outage


@pytest.mark.parametrize(
    ("view", "than", "is_older"),
    [
        ("17:4", "17:5", True),
        ("17:9", "17:10", True),
        ("17:5", "17:5", False),
        ("16:4", "17:5", False),
        ("", "", False),
    ],
)
def test_views_of_one_group_are_ordered(view: str, than: str, is_older: bool) -> None:
    assert is_older_view(view, than) is is_older


@pytest.mark.parametrize(
    ("view", "than", "is_another"),
    [("16:4", "17:5", True), ("17:5", "17:4", False), ("", "17:4", False), ("17:5", "", False)],
)
def test_views_distinguish_groups(view: str, than: str, is_another: bool) -> None:
    assert is_different_group(view, than) is is_another
