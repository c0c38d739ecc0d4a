"""What is read of members, from annotations as Patroni 4.0.7 really writes them."""

from __future__ import annotations

import json
from typing import Any

import pytest
from msgspec import structs

from steersman.api.core_v1 import ConfigMap, ContainerState, ContainerStateRunning, ContainerStatus, Pod, PodStatus
from steersman.meta import FrozenDict, ObjectKey, ObjectMeta
from steersman_databases.engines.members import Member, Members, PendingSetting, SwitchoverRequest
from steersman_databases.engines.postgresql.ha.backend import members_of

CLUSTER = ObjectKey("shop", "pg")
RUNNING = ContainerState(running=ContainerStateRunning())
# [timeline, where it ended, why, when, the next primary]
HISTORY = '[[1,83886248,"no recovery target specified","2026-11-22T00:15:30.5+00:00","pg-1-0"]]'


def pod(number: int, *, container: ContainerState = RUNNING, **status: Any) -> Pod:
    annotations = {"status": json.dumps(status)} if status else {}
    name = f"pg-{number}-0"
    return Pod(
        metadata=ObjectMeta(name=name, namespace="shop", annotations=FrozenDict(annotations)),
        status=PodStatus(container_statuses=(ContainerStatus(name="server", state=container),)),
    )


def store(**annotations: dict[str, str]) -> list[ConfigMap]:
    return [
        ConfigMap(
            metadata=ObjectMeta(
                name=f"pg-{name}", namespace="shop", annotations=FrozenDict(told), resource_version=f"v-{name}"
            )
        )
        for name, told in annotations.items()
    ]


def primary(number: int = 0, **more: Any) -> Pod:
    return pod(number, state="running", role="primary", xlog_location=84212224, timeline=2, **more)


def replica(number: int, *, container: ContainerState = RUNNING, **more: Any) -> Pod:
    told: dict[str, Any] = {"state": "running", "role": "replica", "replication_state": "streaming", "timeline": 2}
    return pod(number, container=container, **{"xlog_location": 84212224, **told, **more})


def seen(*pods: Pod, **annotations: dict[str, str]) -> Members:
    given = {"leader": {"leader": "pg-0-0", "optime": "84212224"}, "config": {"history": HISTORY}} | annotations
    return members_of(CLUSTER, pods, store(**given))


def only(members: Members, number: int) -> Member:
    found = members.member(number)
    assert found is not None
    return found


def test_idle_cluster_is_parsed() -> None:
    config = {"initialize": "7710782271306764311", "config": '{"ttl":20}', "history": HISTORY}
    sync = {"leader": "pg-0-0", "quorum": "1", "sync_standby": "pg-1-0,pg-2-0"}
    members = seen(
        replica(2, xlog_location=84211224),
        primary(tags={"version": "17.12"}),
        replica(1),
        config=config,
        sync=sync,
        failover={},
    )
    assert [member.instance for member in members.members] == [0, 1, 2]
    assert members.leader == 0 and members.is_initialized and members.settings == {"ttl": 20}
    assert members.primary == only(members, 0) and only(members, 0).version == "17.12"
    assert [member.state for member in members.members] == ["Running", "Streaming", "Streaming"]
    assert [member.synchronous for member in members.members] == [False, True, True]
    assert [member.lag_bytes for member in members.members] == [None, 0, 1000]
    assert members.switchover_request is None
    assert members.dcs_versions["pg-config"] == "v-config"


@pytest.mark.parametrize(
    ("config", "begun", "initialized"),
    [({}, False, False), ({"initialize": ""}, True, False), ({"initialize": "7710782271306764311"}, False, True)],
)
def test_bootstrapping_member_is_parsed(config: dict[str, str], begun: bool, initialized: bool) -> None:
    members = seen(config=config)
    assert (members.bootstrap_claimed, members.is_initialized) == (begun, initialized)


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        ("starting", "Starting"),
        ("initializing new cluster", "Starting"),
        ("creating replica", "Cloning"),
        ("stopped", "Stopped"),
        ("crashed", "Crashed"),
        ("start failed", "StartFailed"),
        ("restart failed (start failed)", "StartFailed"),
        ("initdb failed", "StartFailed"),
        ("something new", "Unknown"),
    ],
)
def test_states(state: str, expected: str) -> None:
    assert only(seen(pod(1, state=state, role="replica")), 1).state == expected


def test_terminated_container_state_is_ignored() -> None:
    assert only(seen(pod(1, container=ContainerState(), state="running", role="primary")), 1).state == "Stopped"


def test_silent_pod_has_unknown_state() -> None:
    assert only(seen(pod(1)), 1).state == "Unknown"


def test_primary_without_lock_is_not_primary() -> None:
    members = seen(primary(0), primary(1), leader={"leader": "pg-1-0"})
    assert members.primary == only(members, 1) and only(members, 0).role == "Primary"


