"""What a group of MySQL's keeps, whether its servers are models or real ones; asked as the agent asks.

tests/unit and tests/integration collect this class, each with a ``group`` fixture of its own: three servers, of which
the first has data. The tests share it, in this order, and each leaves it whole.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import Protocol

import pytest

from steersman_agent.group.group_status import ServerQueryFailed, ServerStatus, is_different_group, is_older_view
from steersman_agent.server.process import MySQLServer, options

NAME = "7b1f4a52-5a3e-4d0e-9f4c-0f1f3f1c7a11"
_REFUSED = 3092  # ER_GROUP_REPLICATION_CONFIGURATION


class ContractGroup(Protocol):
    """Servers of one group, each as its agent has it, and what befalls them."""

    servers: Sequence[MySQLServer]

    def kill(self, server: MySQLServer) -> None: ...
    def write(self, server: MySQLServer) -> bool: ...
    def add_errant_transaction(self, server: MySQLServer) -> None: ...
    def until(self, what: str, holds: Callable[[], object], seconds: float = 120) -> None: ...


def status_of(server: MySQLServer) -> ServerStatus | None:
    """None where it does not answer."""
    try:
        return server.local.query_status()
    except ServerQueryFailed:
        return None


def state(server: MySQLServer) -> str:
    found = status_of(server)
    return "" if found is None else found.state


def peers_of(server: MySQLServer) -> ServerStatus:
    found = status_of(server)
    assert found is not None
    return found


def start(group: ContractGroup, server: MySQLServer) -> None:
    """As it is started for the group, in which it is not yet."""
    server.start(options(server.paths, NAME), {})
    group.until("it answers", lambda: state(server) == "OFFLINE")


def join(group: ContractGroup, server: MySQLServer) -> None:
    """Until it is online. A group does not take in whom it has not put out yet."""
    seeds = ",".join(one.paths.address for one in group.servers if one is not server)

    def tried() -> bool:
        if state(server) in ("OFFLINE", "ERROR"):
            try:
                server.local.set_global("group_replication_group_seeds", seeds)
                server.local.start_group(founding=False)
            except ServerQueryFailed:
                with contextlib.suppress(ServerQueryFailed):
                    server.local.leave_group()
        return state(server) == "ONLINE"

    group.until("it has joined", tried)


def wait_left(server: MySQLServer) -> bool:
    """It waits for others for longer than one who asks has patience."""
    with contextlib.suppress(ServerQueryFailed):
        server.local.leave_group()
    return state(server) == "OFFLINE"


def clone_from(group: ContractGroup, server: MySQLServer, donor: MySQLServer) -> None:
    """Its data are the donor's from here on."""
    server.stop()
    server.clone_from(options(server.paths, NAME), donor.paths.host, donor.paths.port)
    start(group, server)


def primary(group: ContractGroup) -> MySQLServer:
    """Of which all agree, with their majority."""
    found: list[MySQLServer] = []

    def agreed() -> bool:
        looks = {
            one: told for one in group.servers if (told := status_of(one)) is not None and told.state == "ONLINE"
        }
        found[:] = [one for one, told in looks.items() if told.is_primary and told.has_majority]
        chosen = {m.uuid for told in looks.values() for m in told.members if m.primary}
        return len(found) == 1 and chosen == {looks[found[0]].uuid}

    group.until("there is a primary", agreed)
    return found[0]


def others(group: ContractGroup, than: MySQLServer) -> list[MySQLServer]:
    return [one for one in group.servers if one is not than]


def lowest_uuid(servers: Sequence[MySQLServer]) -> MySQLServer:
    return min(servers, key=lambda one: peers_of(one).uuid)


