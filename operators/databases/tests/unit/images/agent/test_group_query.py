"""When a member may say that it has what its group has not: never of what is only on its way."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from steersman_agent.group.group_query import GroupAnswer, GroupQuery
from steersman_agent.group.group_status import GroupPeer, ServerStatus
from steersman_instance.gtids import GtidSet

GROUP = "aaaaaaaa-aaaa-aaaa-aaaa-aaaaaaaaaaaa"
OWN = "bbbbbbbb-bbbb-bbbb-bbbb-bbbbbbbbbbbb"


def gtids(text: str) -> GtidSet:
    return GtidSet.parse(text)


def look(
    uuid: str,
    has: str,
    *,
    members: Sequence[str] = ("a", "b"),
    state: str = "ONLINE",
    others: str = "ONLINE",
    purged: str = "",
    certified: str = "",
    uncertified: int = 0,
) -> ServerStatus:
    listed = [
        GroupPeer(uuid=one, host="", port=0, state=state if one == uuid else others, primary=one == "a")
        for one in members
    ]
    return ServerStatus(
        uuid=uuid,
        version="9.7.4",
        state=state,
        view="17:4",
        members=listed,
        executed=gtids(has),
        apply_queue=0,
        applied=0,
        purged=gtids(purged),
        certified=GtidSet.up_to(certified),
        uncertified=uncertified,
    )


ME = look("me", f"{GROUP}:1-12", members=(), state="OFFLINE")
BEHIND = (look("a", f"{GROUP}:1-10"), look("b", f"{GROUP}:1-11"))


class Asked:
    """Whoever asks, and the time."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.asking = GroupQuery(clock=lambda: self.now)

    def answers(self, *looks: ServerStatus, me: ServerStatus = ME) -> GroupAnswer:
        found = self.asking.evaluate(looks, me)
        assert found is not None
        return found

    def errant(self, *looks: ServerStatus, me: ServerStatus = ME) -> str:
        """Of that nothing is certain at once, and a while later this."""
        assert not self.answers(*looks, me=me).errant_gtids
        self.now += 11
        return str(self.answers(*looks, me=me).errant_gtids)


def test_group_executed_is_union_of_members() -> None:
    asked = Asked()
    assert str(asked.answers(*BEHIND).executed) == f"{GROUP}:1-11"
    assert asked.errant(*BEHIND) == f"{GROUP}:12"


@pytest.mark.parametrize(
    "looks",
    [
        # The primary is about to commit it.
        (look("a", f"{GROUP}:1-10", certified=f"{GROUP}:12"), BEHIND[1]),
        # Nobody has looked for conflicts in it yet.
        (BEHIND[0], look("b", f"{GROUP}:1-11", uncertified=1)),
        # The other may have it.
        (BEHIND[0],),
        (look("a", f"{GROUP}:1-10", others="UNREACHABLE"),),
        # It was sent before this one was put out.
        (look("a", f"{GROUP}:1-10", members=("a", "b", "me")), BEHIND[1]),
        # Those who are cut off may not know that there is a group besides.
        (look("a", f"{GROUP}:1-10", members=("a", "c", "d"), others="UNREACHABLE"),),
    ],
)
def test_in_flight_transaction_is_not_errant(looks: Sequence[ServerStatus]) -> None:
    assert not Asked().errant(*looks)
    # What was certain stays so.
    asked = Asked()
    asked.errant(*BEHIND)
    assert str(asked.answers(*looks).errant_gtids) == f"{GROUP}:12"


def test_late_transaction_was_not_errant() -> None:
    asked = Asked()
    asked.answers(*BEHIND)
    asked.now += 9
    asked.answers(look("a", f"{GROUP}:1-12"), BEHIND[1])
    assert not asked.errant(BEHIND[0])


def test_own_transaction_is_errant() -> None:
    own = replace(ME, executed=gtids(f"{GROUP}:1-10,{OWN}:1"))
    busy = look("a", f"{GROUP}:1-20", certified=f"{GROUP}:21", members=("a", "c"), others="RECOVERING")
    assert Asked().errant(busy, me=own) == f"{OWN}:1"


def test_member_outside_group_answers_nothing() -> None:
    assert GroupQuery().evaluate([look("a", f"{GROUP}:1-20", state="OFFLINE", members=())], ME) is None
    assert GroupQuery().evaluate([], ME) is None


def test_all_answered_needs_purged_sets() -> None:
    one, other = look("a", f"{GROUP}:1-20", purged=f"{GROUP}:1-15"), look("b", f"{GROUP}:1-20", purged=f"{GROUP}:1-5")

    def told(*looks: ServerStatus) -> tuple[list[str], bool]:
        found = Asked().answers(*looks)
        return [str(one) for one in found.purged], found.all_answered

    assert told(one, other) == ([f"{GROUP}:1-15", f"{GROUP}:1-5"], True)
    assert told(one) == ([f"{GROUP}:1-15"], False)
    assert not told(look("a", f"{GROUP}:1-20", members=("a", "c", "d"), others="UNREACHABLE"))[1]


def test_majority_is_required_to_join() -> None:
    """One that still reaches most of it is enough: the others have not heard yet."""
    alone = look("a", f"{GROUP}:1-10", members=("a", "b", "c"), others="UNREACHABLE")
    assert Asked().answers(*BEHIND).has_majority
    assert not Asked().answers(alone).has_majority
    assert Asked().answers(alone, look("b", f"{GROUP}:1-10")).has_majority


def test_listed_member_is_recognised() -> None:
    """One who has put it out and reaches most of the group is enough: the others have not heard yet."""
    of_a, of_b = (look(one, f"{GROUP}:1-10", members=("a", "b", "me")) for one in "ab")
    assert Asked().answers(of_a, of_b).is_listed and Asked().answers(of_a).is_listed
    assert not Asked().answers(of_a, BEHIND[1]).is_listed and not Asked().answers(*BEHIND).is_listed
    alone = look("a", f"{GROUP}:1-10", members=("a", "b", "me"), others="UNREACHABLE")
    assert not Asked().answers(alone).is_listed, "it will hear of another, or gives up"
