"""Clusters of MySQL's from making to deletion, in memory: what the operator does beside members that decide."""

from __future__ import annotations

import json
from typing import Any

import pytest

from database_support.unit.cluster_harness import ClusterHarness
from database_support.unit.fake_group import GtidSet
from database_support.unit.group_harness import KEY, NAMES, GroupHarness
from steersman.api.core_v1 import PersistentVolumeClaim
from steersman.api.events_v1 import Event
from steersman.meta import ObjectMeta
from steersman_databases.api import MySQLCluster, MySQLClusterSpec, PostgreSQLCluster, PostgreSQLClusterSpec
from steersman_databases.cluster.status.mysql import MySQLAdapter
from steersman_manifests.crd import violations
from steersman_testing import virtual_time

ERRANT = "bbbbbbbb-0000-0000-0000-000000000000:1-3"


@virtual_time
@pytest.mark.parametrize("instances", [1, 3])
async def test_cluster_is_created_and_group_bootstrapped_once(instances: int) -> None:
    world = GroupHarness()
    async with world.operator():
        await world.create_ready(instances, instances=instances)
        assert (world.status.primary, world.status.version) == ("orders-0", "9.7.4")
        assert world.fake_group.founded == ["orders-0"] and world.fake_group.initialised == 1
        assert world.group["instances"] == ",".join(map(str, range(instances)))
        assert world.condition("NoErrantTransactions") == "True/NoErrantTransactions"
        entries = world.secret("orders-admin")
        assert entries["username"] == "root" and not any("sslmode" in text for text in entries.values())


@virtual_time
async def test_failover_previous_primary_rejoins() -> None:
    world = GroupHarness()
    async with world.operator():
        await world.create_ready(3)
        await world.kill("orders-0")
        await world.until("taken over", lambda: world.status.primary not in (None, "orders-0"))
        await world.ready(3)
        assert len(world.fake_group.founded) == 1
        await world.until("told", lambda: "Failover" in world.events())


@virtual_time
async def test_member_error_is_reported_until_it_succeeds() -> None:
    world = GroupHarness()
    async with world.operator():
        await world.create_ready(3)
        world.fake_group.failing["orders-1-0"] = "Clone failed: page corrupt"
        await world.kill("orders-1")
        await world.until("told", lambda: world.condition("Ready") == "False/MemberError")
        assert "orders-1: Clone failed: page corrupt" in world.message("Ready")
        await world.until("an Event", lambda: "MemberError" in world.events())
        world.fake_group.failing.clear()
        await world.kill("orders-1")
        await world.ready(3)


@virtual_time
async def test_requested_switchover_moves_primary() -> None:
    world = GroupHarness()
    async with world.operator():
        await world.create_ready(3)
        await world.annotate(switchover="orders-2")
        await world.until("switched", lambda: world.status.primary == "orders-2")
        await world.until("ended", lambda: world.status.last_switchover.outcome == "Succeeded")
        await world.ready(3)
        assert world.fake_group.switchover_requests == ["orders-2"] and "Failover" not in world.events()


@virtual_time
async def test_rejected_switchover_is_sent_once() -> None:
    world = GroupHarness()
    world.fake_group.rejects_switchover.add("orders-2")
    async with world.operator():
        await world.create_ready(3)
        await world.annotate(switchover="orders-2")
        await world.until("refused", lambda: "SwitchoverRejected" in world.events())
        await world.wait()
        assert world.fake_group.switchover_requests == ["orders-2"] and world.status.primary == "orders-0"


@virtual_time
async def test_dynamic_parameter_needs_no_restart() -> None:
    world = GroupHarness()
    async with world.operator():
        await world.create_ready(3)
        before = world.uids()
        await world.change(mysql={"parameters": {"max_connections": "200", "max_binlog_size": "32M"}})
        wanted = {("max_connections", "200"), ("max_binlog_size", "32M")}
        await world.until("applied", lambda: all(wanted <= set(world.data(n).started_with.items()) for n in before))
        await world.ready(3)
        assert world.uids() == before and world.status.primary == "orders-0"


