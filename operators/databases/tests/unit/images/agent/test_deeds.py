"""In which order a member comes into a group: whatever cuts it off, others know of it before it is one."""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from steersman_agent import group, store
from steersman_agent.decision import Decision, Deed, Member, Store, View
from steersman_agent.deeds import Deeds
from steersman_agent.kubernetes import ApiServer, Conflict
from steersman_agent.leader import Joined
from steersman_agent.store import Agreed

KNOWN = Store(epoch=2, instances=frozenset({0, 1}), members=frozenset({0}), leader=0, leader_view="17:1")


class Hands(ApiServer, group.LocalServer):
    """API server, publisher and server at once, which remember what they were asked for."""

    def __init__(self, *, refuses: bool = False) -> None:
        self.done: list[object] = []
        self._refuses = refuses

    def publish(self, me: Member, because: str, *, majority: bool = False, more: Mapping[str, Any]) -> None:
        self.done.append(me.state)

    def patch(self, path: str, change: Mapping[str, Any]) -> Mapping[str, Any]:
        if self._refuses:
            raise Conflict("it has been modified")
        annotations: Mapping[str, str] = change["metadata"]["annotations"]
        said = json.loads(annotations[store.GROUP])
        self.done.append((said["epoch"], said["members"], change["metadata"]["resourceVersion"]))
        if store.GROUP_NAME in annotations:
            self.done.append(("is called", annotations[store.GROUP_NAME]))
        return {}

    def set_global(self, name: str, value: int | float | str | None) -> None:
        self.done.append((name, value))

    def start_group(self, *, founding: bool) -> None:
        self.done.append("founds" if founding else "joins")


def done(deed: Deed, known: Store, directory: Path, *, refuses: bool = False) -> tuple[list[object], int]:
    hands, joined = Hands(refuses=refuses), Joined(directory / "epoch")
    nothing = cast(Any, SimpleNamespace(initialise=None, stop=None))
    deeds = Deeds(
        server=nothing,
        local=hands,
        parameters=nothing,
        certificates=nothing,
        api=hands,
        publisher=cast(Any, hands),
        path="group",
        joined=joined,
    )
    others = [Member(instance=0, state="Online", address="10.0.0.1:3306", epoch=2)]
    view = View(me=Member(instance=1, state="Offline"), store=known, members=others)
    carry_out = deeds.deed(Decision(deed, ""), view, Agreed(store=known, version="7", name="g"))
    assert carry_out is not None
    if refuses:
        with pytest.raises(Conflict):
            carry_out()
    else:
        carry_out()
    return hands.done, joined.epoch


def test_who_joins_for_the_first_time_is_written_down_before(tmp_path: Path) -> None:
    name, seeds = ("group_replication_group_name", "g"), ("group_replication_group_seeds", "10.0.0.1:3306")
    assert done("Join", KNOWN, tmp_path) == (["Joining", (2, [0, 1], "7"), seeds, name, "joins"], 2)
    again = KNOWN.with_member(1)
    assert done("Join", again, tmp_path) == (["Joining", seeds, name, "joins"], 2)


def test_who_could_not_be_written_down_does_not_join(tmp_path: Path) -> None:
    assert done("Join", KNOWN, tmp_path, refuses=True) == (["Joining"], 0)
    assert done("Found", KNOWN, tmp_path, refuses=True) == (["Joining"], 0)


def test_a_founder_is_of_a_later_epoch_than_any_that_is_known_of(tmp_path: Path) -> None:
    lost = Store(instances=frozenset({0, 1}))
    name = ("group_replication_group_name", "g")
    assert done("Found", lost, tmp_path) == (
        ["Joining", (3, [0, 1], "7"), ("is called", "g"), name, "founds"],
        3,
    )


def test_a_group_that_is_founded_by_consent_numbers_nothing_as_the_one_that_was_given_up(tmp_path: Path) -> None:
    """The transactions that are given up have the numbers that would come next under its name."""
    consented = replace(KNOWN, members=frozenset({0, 1}), consent=1)
    (joining, written, called, runs_as, founds), _ = done("Found", consented, tmp_path)
    assert (joining, written, founds) == ("Joining", (3, [0, 1], "7"), "founds")
    name = str(cast(tuple[str, str], called)[1])
    assert name != "g" and str(uuid.UUID(name)) == name
    # In the same write: who is cut off after it finds the name in the store, and no consent to take another.
    assert (called, runs_as) == (("is called", name), ("group_replication_group_name", name))
    others = replace(consented, consent=0)
    assert ("is called", "g") in done("Found", others, tmp_path)[0]
