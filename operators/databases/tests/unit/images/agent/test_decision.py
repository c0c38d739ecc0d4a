"""What a member does: each reason to wait, and what follows when it is gone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from steersman_agent.decision import Decision, Member, State, Store, Switchover, View, decide
from steersman_agent.group import another, older
from steersman_agent.gtids import GtidSet

GROUP = "aaaaaaaa-aaaa-aaaa-aaaa-aaaaaaaaaaaa"
ERRANT = "bbbbbbbb-bbbb-bbbb-bbbb-bbbbbbbbbbbb"
STORE = Store(epoch=1, instances=frozenset({0, 1, 2}), leader=0, leader_uuid="server-0", leader_view="17:3")


def member(instance: int, state: State, *, has: str = f"{GROUP}:1-10", primary: bool = False) -> Member:
    uuid = "" if state == "Empty" else f"server-{instance}"
    return Member(instance=instance, state=state, uuid=uuid, gtids=GtidSet.parse(has), primary=primary)


def decision(me: Member, *members: Member, store: Store = STORE, **view: Any) -> Decision:
    return decide(View(me=me, members=members, store=store, **view))


def others(state: State, **says: Any) -> Sequence[Member]:
    return [member(1, state, **says), member(2, state, **says)]


def test_the_first_instance_makes_the_data_and_founds_the_group() -> None:
    new = Store(instances=frozenset({0}))
    assert decision(member(0, "Empty", has=""), store=new).deed == "Initialise"
    assert decision(member(0, "Stopped", has=""), store=new).deed == "Start"
    assert decision(member(0, "Offline", has=""), store=new).deed == "Found"


@pytest.mark.parametrize(
    ("me", "store"),
    [
        (member(1, "Empty", has=""), Store(instances=frozenset({0, 1}))),
        # The operator has not said yet who belongs to the cluster.
        (member(0, "Empty", has=""), Store()),
        # There has been a group: its data are somewhere, or a person has to know that they are not.
        (member(0, "Empty", has=""), Store(epoch=1, instances=frozenset({0}))),
    ],
)
def test_nobody_else_makes_data(me: Member, store: Store) -> None:
    assert decision(me, store=store).deed == "Wait"


def test_a_store_that_was_made_anew_says_of_no_group_and_proves_nothing() -> None:
    lost, empty = Store(instances=frozenset({0, 1})), member(0, "Empty", has="")
    assert "instance 1 has not been seen" in decision(empty, store=lost).because
    assert decision(empty, member(1, "Stopped"), store=lost).deed == "Wait"
    assert decision(empty, member(1, "Empty", has=""), store=lost).deed == "Initialise"
    # A member's volume remembers the group that it was in last.
    was_in_one = replace(member(1, "Empty", has=""), epoch=4)
    assert decision(empty, was_in_one, store=lost).deed == "Wait"
    with_data = View(me=member(0, "Offline"), members=[replace(member(1, "Offline"), epoch=4)], store=lost)
    assert decide(with_data).deed == "Found" and with_data.epoch == 4


@pytest.mark.parametrize("state", ["Empty", "Stopped", "Starting", "Cloning", None])
def test_who_was_never_a_member_is_not_waited_for(state: State | None) -> None:
    """Its pod may never run: no node, no image, no volume."""
    store = replace(STORE, members=frozenset({0, 1}))
    never = [] if state is None else [member(2, state, has="")]
    seen = View(me=member(0, "Offline"), members=[member(1, "Offline"), *never], store=store)
    assert decide(seen).deed == "Found" and not seen.unseen
    assert decision(member(0, "Offline"), *never, store=store).because.endswith("instance 1 has not been seen")
    # Where it is not known who was, or the store is an earlier one than the data, everybody may have been.
    if state != "Empty":
        assert decision(member(0, "Offline"), member(1, "Offline"), *never).deed == "Wait"
        later = replace(member(1, "Offline"), epoch=2)
        assert decision(member(0, "Offline"), later, *never, store=store).deed == "Wait"


def test_who_comes_to_be_a_member() -> None:
    known = Store(instances=frozenset({0, 1}), members=frozenset({0}))
    assert known.with_member(1).members == known.with_member(1).with_member(1).members == {0, 1}
    assert Store(instances=frozenset({0, 1})).with_member(0).members == {0, 1}
    assert Store().with_member(0).members is None, "nobody said yet who there is"


@pytest.mark.parametrize("store", [Store(), replace(STORE, instances=frozenset({1, 2}))])
def test_who_is_none_of_the_cluster_neither_founds_nor_joins(store: Store) -> None:
    alive = GtidSet.parse(f"{GROUP}:1-20")
    assert decision(member(0, "Offline"), store=store).deed == "Wait"
    assert decision(member(0, "Offline"), store=replace(store, consent=0)).deed == "Wait"
    assert decision(member(0, "Offline"), *others("Online"), store=store, group=alive).deed == "Wait"


def test_nobody_joins_before_it_is_written_down_which_group_it_is() -> None:
    founded, alive = replace(STORE, leader_view=""), GtidSet.parse(f"{GROUP}:1-20")
    assert decision(member(0, "Offline"), *others("Online"), store=founded, group=alive) == Decision(
        "Wait", "the primary has not written down yet which group it leads"
    )


def test_an_empty_member_copies_a_replica_rather_than_the_primary() -> None:
    assert decision(member(0, "Empty", has=""), member(1, "Online", primary=True), member(2, "Online")) == Decision(
        "Clone", "instance 2 is online", 2
    )


@pytest.mark.parametrize(("failed", "next_one"), [([], 1), ([1], 2), ([1, 2], 0), ([1, 2, 0], 1), ([2, 0, 1], 2)])
def test_who_could_not_be_copied_is_asked_again_after_all_others(failed: list[int], next_one: int) -> None:
    there = [member(0, "Online", primary=True), member(1, "Online"), member(2, "Online")]
    empty = decision(member(3, "Empty", has=""), *there, failed_donors=failed)
    assert (empty.deed, empty.to) == ("Clone", next_one)
    store, group = replace(STORE, instances=frozenset(range(4))), GtidSet.parse(f"{GROUP}:1-20")
    lacking = decision(
        member(3, "Offline", has=""),
        *there,
        store=store,
        group=group,
        purged=[GtidSet.parse(f"{GROUP}:1-5")],
        failed_donors=failed,
    )
    assert (lacking.deed, lacking.to) == ("Clone", next_one)


def test_who_has_a_transaction_that_the_group_has_not_stays_out_and_says_which() -> None:
    group = GtidSet.parse(f"{GROUP}:1-20")
    me = member(0, "Offline", has=f"{GROUP}:1-10,{ERRANT}:1-2")
    found = decision(me, *others("Online"), group=group)
    assert found.deed == "Wait" and f"{ERRANT}:1-2" in found.because
    assert decision(member(0, "Offline"), *others("Online"), group=group).deed == "Join"
    # Nobody has said what the group has: a published set may be an old one.
    assert decision(member(0, "Offline"), *others("Online")).deed == "Wait"


def test_what_may_be_on_its_way_is_waited_for_and_not_called_errant() -> None:
    view = View(me=member(0, "Offline", has=f"{GROUP}:1-12"), members=others("Online"), store=STORE)
    early = replace(view, group=GtidSet.parse(f"{GROUP}:1-10"))
    found = decide(early)
    assert found.deed == "Wait" and found.because.endswith("as far as its members know by now")
    late = decide(replace(early, errant=GtidSet.parse(f"{GROUP}:11-12")))
    assert late == Decision("Wait", f"it has 2 transactions that the group has not: {GROUP}:11-12")
    assert decide(replace(early, group=GtidSet.parse(f"{GROUP}:1-12"))).deed == "Join"


def test_who_lacks_what_nobody_could_send_takes_another_copy() -> None:
    group = GtidSet.parse(f"{GROUP}:1-30")
    gone, partly = GtidSet.parse(f"{GROUP}:1-20"), GtidSet.parse(f"{GROUP}:1-14")
    me = member(0, "Offline", has=f"{GROUP}:1-10")

    def found(me: Member, *purged: GtidSet, **view: Any) -> Decision:
        return decision(me, *others("Online"), group=group, purged=purged, **view)

    assert found(me, gone, partly) == Decision(
        "Clone",
        "nobody in the group has the binary logs of 4 transactions that this one lacks: its data are replaced by"
        " another copy",
        1,
    )
    # One who has them is enough, and who has all of what is gone needs none.
    assert found(me, gone, GtidSet.parse(f"{GROUP}:1-10")).deed == "Join"
    assert found(member(0, "Offline", has=f"{GROUP}:1-20"), gone).deed == "Join"
    assert found(me).deed == "Join"
    # One that has not answered may have them; Group Replication would not wait for it.
    assert found(me, gone, everybody=False).deed == "Wait"
    assert found(me, GtidSet.parse(f"{GROUP}:1-10"), everybody=False).deed == "Join"
    # What nobody else has is not thrown away.
    assert found(member(0, "Offline", has=f"{GROUP}:1-10,{ERRANT}:1"), gone).deed == "Wait"


def test_a_group_that_has_lost_most_of_its_members_is_not_joined() -> None:
    """Its primary would wait for who is joining, once it has given up, and that one for the primary."""
    group, me = GtidSet.parse(f"{GROUP}:1-10"), member(1, "Offline", has=f"{GROUP}:1-10")
    assert decision(me, *others("Online"), group=group).deed == "Join"
    waits = decision(me, *others("Online"), group=group, blocked=True)
    assert waits == Decision("Wait", "most of the group does not answer who is left of it, and it takes nobody in")


def test_nobody_joins_whom_the_group_takes_for_a_member() -> None:
    """It ended a moment ago, and they have not noticed."""
    group, me = GtidSet.parse(f"{GROUP}:1-10"), member(1, "Offline", has=f"{GROUP}:1-10")
    waits = decision(me, *others("Online"), group=group, listed=True)
    assert waits == Decision("Wait", "the group has not put out yet who this one was before it ended")


@pytest.mark.parametrize("state", ["Stopped", "Starting", "Joining", "Recovering", "Failed", "Cloning"])
def test_a_group_is_founded_only_when_everybody_says_that_he_is_in_none(state: State) -> None:
    assert decision(member(0, "Offline"), member(1, "Offline"), member(2, state)).deed == "Wait"
    assert decision(member(0, "Offline"), *others("Offline")).deed == "Found"
    assert decision(member(0, "Offline"), member(1, "Offline"), member(2, "Empty", has="")).deed == "Found"


def test_nobody_founds_who_has_not_seen_all() -> None:
    found = decision(member(0, "Offline"), member(1, "Offline"))
    assert found == Decision("Wait", "nobody is online, and instance 2 has not been seen")


def test_nobody_founds_who_lacks_a_transaction() -> None:
    more = member(1, "Offline", has=f"{GROUP}:1-12")
    assert decision(member(0, "Offline"), more, member(2, "Offline")) == Decision(
        "Wait", "instance 1 has 2 transactions that this one has not"
    )
    assert decision(more, member(0, "Offline"), member(2, "Offline")).deed == "Found"


def test_two_that_each_have_what_the_other_lacks_wait_for_a_person() -> None:
    one, other = member(0, "Offline", has=f"{GROUP}:1-11"), member(1, "Offline", has=f"{GROUP}:1-10,{ERRANT}:1")
    store = replace(STORE, instances=frozenset({0, 1}))
    assert decision(one, other, store=store).deed == decision(other, one, store=store).deed == "Wait"
    consent = replace(store, consent=1)
    assert decision(one, other, store=consent).deed == "Wait"
    assert decision(other, one, store=consent).deed == "Found"


def test_of_equals_the_last_primary_founds() -> None:
    store = replace(STORE, leader=1, leader_uuid="server-1")
    assert decision(member(0, "Offline"), *others("Offline"), store=store).deed == "Wait"
    # It may have died since it said that it is offline.
    assert decision(member(0, "Offline"), *others("Offline"), store=store, patient=False).deed == "Found"
    assert decision(member(1, "Offline"), member(0, "Offline"), member(2, "Offline"), store=store).deed == "Found"


def test_without_the_last_primarys_data_a_person_decides() -> None:
    """It may have acknowledged what the others had in memory alone."""
    lost = [member(0, "Empty", has=""), member(2, "Offline")]
    assert "instance 0" in decision(member(1, "Offline"), *lost).because
    assert decision(member(1, "Offline"), *lost, store=replace(STORE, consent=1)).deed == "Found"


def test_a_primary_hands_over_before_its_pod_ends() -> None:
    me = member(0, "Online", primary=True)
    assert decision(me, *others("Online"), majority=True, stopping=True) == Decision(
        "HandOver", "this pod is about to end", 1
    )
    # Nobody could take over: it leaves, and with it the group ends.
    assert decision(me, *others("Offline"), majority=True, stopping=True).deed == "Leave"
    assert decision(me, *others("Online"), majority=False, stopping=True).deed == "Leave"
    assert decision(member(0, "Online"), *others("Online"), majority=True, stopping=True).deed == "Leave"
    assert decision(member(0, "Offline"), stopping=True).deed == "Stop"
    assert decision(member(0, "Stopped"), stopping=True).deed == "Wait"


def test_who_takes_over_is_who_has_least_left_to_apply() -> None:
    me, behind = member(0, "Online", primary=True), replace(member(1, "Online"), queued=1000)
    assert decision(me, behind, member(2, "Online"), majority=True, stopping=True).to == 2
    anybody = replace(STORE, switchover=Switchover(None))
    assert decision(me, behind, member(2, "Online"), store=anybody, majority=True).to == 2
    named = replace(STORE, switchover=Switchover(1))
    assert decision(me, behind, member(2, "Online"), store=named, majority=True).to == 1


def test_a_switchover_is_the_primarys_to_carry_out() -> None:
    asked = replace(STORE, switchover=Switchover(2))
    primary, replica = member(0, "Online", primary=True), member(1, "Online")
    assert decision(primary, *others("Online"), store=asked, majority=True).to == 2
    assert decision(replica, primary, store=asked, majority=True).deed == "Wait"
    assert decision(primary, *others("Online"), store=asked, majority=False).deed == "Wait"
    anybody = replace(STORE, switchover=Switchover(None))
    assert decision(primary, *others("Online"), store=anybody, majority=True).to == 1


def test_a_member_without_most_of_its_group_says_so() -> None:
    found = decision(member(0, "Online", primary=True), majority=False)
    assert found.deed == "Wait" and "most of the group" in found.because


def test_a_member_that_does_not_answer_is_overruled_by_a_person_alone() -> None:
    silent = [member(1, "Online", primary=True), member(2, "Offline")]
    assert decision(member(0, "Offline"), *silent).deed == "Wait"
    consented = replace(STORE, consent=0)
    assert decision(member(0, "Offline"), *silent, store=consented).deed == "Found"
    # A group that lives needs nobody's consent.
    alive = GtidSet.parse(f"{GROUP}:1-20")
    assert decision(member(0, "Offline"), *silent, store=consented, group=alive).deed == "Join"


@pytest.mark.parametrize("state", ["Recovering", "Online"])
@pytest.mark.parametrize("majority", [True, False])
def test_who_is_in_a_group_that_was_given_up_leaves_it(state: State, majority: bool) -> None:
    me = member(0, state, primary=state == "Online")
    assert decision(me, *others("Online"), majority=majority, superseded=True).deed == "Leave"
    assert decision(me, *others("Online"), majority=majority).deed == "Wait"
    # Who is in none joins the new one, if he has nothing that it has not.
    alive = GtidSet.parse(f"{GROUP}:1-20")
    assert decision(member(0, "Offline"), *others("Online"), group=alive, superseded=True).deed == "Join"


def test_who_ends_tries_nothing_twice() -> None:
    me = member(0, "Online", primary=True)
    tried: frozenset[str] = frozenset()
    for deed in ("HandOver", "Leave", "Stop", "Stop"):
        assert decision(me, *others("Online"), majority=True, stopping=True, tried=tried).deed == deed
        tried |= {deed}


def test_what_a_person_has_to_know_before_they_consent() -> None:
    store = replace(STORE, leader=2, leader_uuid="server-2")
    me = member(0, "Offline", has=f"{GROUP}:1-10")
    ahead = member(1, "Offline", has=f"{GROUP}:1-12")
    seen = View(me=me, members=[ahead, member(2, "Empty", has="")], store=store)
    assert seen.outage and str(seen.lacks) == f"{GROUP}:11-12"
    # The last primary's number is there, and its data are not.
    assert seen.unseen == [2]
    assert View(me=me, members=[member(2, "Failed")], store=store).unseen == [1, 2]
    whole = View(me=me, members=others("Offline"), store=store)
    assert not whole.unseen and not whole.lacks
    alive = GtidSet.parse(f"{GROUP}:1-20")
    assert not View(me=me, members=others("Online"), store=store, group=alive).outage
    # They may have said so before they died, also those that do not belong to it any more.
    silent = View(me=me, members=[*others("Online"), member(3, "Online")], store=store)
    assert silent.outage and silent.unseen == [1, 2, 3]
    # Who cannot look, or does not take part, has reckoned nothing.
    assert not View(me=me, members=others("Online"), store=store, blind="no answer").outage
    assert not View(me=member(0, "Failed"), members=others("Online"), store=store).outage


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
def test_views_of_one_group_have_an_order(view: str, than: str, is_older: bool) -> None:
    assert older(view, than) is is_older


@pytest.mark.parametrize(
    ("view", "than", "is_another"),
    [("16:4", "17:5", True), ("17:5", "17:4", False), ("", "17:4", False), ("17:5", "", False)],
)
def test_views_tell_groups_apart(view: str, than: str, is_another: bool) -> None:
    assert another(view, than) is is_another