@virtual_time
async def test_static_parameter_restarts_replicas_first() -> None:
    world = GroupHarness()
    async with world.operator():
        await world.create_ready(3)
        before = world.uids()
        await world.change(mysql={"parameters": {"table_open_cache_instances": "8"}})
        await world.until("restarted", lambda: world.status.primary not in (None, "orders-0"))
        await world.ready(3)
        runs = [
            world.data(name).started_with["table_open_cache_instances"]
            for name in ("orders-0", "orders-1", "orders-2")
        ]
        assert runs == ["8", "8", "8"] and world.uids() == before
        assert len(world.fake_group.founded) == 1 and len(world.fake_group.switchover_requests) == 1


@virtual_time
async def test_rejected_parameter_is_reported_with_reason() -> None:
    world = GroupHarness()
    async with world.operator():
        await world.create_ready(1, instances=1)
        for name, value, words in (
            ("group_replication_consistency", "EVENTUAL", "the operator manages the group"),
            ("datadir", "/tmp/elsewhere", "the image determines the location of files"),
            ("sync_binlog", "0", "a power failure loses"),
            ("no_such_thing", "1", "Unknown system variable"),
            ("max_connections", "many", "Incorrect argument type"),
            ("max_connections", "100001", "it is from 1 to 100000"),
            ("slow_query_log", "sometimes", "can't be set to the value"),
            ("innodb_buffer_pool_size", "1G", "the memory limit of 768Mi"),
        ):
            await world.change(mysql={"parameters": {name: value}})
            await world.until(
                f"{name} is rejected", lambda: world.condition("ParametersApplied") == "False/ParameterRejected"
            )
            assert name in world.message("ParametersApplied") and words in world.message("ParametersApplied")
            assert json.loads(world.group["parameters"]).get(name) != value
            assert (world.status.phase, world.condition("Ready")) == ("Degraded", "False/Degraded")
            await world.change(mysql={"parameters": {name: None}})
            await world.ready(1)


@virtual_time
@pytest.mark.parametrize("name", ["innodb_doublewrite", "loose_innodb_doublewrite"])
async def test_unvalidated_parameter_is_not_written(name: str) -> None:
    world = GroupHarness()
    async with world.operator():
        await world.create(instances=1, mysql={"parameters": {name: "OFF", "max_binlog_size": "900G"}})
        await world.until("refused", lambda: world.condition("ParametersApplied") == "False/ParameterRejected")
        assert name not in json.loads(world.group["parameters"])


@virtual_time
async def test_parameter_rejected_at_runtime_is_reported() -> None:
    world = GroupHarness()
    world.fake_group.rejecting.add(("sql_mode", "NONSENSE"))
    async with world.operator():
        await world.create_ready(1, instances=1)
        await world.change(mysql={"parameters": {"sql_mode": "NONSENSE"}})
        await world.until("refused", lambda: world.condition("ParametersApplied") == "False/ParameterRejected")
        assert "can't be set to the value of 'NONSENSE'" in world.message("ParametersApplied")


@virtual_time
async def test_cluster_scales_up_and_down() -> None:
    world = GroupHarness()
    async with world.operator():
        await world.create_ready(1, instances=1)
        await world.change(instances=3)
        await world.ready(3)
        await world.change(instances=2)
        await world.ready(2)
        await world.until("gone", lambda: sorted(world.pods()) == ["orders-0", "orders-1"])
        await world.until("written down", lambda: world.group["instances"] == "0,1")


@virtual_time
async def test_fenced_instance_leaves_and_returns() -> None:
    world = GroupHarness()
    async with world.operator():
        await world.create_ready(3)
        await world.annotate(fenced_instances="orders-0")
        await world.until("fenced", lambda: world.condition("Ready") == "False/Fenced")
        assert world.status.primary in ("orders-1", "orders-2")
        await world.annotate(fenced_instances=None)
        await world.ready(3)
        assert len(world.fake_group.founded) == 1


@virtual_time
async def test_hibernation_keeps_data() -> None:
    world = GroupHarness()
    async with world.operator():
        await world.create_ready(3)
        await world.change(hibernated=True)
        await world.until("asleep", lambda: world.status.phase == "Hibernated")
        assert not world.pods()
        await world.change(hibernated=False)
        await world.ready(3)
        assert world.fake_group.initialised == 1 and len(world.fake_group.founded) == 2


