"""What a group of MySQL's keeps, whether its servers are models or real ones; asked as the agent asks.

tests/unit and tests/integration collect this class, each with a ``group`` fixture of its own: three servers, of which
the first has data. The tests share it, in this order, and each leaves it whole.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import Protocol

import pytest

from steersman_agent.group import Look, Unreachable, another, older
from steersman_agent.server import Server, options

NAME = "7b1f4a52-5a3e-4d0e-9f4c-0f1f3f1c7a11"
_REFUSED = 3092  # ER_GROUP_REPLICATION_CONFIGURATION


class Group(Protocol):
    """Servers of one group, each as its agent has it, and what befalls them."""

    servers: Sequence[Server]

    def kill(self, server: Server) -> None: ...
    def write(self, server: Server) -> bool: ...
    def stray(self, server: Server) -> None: ...
    def until(self, what: str, holds: Callable[[], object], seconds: float = 120) -> None: ...


def look(server: Server) -> Look | None:
    """None where it does not answer."""
    try:
        return server.local.look()
    except Unreachable:
        return None


def state(server: Server) -> str:
    found = look(server)
    return "" if found is None else found.state


def seen(server: Server) -> Look:
    found = look(server)
    assert found is not None
    return found


def start(group: Group, server: Server) -> None:
    """As it is started for the group, in which it is not yet."""
    server.start(options(server.place, NAME), {})
    group.until("it answers", lambda: state(server) == "OFFLINE")


def join(group: Group, server: Server) -> None:
    """Until it is online. A group does not take in whom it has not put out yet."""
    seeds = ",".join(one.place.address for one in group.servers if one is not server)

    def tried() -> bool:
        if state(server) in ("OFFLINE", "ERROR"):
            try:
                server.local.set_global("group_replication_group_seeds", seeds)
                server.local.start_group(founding=False)
            except Unreachable:
                with contextlib.suppress(Unreachable):
                    server.local.leave_group()
        return state(server) == "ONLINE"

    group.until("it has joined", tried)


def left(server: Server) -> bool:
    """It waits for others for longer than one who asks has patience."""
    with contextlib.suppress(Unreachable):
        server.local.leave_group()
    return state(server) == "OFFLINE"


def copied(group: Group, server: Server, donor: Server) -> None:
    """Its data are the donor's from here on."""
    server.stop()
    server.copy(options(server.place, NAME), donor.place.host, donor.place.port)
    start(group, server)


def primary(group: Group) -> Server:
    """Of which all agree, with their majority."""
    found: list[Server] = []

    def agreed() -> bool:
        looks = {one: told for one in group.servers if (told := look(one)) is not None and told.state == "ONLINE"}
        found[:] = [one for one, told in looks.items() if told.primary and told.majority]
        chosen = {m.uuid for told in looks.values() for m in told.members if m.primary}
        return len(found) == 1 and chosen == {looks[found[0]].uuid}

    group.until("there is a primary", agreed)
    return found[0]


def others(group: Group, than: Server) -> list[Server]:
    return [one for one in group.servers if one is not than]


def lowest(servers: Sequence[Server]) -> Server:
    return min(servers, key=lambda one: seen(one).uuid)


