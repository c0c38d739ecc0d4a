"""What a member has and its group has not is remembered until it has the group's data alone."""

from __future__ import annotations

from pathlib import Path

from steersman_agent.group.decision import GroupMember, GroupView, MemberState
from steersman_agent.group.errant_transactions import ErrantTransactions
from steersman_instance.gtids import GtidSet

GROUP = "00000000-0000-0000-0000-000000000001"
MINE, THEIRS = GtidSet.parse(f"{GROUP}:1-12"), GtidSet.parse(f"{GROUP}:1-10")


def view(state: MemberState, group: GtidSet | None = None, *, sure: bool = False) -> GroupView:
    me = GroupMember(instance=1, state=state, gtids=MINE)
    return GroupView(own=me, group_executed=group, errant_gtids=MINE - THEIRS if sure else GtidSet())


def test_errant_set_is_known_after_restart(tmp_path: Path) -> None:
    apart = ErrantTransactions(tmp_path / "apart")
    apart.update(view("Offline", THEIRS, sure=True))
    states: tuple[MemberState, ...] = ("Offline", "Stopped", "Starting", "Failed")
    for state in states:
        apart.update(view(state))
        assert apart.has_any and apart.errant == str(MINE - THEIRS)
    assert ErrantTransactions(tmp_path / "apart").has_any, "another process of its knows it as well"


def test_errant_candidates_are_stored_before_confirmation(tmp_path: Path) -> None:
    apart = ErrantTransactions(tmp_path / "apart")
    apart.update(view("Offline", THEIRS))
    assert apart.has_any and not apart.errant


def test_errant_set_is_cleared_once_gone(tmp_path: Path) -> None:
    for over in (view("Online"), view("Offline", MINE)):
        apart = ErrantTransactions(tmp_path / "apart")
        apart.update(view("Offline", THEIRS, sure=True))
        apart.update(over)
        assert not apart.has_any and not apart.errant and not (tmp_path / "apart").exists()
    apart.update(view("Offline", THEIRS, sure=True))
    apart.clear()
    assert not ErrantTransactions(tmp_path / "apart").has_any


def test_read_only_volume_still_reports_errant_set(tmp_path: Path) -> None:
    apart = ErrantTransactions(tmp_path / "missing" / "apart")
    apart.update(view("Offline", THEIRS, sure=True))
    assert apart.has_any and apart.errant
