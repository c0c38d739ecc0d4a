"""Bootstrap, failover, switchover and outages of a group of three real MySQL servers."""

from __future__ import annotations

import os

import pytest

from database_support.servers.mysql_group_fixtures import group, kept, primary, replicas, settled, write
from database_support.servers.mysql_members import MemberProcess, MemberProcesses, until

__all__ = ["group", "primary"]

pytestmark = [pytest.mark.xdist_group("mysql-group-bootstrap"), pytest.mark.timeout(600)]


def test_first_instance_bootstraps_after_all_were_seen(group: MemberProcesses) -> None:
    first, *others = group.all
    first.start()
    until(
        "it has data and waits",
        lambda: "instance 1 has not been seen" in str(first.published_status().get("reason")),
    )
    assert group.epoch() == 0
    for one in others:
        one.start()
    assert settled(group) is first
    assert group.epoch() == 1
    write(first)
    for one in others:
        assert "Clone: instance" in one.log
        until("it has them", lambda one=one: kept(one) == 10)
    assert len({one.published_status()["uuid"] for one in group.all}) == 3
    assert first.published_status()["version"].startswith("9.7.")


def test_killed_server_is_succeeded(group: MemberProcesses, primary: MemberProcess) -> None:
    write(primary)
    rows = kept(primary)
    primary.kill_server()
    successor = until("another leads", lambda: group.another(primary))
    write(successor)
    assert settled(group) is successor
    until("it has caught up", lambda: kept(primary) == rows + 10)
    assert group.epoch() == 1


def test_terminated_primary_switches_over(group: MemberProcesses, primary: MemberProcess) -> None:
    write(primary)
    assert primary.end() == 0
    assert "HandOver: this pod is about to end" in primary.log
    successor = until("another leads", lambda: group.another(primary))
    primary.start()
    assert settled(group) is successor


def test_requested_switchover_moves_primary(group: MemberProcesses, primary: MemberProcess) -> None:
    [wanted, *_] = replicas(group, primary)
    group.annotate(switchover_target=str(wanted.number))
    until("it leads", lambda: group.primary() is wanted)
    until("the request is gone", lambda: not any("switchover" in name for name in group.annotations()))


def test_all_killed_recover_without_loss(group: MemberProcesses, primary: MemberProcess) -> None:
    write(primary)
    rows, epoch = kept(primary), group.epoch()
    for one in group.all:
        one.kill()
    for one in group.all:
        one.start()
    # What stands at the pods is from before, so it must not be asked first.
    until("a group is founded", lambda: group.epoch() == epoch + 1)
    again = settled(group)
    until("all have them", lambda: all(kept(one) == rows for one in group.all))
    write(again)


def test_joining_member_does_not_block_leaving_group(group: MemberProcesses, primary: MemberProcess) -> None:
    """The server tries it for one or two minutes, and as long nobody else may found a group."""
    late, epoch = replicas(group, primary)[0], group.epoch()
    late.end()
    write(primary)
    rows, others = kept(primary), [one for one in group.all if one is not late]
    late.start()
    until("it joins", lambda: late.published_status()["state"] == "Joining")
    for one in others:
        one.kill()
    for one in others:
        one.start()
    until("a group is founded", lambda: group.epoch() == epoch + 1, 60)
    settled(group)
    until("all have them", lambda: all(kept(one) == rows for one in group.all))


def test_group_config_deleted_is_rewritten(group: MemberProcesses, primary: MemberProcess) -> None:
    epoch, name, (replica, *_) = group.epoch(), group.name(), replicas(group, primary)
    assert group.recorded_state()["members"] == [0, 1, 2]
    replica.kill()
    group.recreate_group_config(group_name="00000000-1111-2222-3333-444444444444")
    replica.start()
    # What stands at its pod is from before.
    until("it starts", lambda: replica.published_status()["state"] != "Online")
    assert settled(group) is primary
    assert group.epoch() == epoch and group.name() == name


@pytest.mark.skipif(os.environ.get("FAULTS") != "whole", reason="it takes minutes: make faults")
def test_abandoned_group_ends_when_superseded(group: MemberProcesses, primary: MemberProcess) -> None:
    write(primary)
    rows, epoch = kept(primary), group.epoch()
    survivor, other = replicas(group, primary)
    until("it has them", lambda: kept(survivor) == rows)
    lost = [primary, other]
    for one in lost:
        one.freeze()
    try:
        said = until(
            "it says what may be lost",
            lambda: survivor.published_status() if survivor.published_status().get("unseenInstances") else None,
        )
        assert said["unseenInstances"] == sorted(one.number for one in lost) and not said["missingGtids"]
        group.annotate(force_recovery=str(survivor.number))
        until("it has founded another", lambda: group.epoch() == epoch + 1)
        until("clients find it", lambda: group.endpoint() == survivor.pod.name)
        write(survivor)
    finally:
        for one in lost:
            one.freeze(thaw=True)
    assert settled(group) is survivor
    assert group.epoch() == epoch + 1
    for one in lost:
        until("it has them", lambda one=one: kept(one) == rows + 10)
        assert "leads in view" not in one.log.rpartition("another group was founded since")[2]


@pytest.mark.skipif(os.environ.get("FAULTS") != "whole", reason="it takes minutes: make faults")
def test_discarded_transactions_are_distinguished_from_new(group: MemberProcesses, primary: MemberProcess) -> None:
    write(primary)
    rows, name = kept(primary), group.name()
    survivor, other = replicas(group, primary)
    until("it has them", lambda: kept(survivor) == rows)
    assert survivor.end() == 0
    write(primary, 5)
    until("it has them", lambda: kept(other) == rows + 5)
    lost = [primary, other]
    for one in lost:
        one.freeze()
    try:
        survivor.start()
        until(
            "it says what may be lost",
            lambda: survivor.published_status().get("unseenInstances") == sorted(one.number for one in lost),
        )
        group.annotate(force_recovery=str(survivor.number))
        until("clients find it", lambda: group.endpoint() == survivor.pod.name)
        assert group.name() != name
        # More than was given up: under the same name its numbers would be used by now.
        write(survivor, 10)
    finally:
        for one in lost:
            one.freeze(thaw=True)
    for one in lost:
        said = until(
            "it says what it has",
            lambda one=one: one.published_status() if one.published_status().get("errantGtids") else None,
        )
        assert said["errantGtids"].startswith(f"{name}:") and said["state"] == "Offline"
        one.lose_volume()
        one.start()
    assert settled(group) is survivor
    for one in lost:
        until("it has them", lambda one=one: kept(one) == rows + 10)


def test_missing_last_primary_requires_user_decision(group: MemberProcesses, primary: MemberProcess) -> None:
    write(primary)
    rows, epoch = kept(primary), group.epoch()
    chosen = replicas(group, primary)[-1]
    until("it has everything", lambda: kept(chosen) == rows)
    for one in group.all:
        one.kill()
    primary.lose_volume()
    for one in group.all:
        one.start()
    for one in replicas(group, primary):
        until("it waits", lambda one=one: "the data of the last primary" in str(one.published_status().get("reason")))
    assert group.epoch() == epoch
    group.annotate(force_recovery=str(chosen.number))
    until("a group is founded", lambda: group.epoch() == epoch + 1)
    settled(group)
    assert not any("force-recovery" in name for name in group.annotations())
    assert kept(primary) == rows
