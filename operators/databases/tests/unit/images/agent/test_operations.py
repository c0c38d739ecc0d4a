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

from steersman_agent.group import group_config, group_status
from steersman_agent.group.decision import GroupMember, GroupState, GroupView, MemberDecision, Operation
from steersman_agent.group.group_config import GroupConfig
from steersman_agent.group.leader import GroupEpoch
from steersman_agent.kubernetes import KubernetesApi, PatchConflict
from steersman_agent.operations import Operations

KNOWN = GroupState(epoch=2, known_instances=frozenset({0, 1}), members=frozenset({0}), leader=0, leader_view="17:1")


class Hands(KubernetesApi, group_status.LocalServer):
    """API server, publisher and server at once, which remember what they were asked for."""

    def __init__(self, *, refuses: bool = False) -> None:
        self.done: list[object] = []
        self._refuses = refuses

    def publish(
        self, me: GroupMember, because: str, *, majority: bool = False, additional: Mapping[str, Any]
    ) -> None:
        self.done.append(me.state)

    def patch(self, path: str, change: Mapping[str, Any]) -> Mapping[str, Any]:
        if self._refuses:
            raise PatchConflict("it has been modified")
        annotations: Mapping[str, str] = change["metadata"]["annotations"]
        said = json.loads(annotations[group_config.GROUP])
        self.done.append((said["epoch"], said["members"], change["metadata"]["resourceVersion"]))
        if group_config.GROUP_NAME in annotations:
            self.done.append(("is called", annotations[group_config.GROUP_NAME]))
        return {}

    def set_global(self, name: str, value: int | float | str | None) -> None:
        self.done.append((name, value))

    def start_group(self, *, founding: bool) -> None:
        self.done.append("founds" if founding else "joins")


def done(deed: Operation, known: GroupState, directory: Path, *, refuses: bool = False) -> tuple[list[object], int]:
    hands, joined = Hands(refuses=refuses), GroupEpoch(directory / "epoch")
    nothing = cast(Any, SimpleNamespace(initialise=None, stop=None))
    deeds = Operations(
        server=nothing,
        local=hands,
        parameters=nothing,
        certificates=nothing,
        api=hands,
        publisher=cast(Any, hands),
        path="group",
        group_epoch=joined,
    )
    others = [GroupMember(instance=0, state="Online", address="10.0.0.1:3306", epoch=2)]
    view = GroupView(own=GroupMember(instance=1, state="Offline"), store=known, others=others)
    carry_out = deeds.operation(MemberDecision(deed, ""), view, GroupConfig(state=known, version="7", name="g"))
    assert carry_out is not None
    if refuses:
        with pytest.raises(PatchConflict):
            carry_out()
    else:
        carry_out()
    return hands.done, joined.epoch


def test_first_join_is_recorded_before(tmp_path: Path) -> None:
    name, seeds = ("group_replication_group_name", "g"), ("group_replication_group_seeds", "10.0.0.1:3306")
    assert done("Join", KNOWN, tmp_path) == (["Joining", (2, [0, 1], "7"), seeds, name, "joins"], 2)
    again = KNOWN.with_member(1)
    assert done("Join", again, tmp_path) == (["Joining", seeds, name, "joins"], 2)


def test_unrecorded_member_does_not_join(tmp_path: Path) -> None:
    assert done("Join", KNOWN, tmp_path, refuses=True) == (["Joining"], 0)
    assert done("Found", KNOWN, tmp_path, refuses=True) == (["Joining"], 0)


def test_bootstrap_uses_later_epoch(tmp_path: Path) -> None:
    lost = GroupState(known_instances=frozenset({0, 1}))
    name = ("group_replication_group_name", "g")
    assert done("Found", lost, tmp_path) == (
        ["Joining", (3, [0, 1], "7"), ("is called", "g"), name, "founds"],
        3,
    )


def test_forced_bootstrap_uses_new_group_name(tmp_path: Path) -> None:
    """The transactions that are given up have the numbers that would come next under its name."""
    consented = replace(KNOWN, members=frozenset({0, 1}), forced_recovery_instance=1)
    (joining, written, called, runs_as, founds), _ = done("Found", consented, tmp_path)
    assert (joining, written, founds) == ("Joining", (3, [0, 1], "7"), "founds")
    name = str(cast(tuple[str, str], called)[1])
    assert name != "g" and str(uuid.UUID(name)) == name
    # In the same write: who is cut off after it finds the name in the store, and no consent to take another.
    assert (called, runs_as) == (("is called", name), ("group_replication_group_name", name))
    others = replace(consented, forced_recovery_instance=0)
    assert ("is called", "g") in done("Found", others, tmp_path)[0]