class TestGroup:
    def test_who_founds_it_is_its_primary(self, group: Group) -> None:
        first, *_ = group.servers
        start(group, first)
        assert not seen(first).primary and not seen(first).majority
        first.local.start_group(founding=True)
        group.until("it is online", lambda: state(first) == "ONLINE")
        assert primary(group) is first
        assert [m.uuid for m in seen(first).members] == [seen(first).uuid]
        assert first.local.value_of("group_replication_bootstrap_group") == "OFF"

    def test_a_copy_has_everything_and_joins(self, group: Group) -> None:
        first, *rest = group.servers
        assert group.write(first)
        for one in rest:
            before = seen(first)
            copied(group, one, first)
            assert seen(one).has == before.has and seen(one).uuid != before.uuid
            assert not seen(one).majority
            join(group, one)
            assert older(before.view, seen(first).view), "who comes makes another view of the same group"
        assert primary(group) is first
        assert len({seen(one).uuid for one in group.servers}) == 3
        for one in group.servers:
            assert {m.uuid for m in seen(one).members} == {seen(other).uuid for other in group.servers}

    def test_what_is_written_bears_the_groups_name_and_all_have_it(self, group: Group) -> None:
        first = primary(group)
        before = seen(first).has
        assert group.write(first)
        new = seen(first).has - before
        assert [*new.intervals] == [NAME] and len(new) == 1
        for one in others(group, first):
            group.until("it has it", lambda one=one: seen(one).has == seen(first).has)
            assert not group.write(one), "nobody but the primary takes writes"

    def test_who_leaves_is_offline_at_once_and_comes_back(self, group: Group) -> None:
        first = primary(group)
        one = others(group, first)[0]
        before = seen(first).view
        one.local.leave_group()
        assert state(one) == "OFFLINE"
        group.until("the others know", lambda: len(seen(first).members) == 2)
        assert older(before, seen(first).view) and primary(group) is first
        assert group.write(first)
        join(group, one)
        assert seen(one).has == seen(first).has

    def test_a_primary_that_is_appointed_is_no_other_view(self, group: Group) -> None:
        first = primary(group)
        heir = others(group, first)[1]
        before = seen(first).view
        first.local.hand_over(seen(heir).uuid)
        assert primary(group) is heir
        assert seen(heir).view == before
        assert group.write(heir) and not group.write(first)

    def test_a_primary_that_leaves_is_followed_by_the_lowest_uuid(self, group: Group) -> None:
        first = primary(group)
        heir = lowest(others(group, first))
        first.local.leave_group()
        assert primary(group) is heir
        join(group, first)
        assert primary(group) is heir, "who comes back is no primary by that"

    def test_a_primary_that_is_killed_is_followed_by_the_highest_weight(self, group: Group) -> None:
        first = primary(group)
        assert group.write(first)
        acknowledged = seen(first).has
        heir = max(others(group, first), key=lambda one: seen(one).uuid)
        heir.local.set_global("group_replication_member_weight", 60)
        group.kill(first)
        group.until("it is put out", lambda: len(seen(heir).members) == 2)
        assert primary(group) is heir and seen(heir).has >= acknowledged
        assert group.write(heir)
        heir.local.set_global("group_replication_member_weight", 50)
        start(group, first)
        assert seen(first).has == acknowledged
        join(group, first)
        assert seen(first).has == seen(heir).has

    def test_who_has_what_the_group_has_not_is_refused(self, group: Group) -> None:
        first = primary(group)
        one = others(group, first)[0]
        one.local.leave_group()
        group.stray(one)
        unknown = seen(one).has - seen(first).has
        assert [*unknown.intervals] == [seen(one).uuid] and len(unknown) == 1
        one.local.set_global("group_replication_group_seeds", first.place.address)
        with pytest.raises(Unreachable) as refusal:
            one.local.start_group(founding=False)
        assert refusal.value.code == _REFUSED and refusal.value.answered
        assert state(one) in ("OFFLINE", "ERROR") and len(seen(first).members) == 2
        copied(group, one, first)
        assert not seen(one).has - seen(first).has
        join(group, one)

    def test_without_its_majority_it_takes_nothing_and_gives_up(self, group: Group) -> None:
        first = primary(group)
        assert group.write(first)
        acknowledged, former = seen(first).has, seen(first).view
        for one in others(group, first):
            group.kill(one)
        group.until("it knows", lambda: not seen(first).majority)
        assert state(first) == "ONLINE" and len(seen(first).members) == 3, "nobody puts the others out"
        assert not group.write(first)
        group.until("it gives up", lambda: state(first) == "ERROR")
        group.until("it has left", lambda: left(first))
        assert seen(first).has >= acknowledged
        first.local.start_group(founding=True)
        group.until("it is online", lambda: state(first) == "ONLINE")
        assert another(former, seen(first).view), "it is another group"
        for one in others(group, first):
            start(group, one)
            assert acknowledged >= seen(one).has, "what was not acknowledged is nobody's"
            join(group, one)
        assert group.write(primary(group))
        assert [*(seen(first).has - acknowledged).intervals] == [NAME], "which numbers on where the former ended"