@virtual_time
async def test_retained_data_is_adopted() -> None:
    world = GroupHarness()
    async with world.operator():
        await world.create_ready(2, instances=2)
        await world.client.delete(MySQLCluster, KEY)
        await world.until("gone", lambda: world.cluster is None and not world.pods())
        assert world.pvc_names() == ["data-orders-0", "data-orders-1"]
        await world.create(instances=2)
        await world.ready(2)
        assert world.fake_group.initialised == 1


@virtual_time
async def test_deleted_data_is_removed() -> None:
    world = GroupHarness()
    async with world.operator():
        await world.create_ready(2, instances=2, deletion_policy="Delete")
        await world.client.delete(MySQLCluster, KEY)
        await world.until("gone", lambda: world.cluster is None and not world.pvc_names())
        assert not world.group and not world.secret("orders-ca")


@virtual_time
async def test_changed_pod_is_recreated() -> None:
    world = GroupHarness()
    async with world.operator():
        await world.create_ready(3)
        before = world.uids()
        await world.annotate(restarted_at="now")
        await world.until("renewed", lambda: not set(before.values()) & set(world.uids().values()))
        await world.ready(3)
        assert len(world.fake_group.founded) == 1 and len(world.fake_group.switchover_requests) == 1


@virtual_time
@pytest.mark.parametrize(("former", "wanted", "asked"), [("9.7.4", "9.7.10", 0), ("9.7.10", "9.7.4", 1)])
async def test_patch_version_reaches_primary_last(former: str, wanted: str, asked: int) -> None:
    """A group makes nobody primary who is newer than another: then the old primary leaves, and is not asked."""
    world = GroupHarness()
    async with world.operator():
        await world.create_ready(3, image=f"example.org/mysql:{former}")
        before, renewed = world.uids(), list[str]()
        await world.change(image=f"example.org/mysql:{wanted}")

        def all_are_new() -> bool:
            renewed.extend(n for n, uid in world.uids().items() if uid != before[n] and n not in renewed)
            return len(renewed) == 3

        await world.until("all are new", all_are_new)
        await world.ready(3)
        assert renewed[-1] == "orders-0", "the former primary is the last"
        assert (world.status.primary, world.status.version) == ("orders-1", wanted)
        assert len(world.fake_group.switchover_requests) == asked and len(world.fake_group.founded) == 1
        assert world.condition("Ready") == "True/AllInstancesReady" and "SwitchoverRejected" not in world.events()


@virtual_time
async def test_lost_volume_is_replaced_by_clone() -> None:
    world = GroupHarness()
    async with world.operator():
        await world.create_ready(3)
        await world.client.delete(PersistentVolumeClaim, NAMES.data_pvc(2))
        await world.until("replaced", lambda: "orders-3" in world.pods())
        await world.ready(3)
        assert world.group["instances"] == "0,1,3"


@virtual_time
async def test_primary_with_lost_volume_switches_over() -> None:
    world = GroupHarness()
    async with world.operator():
        await world.create_ready(3)
        await world.client.delete(PersistentVolumeClaim, NAMES.data_pvc(0))
        await world.until("handed over", lambda: world.status.primary != "orders-0")
        await world.until("replaced", lambda: "orders-3" in world.pods() and "orders-0" not in world.pods())
        await world.ready(3)
        assert "Failover" not in world.events()


@virtual_time
async def test_replica_with_foreign_data_is_cloned_again() -> None:
    world = GroupHarness()
    async with world.operator():
        await world.create_ready(3)
        world.data("orders-2").diverged = True
        await world.kill("orders-2")
        await world.wait(240)
        assert "orders-2" in world.pods(), "it may come to itself"
        await world.until("made anew", lambda: "orders-3" in world.pods() and "orders-2" not in world.pods())
        await world.ready(3)
        assert "InstanceReplaced" in world.events()


@virtual_time
async def test_errant_replica_is_not_replaced_as_diverged() -> None:
    world = GroupHarness()
    async with world.operator():
        await world.create_ready(3)
        world.data("orders-2").diverged = True
        world.data("orders-2").gtids = GtidSet.parse(ERRANT)
        await world.kill("orders-2")
        await world.until("told", lambda: world.condition("NoErrantTransactions") == "False/ErrantTransactions")
        await world.wait(420)
        assert "orders-2" in world.pods()