class TestGroup:
    def test_bootstrapping_member_is_primary(self, group: ContractGroup) -> None:
        first, *_ = group.servers
        start(group, first)
        assert not peers_of(first).is_primary and not peers_of(first).has_majority
        first.local.start_group(founding=True)
        group.until("it is online", lambda: state(first) == "ONLINE")
        assert primary(group) is first
        assert [m.uuid for m in peers_of(first).members] == [peers_of(first).uuid]
        assert first.local.value_of("group_replication_bootstrap_group") == "OFF"

    def test_cloned_member_has_all_data_and_joins(self, group: ContractGroup) -> None:
        first, *rest = group.servers
        assert group.write(first)
        for one in rest:
            before = peers_of(first)
            clone_from(group, one, first)
            assert peers_of(one).executed == before.executed and peers_of(one).uuid != before.uuid
            assert not peers_of(one).has_majority
            join(group, one)
            assert is_older_view(before.view, peers_of(first).view), "who comes makes another view of the same group"
        assert primary(group) is first
        assert len({peers_of(one).uuid for one in group.servers}) == 3
        for one in group.servers:
            assert {m.uuid for m in peers_of(one).members} == {peers_of(other).uuid for other in group.servers}

    def test_transactions_bear_group_name_and_reach_all(self, group: ContractGroup) -> None:
        first = primary(group)
        before = peers_of(first).executed
        assert group.write(first)
        new = peers_of(first).executed - before
        assert [*new.intervals] == [NAME] and len(new) == 1
        for one in others(group, first):
            group.until("it has it", lambda one=one: peers_of(one).executed == peers_of(first).executed)
            assert not group.write(one), "only the primary accepts writes"

    def test_leaving_member_is_offline_and_rejoins(self, group: ContractGroup) -> None:
        first = primary(group)
        one = others(group, first)[0]
        before = peers_of(first).view
        one.local.leave_group()
        assert state(one) == "OFFLINE"
        group.until("the others know", lambda: len(peers_of(first).members) == 2)
        assert is_older_view(before, peers_of(first).view) and primary(group) is first
        assert group.write(first)
        join(group, one)
        assert peers_of(one).executed == peers_of(first).executed

    def test_appointed_primary_keeps_the_view(self, group: ContractGroup) -> None:
        first = primary(group)
        heir = others(group, first)[1]
        before = peers_of(first).view
        first.local.set_primary(peers_of(heir).uuid)
        assert primary(group) is heir
        assert peers_of(heir).view == before
        assert group.write(heir) and not group.write(first)

    def test_left_primary_is_succeeded_by_lowest_uuid(self, group: ContractGroup) -> None:
        first = primary(group)
        heir = lowest_uuid(others(group, first))
        first.local.leave_group()
        assert primary(group) is heir
        join(group, first)
        assert primary(group) is heir, "who comes back is no primary by that"

    def test_killed_primary_is_succeeded_by_highest_weight(self, group: ContractGroup) -> None:
        first = primary(group)
        assert group.write(first)
        acknowledged = peers_of(first).executed
        heir = max(others(group, first), key=lambda one: peers_of(one).uuid)
        heir.local.set_global("group_replication_member_weight", 60)
        group.kill(first)
        group.until("it is put out", lambda: len(peers_of(heir).members) == 2)
        assert primary(group) is heir and peers_of(heir).executed >= acknowledged
        assert group.write(heir)
        heir.local.set_global("group_replication_member_weight", 50)
        start(group, first)
        assert peers_of(first).executed == acknowledged
        join(group, first)
        assert peers_of(first).executed == peers_of(heir).executed

    def test_errant_member_is_rejected(self, group: ContractGroup) -> None:
        first = primary(group)
        one = others(group, first)[0]
        one.local.leave_group()
        group.add_errant_transaction(one)
        unknown = peers_of(one).executed - peers_of(first).executed
        assert [*unknown.intervals] == [peers_of(one).uuid] and len(unknown) == 1
        one.local.set_global("group_replication_group_seeds", first.paths.address)
        with pytest.raises(ServerQueryFailed) as refusal:
            one.local.start_group(founding=False)
        assert refusal.value.code == _REFUSED and refusal.value.has_responded
        assert state(one) in ("OFFLINE", "ERROR") and len(peers_of(first).members) == 2
        clone_from(group, one, first)
        assert not peers_of(one).executed - peers_of(first).executed
        join(group, one)

    def test_quorum_lost_rejects_writes_and_leaves(self, group: ContractGroup) -> None:
        first = primary(group)
        assert group.write(first)
        acknowledged, former = peers_of(first).executed, peers_of(first).view
        for one in others(group, first):
            group.kill(one)
        group.until("it knows", lambda: not peers_of(first).has_majority)
        assert state(first) == "ONLINE" and len(peers_of(first).members) == 3, "nobody puts the others out"
        assert not group.write(first)
        group.until("it gives up", lambda: state(first) == "ERROR")
        group.until("it has left", lambda: wait_left(first))
        assert peers_of(first).executed >= acknowledged
        first.local.start_group(founding=True)
        group.until("it is online", lambda: state(first) == "ONLINE")
        assert is_different_group(former, peers_of(first).view), "it is another group"
        for one in others(group, first):
            start(group, one)
            assert acknowledged >= peers_of(one).executed, "what was not acknowledged is nobody's"
            join(group, one)
        assert group.write(primary(group))
        assert [*(peers_of(first).executed - acknowledged).intervals] == [NAME], (
            "which numbers on where the former ended"
        )
