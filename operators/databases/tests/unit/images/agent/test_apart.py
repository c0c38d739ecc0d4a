"""What a member has and its group has not is remembered until it has the group's data alone."""

from __future__ import annotations

from pathlib import Path

from steersman_agent.apart import Apart
from steersman_agent.decision import Member, State, View
from steersman_agent.gtids import GtidSet

GROUP = "00000000-0000-0000-0000-000000000001"
MINE, THEIRS = GtidSet.parse(f"{GROUP}:1-12"), GtidSet.parse(f"{GROUP}:1-10")


def view(state: State, group: GtidSet | None = None, *, sure: bool = False) -> View:
    me = Member(instance=1, state=state, gtids=MINE)
    return View(me=me, group=group, errant=MINE - THEIRS if sure else GtidSet())


def test_it_is_known_when_nobody_can_be_asked_any_more(tmp_path: Path) -> None:
    apart = Apart(tmp_path / "apart")
    apart.learn(view("Offline", THEIRS, sure=True))
    states: tuple[State, ...] = ("Offline", "Stopped", "Starting", "Failed")
    for state in states:
        apart.learn(view(state))
        assert apart.holds and apart.errant == str(MINE - THEIRS)
    assert Apart(tmp_path / "apart").holds, "another process of its knows it as well"


def test_it_is_known_before_it_is_sure(tmp_path: Path) -> None:
    apart = Apart(tmp_path / "apart")
    apart.learn(view("Offline", THEIRS))
    assert apart.holds and not apart.errant


def test_who_has_nothing_else_any_more_is_not_apart(tmp_path: Path) -> None:
    for over in (view("Online"), view("Offline", MINE)):
        apart = Apart(tmp_path / "apart")
        apart.learn(view("Offline", THEIRS, sure=True))
        apart.learn(over)
        assert not apart.holds and not apart.errant and not (tmp_path / "apart").exists()
    apart.learn(view("Offline", THEIRS, sure=True))
    apart.forget()
    assert not Apart(tmp_path / "apart").holds


def test_a_volume_that_takes_nothing_does_not_keep_it_from_being_told(tmp_path: Path) -> None:
    apart = Apart(tmp_path / "missing" / "apart")
    apart.learn(view("Offline", THEIRS, sure=True))
    assert apart.holds and apart.errant