@virtual_time
async def test_restored_parameter_is_reported_once() -> None:
    world = GroupHarness()
    async with world.operator():
        await world.create_ready(3)
        for minute, names in ((1, ["max_connections", "sql_mode"]), (2, ["sql_mode"])):
            at = f"2026-11-27T07:{minute:02}:00+00:00"
            world.fake_group.restored["orders-1-0"] = {"time": at, "parameters": names}
            # It says something when something happens to it.
            await world.kill("orders-1")
            await world.ready(3)
            await world.wait(300)
            [member] = [m for m in world.status.members if m.restored_parameters is not None]
            assert (member.name, member.restored_parameters.time.minute) == ("orders-1", minute)
            words = f"reverted parameters that were changed by SET GLOBAL: {', '.join(names)} on orders-1"
            [told] = [e for e in world.server.read_all(Event) if e.note == words]
            assert told.reason == "DriftReverted" and told.series is None, "it is told once"


@virtual_time
@pytest.mark.parametrize(
    ("said", "shown"),
    [
        ({"time": "yesterday", "parameters": ["sql_mode"]}, None),
        ({"time": "2026-11-27", "parameters": ["sql_mode"]}, None),
        ({"time": "2026-11-27T08:00:00Z", "parameters": [f"p{n % 400}" for n in range(800)]}, 300),
    ],
    ids=["no-time", "no-zone", "too-many"],
)
async def test_restored_parameters_of_pod_are_validated(said: dict[str, Any], shown: int | None) -> None:
    world = GroupHarness()
    world.fake_group.restored["orders-1-0"] = said
    async with world.operator():
        await world.create_ready(3)
        [member] = [m for m in world.status.members if m.name == "orders-1"]
        assert (None if member.restored_parameters is None else len(member.restored_parameters.parameters)) == shown


@virtual_time
async def test_errant_transactions_reported_until_replacement() -> None:
    world = GroupHarness()
    async with world.operator():
        await world.create_ready(3)
        world.data("orders-2").gtids = GtidSet.parse(ERRANT)
        await world.kill("orders-2")
        await world.until("told", lambda: world.condition("NoErrantTransactions") == "False/ErrantTransactions")
        assert f"orders-2 has errant transactions {ERRANT}" in world.message("NoErrantTransactions")
        await world.wait(420)
        assert "orders-2" in world.pods(), "nothing is thrown away unasked"
        [member] = [m for m in world.status.members if m.name == "orders-2"]
        assert (member.errant_gtids, member.ready) == (ERRANT, False)
        await world.annotate(replace_instance="orders-2")
        await world.until("made anew", lambda: "orders-3" in world.pods() and "orders-2" not in world.pods())
        await world.ready(3)
        assert world.condition("NoErrantTransactions") == "True/NoErrantTransactions"
        assert "databases.steersman.dev/replace-instance" not in world.cluster.metadata.annotations


@virtual_time
async def test_primary_is_not_replaced() -> None:
    world = GroupHarness()
    async with world.operator():
        await world.create_ready(3)
        await world.annotate(replace_instance="orders-0")
        await world.until("refused", lambda: "ReplacementRejected" in world.events())
        await world.ready(3)
        assert "orders-0" in world.pods()


@virtual_time
async def test_two_kinds_with_same_name_do_not_conflict() -> None:
    world = GroupHarness()
    async with world.operator():
        await world.create_ready(1, instances=1)
        metadata = ObjectMeta(name=KEY.name, namespace=KEY.namespace)
        await world.client.create(PostgreSQLCluster(metadata=metadata, spec=PostgreSQLClusterSpec(instances=1)))
        other = ClusterHarness.__new__(ClusterHarness)
        other.__dict__.update(world.__dict__)
        await world.until("told", lambda: other.condition("Ready") == "False/NameConflict")
        assert "an older MySQLCluster orders exists" in other.message("Ready")
        await world.wait()
        assert world.status.phase == "Ready" and world.statefulsets() == ["orders-0"]


def test_mariadb_image_is_rejected() -> None:
    metadata = ObjectMeta(name=KEY.name, namespace=KEY.namespace)
    cluster = MySQLCluster(metadata=metadata, spec=MySQLClusterSpec(image="docker.io/library/mariadb:11.8"))
    assert MySQLAdapter().unsupported(cluster).startswith("spec.image: MariaDB has no Group Replication")
    [words] = violations(cluster)
    assert words.startswith(".spec.image: clusters need MySQL")