def test_pending_restart_settings_are_parsed() -> None:
    reason = {"max_connections": {"old_value": "40", "new_value": "60"}}
    member = only(seen(primary(pending_restart=True, pending_restart_reason=reason)), 0)
    assert member.pending_restart
    assert list(member.pending_settings) == [PendingSetting(name="max_connections", previous="40", value="60")]


@pytest.mark.parametrize(
    ("names", "due"),
    [
        (("archive_mode",), False),
        (("archive_mode", "max_connections"), True),
        (("max_connections",), True),
        ((), True),
    ],
)
def test_restart_for_archive_mode_alone_is_deferred(names: tuple[str, ...], due: bool) -> None:
    reason = {name: {"old_value": "off", "new_value": "always"} for name in names}
    member = only(seen(primary(pending_restart=True, pending_restart_reason=reason)), 0)
    assert (member.pending_restart, member.restart_due) == (True, due)


def test_crashed_agent_leaves_member_running() -> None:
    crashed = ContainerStatus(name="agent", state=ContainerState())
    found = primary()
    status = PodStatus(container_statuses=(crashed, *found.status.container_statuses))
    assert only(seen(structs.replace(found, status=status)), 0).state == "Running"


@pytest.mark.parametrize(
    ("status", "diverged"),
    [
        # Beyond the point where timeline 1 ended, and not following.
        ({"timeline": 1, "xlog_location": 83886249, "replication_state": "in archive recovery"}, True),
        ({"timeline": 1, "xlog_location": 83886248, "replication_state": "in archive recovery"}, False),
        ({"timeline": 2, "replication_state": "streaming"}, False),
    ],
)
def test_own_history_is_diverged(status: dict[str, Any], diverged: bool) -> None:
    assert only(seen(primary(), replica(1, **status)), 1).timeline_diverged is diverged


@pytest.mark.parametrize(("history", "diverged"), [("[[1,5],[3,9]]", True), ("[[1,5]]", False), ("[]", False)])
def test_abandoned_timeline_is_diverged(history: str, diverged: bool) -> None:
    """It is known as soon as a later one is written down: the last line may be missing yet."""
    leads = pod(0, state="running", role="primary", xlog_location=84212224, timeline=4)
    left = replica(1, timeline=2, xlog_location=4, replication_state="in archive recovery")
    assert only(seen(leads, left, config={"history": history}), 1).timeline_diverged is diverged


@pytest.mark.parametrize(
    ("status", "behind"),
    [
        ({"xlog_location": 84000000}, 84000000),
        ({"xlog_location": 84212224}, None),
        ({"xlog_location": 84212225}, None),
        ({"timeline": None, "xlog_location": 84000000}, None),
        ({"xlog_location": None}, None),
        # On the timeline before, no further than where it ended; and on one of which nobody knows where it ended.
        ({"timeline": 1, "xlog_location": 83886248}, 83886248),
        ({"timeline": 1, "xlog_location": 83886249}, None),
        ({"timeline": 0, "xlog_location": 1000}, None),
        ({"timeline": 3, "xlog_location": 1000}, None),
        ({"state": "start failed", "xlog_location": 84000000}, None),
    ],
)
def test_replica_behind_primary_is_not_diverged(status: dict[str, Any], behind: int | None) -> None:
    told: dict[str, Any] = {"replication_state": "in archive recovery", **status}
    strays = replica(1, **told)
    assert only(seen(primary(), strays), 1).wal_position == behind
    assert only(seen(primary(), strays), 0).wal_position is None


def test_pending_switchover_is_parsed() -> None:
    assert seen(failover={"leader": "pg-0-0", "member": "pg-2-0"}).switchover_request == SwitchoverRequest(to=2)
    assert seen(failover={"leader": "pg-0-0"}).switchover_request == SwitchoverRequest(to=None)


def test_previous_leader_is_parsed() -> None:
    assert seen(leader={}, sync={"leader": "pg-2-0"}).previous_leader == 2
    assert seen(leader={}, sync={}).previous_leader == 1
    assert seen(leader={}, sync={}, config={}).previous_leader is None


def test_slots_of_primary_are_parsed() -> None:
    leader = {"leader": "pg-0-0", "slots": '{"cdc":84212224,"pg_1_0":84212224}'}
    assert seen(primary(), leader=leader).slots == {"cdc", "pg_1_0"}
    assert seen(primary(), leader={"leader": "pg-0-0", "slots": "["}).slots == frozenset()


def test_invalid_json_annotations_are_ignored() -> None:
    broken = Pod(metadata=ObjectMeta(name="pg-0-0", namespace="shop", annotations=FrozenDict({"status": "{"})))
    members = seen(broken, config={"config": "[", "history": "nonsense"})
    assert only(members, 0).state == "Unknown" and members.settings is None


def test_foreign_pods_are_ignored() -> None:
    stranger = Pod(metadata=ObjectMeta(name="pg-pooler-0", namespace="shop"))
    assert not seen(stranger).members
