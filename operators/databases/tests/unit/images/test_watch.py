"""What is seen of a member beside Patroni: how full its volumes are, whether it follows, whether data are there."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from database_support.unit.image_script import script

watch, role = script("postgresql", "watch"), script("postgresql", "role")
MIB = 1 << 20


@pytest.mark.parametrize(("does", "size"), [("echo 'Bytes per WAL segment:  67108864'", 64 * MIB), ("exit 1", None)])
def test_segment_size_is_read_from_data(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, does: str, size: int | None
) -> None:
    program = tmp_path / "pg_controldata"
    program.write_text(f"#!/bin/sh\n{does}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert watch.segment_size() == size


def test_usage_is_written_to_this_pod_only() -> None:
    pod = role.PodIdentity(name="orders-0-0", namespace="shop", uid="u", node="n", addresses=())
    (request,) = role.report_patch(pod, role.STORAGE, json.dumps({"data": 90}))
    assert request.path == "/api/v1/namespaces/shop/pods/orders-0-0"
    annotations = {"databases.steersman.dev/volume-usage": '{"data": 90}'}
    assert request.body == {"metadata": {"uid": "u", "annotations": annotations}}


class Member:
    """One whose Patroni says ``said``; ``ends`` has what a program ends with."""

    def __init__(self, place: Path, patch: pytest.MonkeyPatch) -> None:
        self.said: Mapping[str, Any] | None = {}
        self.ends: dict[str, int | None] = {}
        self.signals: list[int] = []
        self.asked: list[str] = []
        self.pod = place / "pod.yaml"
        self.pod.write_text(json.dumps({"name": "orders-1-0", "tags": {"version": "17.12"}}))
        (place / "patroni.yaml").write_text('{"scope": "orders"}')
        for name, value in {"POD": self.pod, "CLUSTER": place / "patroni.yaml", "STANDBY": place / "standby"}.items():
            patch.setattr(watch, name, value)
        (place / "standby").touch()
        patch.setattr(watch, "patroni_status", self.answer)
        patch.setattr(watch, "run", self.run)
        patch.setattr(os, "kill", self.kill)

    def answer(self, path: str) -> Mapping[str, Any] | None:
        assert path == "/patroni"
        return self.said

    def kill(self, pid: int, number: int) -> None:
        assert pid == 1
        self.signals.append(number)

    def run(self, command: list[str]) -> int | None:
        self.asked.append(" ".join(command))
        return self.ends.get(command[1], 0)

    @property
    def reads(self) -> bool:
        told = json.loads(self.pod.read_text())
        assert told["name"] == "orders-1-0" and told["tags"]["version"] == "17.12"
        return not told["tags"].get("noloadbalance", False)


@pytest.fixture
def member(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Member:
    return Member(tmp_path, monkeypatch)


STRAY = {"role": "replica", "state": "running"}
FOLLOWS = {**STRAY, "replication_state": "streaming"}


def test_not_following_replica_leaves_reads_until_it_follows(member: Member) -> None:
    looks = watch.ReadRoutingCheck()
    for now in range(0, 60, 3):
        member.said = STRAY
        looks.run(now)
        assert member.reads and not member.asked
    looks.run(60)
    assert not member.reads and member.signals == [signal.SIGHUP]
    assert member.asked == ["steersman-role serves orders"]
    looks.run(63)
    assert len(member.asked) == 1, "the API server is not asked with each look"
    member.said = FOLLOWS
    looks.run(66)
    assert not member.reads, "it may have asked in vain once more"
    looks.run(69)
    assert member.reads and member.signals == [signal.SIGHUP] * 2


def test_briefly_not_following_replica_keeps_reads(member: Member) -> None:
    looks = watch.ReadRoutingCheck()
    for now in range(0, 600, 20):
        # Each new primary, and each restart, begins the time anew.
        member.said = FOLLOWS if now % 60 else STRAY
        looks.run(now)
    for now in range(600, 1200, 30):
        member.said = {**STRAY, "cluster_unlocked": True}
        looks.run(now)
    assert member.reads and not member.asked
    member.ends["serves"] = 1
    for now in range(1200, 1500, 30):
        member.said = STRAY
        looks.run(now)
    assert member.reads and member.asked, "whoever has the lock recovers"


def test_unknown_state_keeps_reads(member: Member) -> None:
    looks = watch.ReadRoutingCheck()
    member.said = STRAY
    looks.run(0)
    looks.run(60)
    assert not member.reads
    member.ends["serves"] = None
    looks.run(90)
    assert not member.reads, "the API server is away"
    member.said = None
    looks.run(120)
    assert not member.reads, "Patroni does not answer"
    member.said, member.ends["serves"] = STRAY, 1
    looks.run(150)
    assert member.reads


@pytest.mark.parametrize("said", [{"role": "primary", "state": "running"}, {**STRAY, "state": "starting"}])
def test_only_running_replica_can_be_not_following(said: dict[str, str]) -> None:
    assert not watch.is_not_following(said)


def test_replica_with_lost_data_seen_twice_is_ended(member: Member) -> None:
    looks = watch.DataCheck()
    for now, lost in ((0, True), (30, False), (60, True)):
        member.ends["check"] = 65 if lost else 0
        looks.run(now)
    looks.run(63)
    assert member.signals == [], "a file may be on its way"
    looks.run(90)
    assert member.signals == [signal.SIGTERM]


@pytest.mark.parametrize("code", [0, 1, -9, None])
def test_other_exit_codes_do_not_imply_data_loss(member: Member, code: int | None) -> None:
    looks = watch.DataCheck()
    member.ends["check"] = code
    for now in range(0, 300, 30):
        looks.run(now)
    assert member.asked and member.signals == []


def test_primary_with_lost_data_is_kept(member: Member, tmp_path: Path) -> None:
    (tmp_path / "standby").unlink()
    looks = watch.DataCheck()
    member.ends["check"] = 65
    for now in range(0, 300, 30):
        looks.run(now)
    assert member.asked == [] and member.signals == []


class Writes:
    """A check that says ``error``."""

    error = ""


def test_write_report_follows_the_check(member: Member) -> None:
    writes = Writes()
    report = watch.WriteReport(writes)
    report.run(0)
    assert member.asked == ["steersman-role writes "], "what an earlier container has said"
    report.run(3)
    writes.error = "read-only"
    for now in (6, 9, 305):
        report.run(now)
    assert member.asked[1:] == ["steersman-role writes read-only"]
    report.run(306)
    assert member.asked[2:] == ["steersman-role writes read-only"], "another client may have removed it"
    writes.error = ""
    member.ends["writes"] = 1
    report.run(309)
    member.ends["writes"] = 0
    report.run(312)
    report.run(315)
    assert member.asked[3:] == ["steersman-role writes "] * 2


def test_write_error_is_removed_from_this_pod() -> None:
    pod = role.PodIdentity(name="orders-0-0", namespace="shop", uid="u", node="n", addresses=())
    (request,) = role.report_patch(pod, role.WRITE_ERROR, None)
    assert request.body == {"metadata": {"uid": "u", "annotations": {"databases.steersman.dev/write-error": None}}}
