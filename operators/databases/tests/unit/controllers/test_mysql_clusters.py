"""Clusters of MySQL's from making to deletion, in memory: what the operator does beside members that decide."""

from __future__ import annotations

import json
from typing import Any

import pytest

from database_support.cluster_world import ClusterWorld
from database_support.group_model import GtidSet
from database_support.group_world import KEY, NAMES, GroupWorld
from steersman.api.core_v1 import PersistentVolumeClaim
from steersman.api.events_v1 import Event
from steersman.meta import ObjectMeta
from steersman_databases.api import MySQLCluster, MySQLClusterSpec, PostgreSQLCluster, PostgreSQLClusterSpec
from steersman_databases.controllers.mysql import OfMySQL
from steersman_manifests.crd import violations
from steersman_testing import virtual_time

ERRANT = "bbbbbbbb-0000-0000-0000-000000000000:1-3"


@virtual_time
@pytest.mark.parametrize("instances", [1, 3])
async def test_is_made_and_its_group_founded_once(instances: int) -> None:
    world = GroupWorld()
    async with world.operator():
        await world.create(instances=instances)
        await world.ready(instances)
        assert (world.status.primary, world.status.version) == ("orders-0", "9.7.4")
        assert world.farm.founded == ["orders-0"] and world.farm.initialised == 1
        assert world.group["instances"] == ",".join(map(str, range(instances)))
        assert world.condition("HistoryShared") == "True/Shared"
        entries = world.secret("orders-admin")
        assert entries["username"] == "root" and not any("sslmode" in text for text in entries.values())


@virtual_time
async def test_another_takes_over_and_the_former_primary_follows() -> None:
    world = GroupWorld()
    async with world.operator():
        await world.create()
        await world.ready(3)
        await world.kill("orders-0")
        await world.until("taken over", lambda: world.status.primary not in (None, "orders-0"))
        await world.ready(3)
        assert len(world.farm.founded) == 1
        await world.until("told", lambda: "Failover" in world.events())


@virtual_time
async def test_what_an_instance_tries_in_vain_is_told_until_it_succeeds() -> None:
    world = GroupWorld()
    async with world.operator():
        await world.create()
        await world.ready(3)
        world.farm.failing["orders-1-0"] = "Clone failed: page corrupt"
        await world.kill("orders-1")
        await world.until("told", lambda: world.condition("Ready") == "False/InstanceFailing")
        assert "orders-1: Clone failed: page corrupt" in world.message("Ready")
        await world.until("an Event", lambda: "InstanceFailing" in world.events())
        world.farm.failing.clear()
        await world.kill("orders-1")
        await world.ready(3)


@virtual_time
async def test_a_switchover_that_is_asked_for() -> None:
    world = GroupWorld()
    async with world.operator():
        await world.create()
        await world.ready(3)
        await world.annotate(switchover="orders-2")
        await world.until("switched", lambda: world.status.primary == "orders-2")
        await world.until("ended", lambda: world.status.last_switchover.outcome == "Succeeded")
        await world.ready(3)
        assert world.farm.asked == ["orders-2"] and "Failover" not in world.events()


@virtual_time
async def test_who_refuses_a_switchover_is_asked_once() -> None:
    world = GroupWorld()
    world.farm.refuses.add("orders-2")
    async with world.operator():
        await world.create()
        await world.ready(3)
        await world.annotate(switchover="orders-2")
        await world.until("refused", lambda: "SwitchoverRefused" in world.events())
        await world.rest()
        assert world.farm.asked == ["orders-2"] and world.status.primary == "orders-0"


@virtual_time
async def test_a_parameter_that_needs_no_restart() -> None:
    world = GroupWorld()
    async with world.operator():
        await world.create()
        await world.ready(3)
        before = world.uids()
        await world.change(mysql={"parameters": {"max_connections": "200", "max_binlog_size": "32M"}})
        wanted = {("max_connections", "200"), ("max_binlog_size", "32M")}
        await world.until("applied", lambda: all(wanted <= set(world.data(n).with_.items()) for n in before))
        await world.ready(3)
        assert world.uids() == before and world.status.primary == "orders-0"


@virtual_time
async def test_a_parameter_that_needs_a_restart_goes_to_replicas_first() -> None:
    world = GroupWorld()
    async with world.operator():
        await world.create()
        await world.ready(3)
        before = world.uids()
        await world.change(mysql={"parameters": {"table_open_cache_instances": "8"}})
        await world.until("restarted", lambda: world.status.primary not in (None, "orders-0"))
        await world.ready(3)
        runs = [world.data(name).with_["table_open_cache_instances"] for name in ("orders-0", "orders-1", "orders-2")]
        assert runs == ["8", "8", "8"] and world.uids() == before
        assert len(world.farm.founded) == 1 and len(world.farm.asked) == 1


@virtual_time
@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("group_replication_consistency", "EVENTUAL", "the members keep the group"),
        ("datadir", "/tmp/elsewhere", "the image decides where files are"),
        ("sync_binlog", "0", "a power failure loses"),
        ("no_such_thing", "1", "Unknown system variable"),
        ("max_connections", "many", "Incorrect argument type"),
        ("max_connections", "100001", "it is from 1 to 100000"),
        ("slow_query_log", "sometimes", "can't be set to the value"),
        ("innodb_buffer_pool_size", "1G", "nothing of the limit of 768Mi"),
    ],
)
async def test_a_parameter_that_is_refused_by_name_and_with_why(name: str, value: str, words: str) -> None:
    world = GroupWorld()
    async with world.operator():
        await world.create(instances=1)
        await world.ready(1)
        await world.change(mysql={"parameters": {name: value}})
        await world.until("refused", lambda: world.condition("ParametersApplied") == "False/ParameterRefused")
        assert name in world.message("ParametersApplied") and words in world.message("ParametersApplied")
        assert name not in json.loads(world.group["parameters"])
        assert (world.status.phase, world.condition("Ready")) == ("Degraded", "False/Degraded")
        await world.change(mysql={"parameters": {name: None}})
        await world.ready(1)


@virtual_time
@pytest.mark.parametrize("name", ["innodb_doublewrite", "loose_innodb_doublewrite"])
async def test_what_is_refused_is_not_written_before_a_server_could_be_asked(name: str) -> None:
    world = GroupWorld()
    async with world.operator():
        await world.create(instances=1, mysql={"parameters": {name: "OFF", "max_binlog_size": "900G"}})
        await world.until("refused", lambda: world.condition("ParametersApplied") == "False/ParameterRefused")
        assert name not in json.loads(world.group["parameters"])


@virtual_time
async def test_a_parameter_that_the_server_refuses_as_it_runs() -> None:
    world = GroupWorld()
    world.farm.unwilling.add(("sql_mode", "NONSENSE"))
    async with world.operator():
        await world.create(instances=1)
        await world.ready(1)
        await world.change(mysql={"parameters": {"sql_mode": "NONSENSE"}})
        await world.until("refused", lambda: world.condition("ParametersApplied") == "False/ParameterRefused")
        assert "can't be set to the value of 'NONSENSE'" in world.message("ParametersApplied")


@virtual_time
async def test_more_instances_and_fewer() -> None:
    world = GroupWorld()
    async with world.operator():
        await world.create(instances=1)
        await world.ready(1)
        await world.change(instances=3)
        await world.ready(3)
        await world.change(instances=2)
        await world.ready(2)
        await world.until("gone", lambda: sorted(world.pods()) == ["orders-0", "orders-1"])
        await world.until("written down", lambda: world.group["instances"] == "0,1")


@virtual_time
async def test_a_fenced_instance_serves_nobody_and_comes_back() -> None:
    world = GroupWorld()
    async with world.operator():
        await world.create()
        await world.ready(3)
        await world.annotate(fenced="orders-0")
        await world.until("fenced", lambda: world.condition("Ready") == "False/Fenced")
        assert world.status.primary in ("orders-1", "orders-2")
        await world.annotate(fenced=None)
        await world.ready(3)
        assert len(world.farm.founded) == 1


@virtual_time
async def test_hibernates_and_wakes_with_the_same_data() -> None:
    world = GroupWorld()
    async with world.operator():
        await world.create()
        await world.ready(3)
        await world.change(hibernated=True)
        await world.until("asleep", lambda: world.status.phase == "Hibernated")
        assert not world.pods()
        await world.change(hibernated=False)
        await world.ready(3)
        assert world.farm.initialised == 1 and len(world.farm.founded) == 2


@virtual_time
async def test_what_is_retained_is_adopted() -> None:
    world = GroupWorld()
    async with world.operator():
        await world.create(instances=2)
        await world.ready(2)
        await world.client.delete(MySQLCluster, KEY)
        await world.until("gone", lambda: world.cluster is None and not world.pods())
        assert world.claims() == ["data-orders-0", "data-orders-1"]
        await world.create(instances=2)
        await world.ready(2)
        assert world.farm.initialised == 1


@virtual_time
async def test_what_is_deleted_is_gone() -> None:
    world = GroupWorld()
    async with world.operator():
        await world.create(instances=2, deletion_policy="Delete")
        await world.ready(2)
        await world.client.delete(MySQLCluster, KEY)
        await world.until("gone", lambda: world.cluster is None and not world.claims())
        assert not world.group and not world.secret("orders-ca")


@virtual_time
async def test_a_new_pod_where_another_is_declared() -> None:
    world = GroupWorld()
    async with world.operator():
        await world.create()
        await world.ready(3)
        before = world.uids()
        await world.annotate(restart="now")
        await world.until("renewed", lambda: not set(before.values()) & set(world.uids().values()))
        await world.ready(3)
        assert len(world.farm.founded) == 1 and len(world.farm.asked) == 1


@virtual_time
@pytest.mark.parametrize(("former", "wanted", "asked"), [("9.7.4", "9.7.10", 0), ("9.7.10", "9.7.4", 1)])
async def test_another_patch_version_reaches_the_primary_too(former: str, wanted: str, asked: int) -> None:
    """A group makes nobody primary who is newer than another: then the old primary leaves, and is not asked."""
    world = GroupWorld()
    async with world.operator():
        await world.create(image=f"example.org/mysql:{former}")
        await world.ready(3)
        before, renewed = world.uids(), list[str]()
        await world.change(image=f"example.org/mysql:{wanted}")

        def all_are_new() -> bool:
            renewed.extend(n for n, uid in world.uids().items() if uid != before[n] and n not in renewed)
            return len(renewed) == 3

        await world.until("all are new", all_are_new)
        await world.ready(3)
        assert renewed[-1] == "orders-0", "the former primary is the last"
        assert (world.status.primary, world.status.version) == ("orders-1", wanted)
        assert len(world.farm.asked) == asked and len(world.farm.founded) == 1
        assert world.condition("Ready") == "True/ClusterReady" and "SwitchoverRefused" not in world.events()


@virtual_time
async def test_a_lost_volume_is_replaced_by_a_copy() -> None:
    world = GroupWorld()
    async with world.operator():
        await world.create()
        await world.ready(3)
        await world.client.delete(PersistentVolumeClaim, NAMES.data_claim(2))
        await world.until("replaced", lambda: "orders-3" in world.pods())
        await world.ready(3)
        assert world.group["instances"] == "0,1,3"


@virtual_time
async def test_a_primary_whose_volume_is_lost_hands_over_and_is_replaced() -> None:
    world = GroupWorld()
    async with world.operator():
        await world.create()
        await world.ready(3)
        await world.client.delete(PersistentVolumeClaim, NAMES.data_claim(0))
        await world.until("handed over", lambda: world.status.primary != "orders-0")
        await world.until("replaced", lambda: "orders-3" in world.pods() and "orders-0" not in world.pods())
        await world.ready(3)
        assert "Failover" not in world.events()


@virtual_time
async def test_a_replica_whose_data_are_not_the_groups_is_replaced_by_a_copy() -> None:
    world = GroupWorld()
    async with world.operator():
        await world.create()
        await world.ready(3)
        world.data("orders-2").diverged = True
        await world.kill("orders-2")
        await world.rest(240)
        assert "orders-2" in world.pods(), "it may come to itself"
        await world.until("made anew", lambda: "orders-3" in world.pods() and "orders-2" not in world.pods())
        await world.ready(3)
        assert "InstanceReplaced" in world.events()


@virtual_time
async def test_what_strayed_is_not_replaced_for_being_different_too() -> None:
    world = GroupWorld()
    async with world.operator():
        await world.create()
        await world.ready(3)
        world.data("orders-2").diverged = True
        world.data("orders-2").gtids = GtidSet.parse(ERRANT)
        await world.kill("orders-2")
        await world.until("told", lambda: world.condition("HistoryShared") == "False/ErrantTransactions")
        await world.rest(1200)
        assert "orders-2" in world.pods()


@virtual_time
async def test_what_an_agent_has_taken_back_is_told_once() -> None:
    world = GroupWorld()
    async with world.operator():
        await world.create()
        await world.ready(3)
        for minute, names in ((1, ["max_connections", "sql_mode"]), (2, ["sql_mode"])):
            at = f"2026-11-27T07:{minute:02}:00+00:00"
            world.farm.restored["orders-1-0"] = {"time": at, "parameters": names}
            # It says something when something happens to it.
            await world.kill("orders-1")
            await world.ready(3)
            await world.rest(600)
            [member] = [m for m in world.status.members if m.restored is not None]
            assert (member.name, member.restored.time.minute) == ("orders-1", minute)
            words = f"took back what SET GLOBAL had set: {', '.join(names)} at orders-1"
            [told] = [e for e in world.server.read_all(Event) if e.note == words]
            assert told.reason == "DriftRepaired" and told.series is None, "it is told once"


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
async def test_what_a_pod_says_of_what_was_taken_back_is_anybodys_to_write(
    said: dict[str, Any], shown: int | None
) -> None:
    world = GroupWorld()
    world.farm.restored["orders-1-0"] = said
    async with world.operator():
        await world.create()
        await world.ready(3)
        [member] = [m for m in world.status.members if m.name == "orders-1"]
        assert (None if member.restored is None else len(member.restored.parameters)) == shown


@virtual_time
async def test_errant_transactions_are_told_and_the_instance_made_anew_where_somebody_says_so() -> None:
    world = GroupWorld()
    async with world.operator():
        await world.create()
        await world.ready(3)
        world.data("orders-2").gtids = GtidSet.parse(ERRANT)
        await world.kill("orders-2")
        await world.until("told", lambda: world.condition("HistoryShared") == "False/ErrantTransactions")
        assert f"orders-2 has {ERRANT}" in world.message("HistoryShared")
        await world.rest(1200)
        assert "orders-2" in world.pods(), "nothing is thrown away unasked"
        [member] = [m for m in world.status.members if m.name == "orders-2"]
        assert (member.errant, member.ready) == (ERRANT, False)
        await world.annotate(replace="orders-2")
        await world.until("made anew", lambda: "orders-3" in world.pods() and "orders-2" not in world.pods())
        await world.ready(3)
        assert world.condition("HistoryShared") == "True/Shared"
        assert "databases.steersman.dev/replace" not in world.cluster.metadata.annotations


@virtual_time
async def test_the_primary_is_not_made_anew() -> None:
    world = GroupWorld()
    async with world.operator():
        await world.create()
        await world.ready(3)
        await world.annotate(replace="orders-0")
        await world.until("refused", lambda: "ReplacementRefused" in world.events())
        await world.ready(3)
        assert "orders-0" in world.pods()


@virtual_time
async def test_two_kinds_under_one_name_do_not_fight() -> None:
    world = GroupWorld()
    async with world.operator():
        await world.create(instances=1)
        await world.ready(1)
        metadata = ObjectMeta(name=KEY.name, namespace=KEY.namespace)
        await world.client.create(PostgreSQLCluster(metadata=metadata, spec=PostgreSQLClusterSpec(instances=1)))
        other = ClusterWorld.__new__(ClusterWorld)
        other.__dict__.update(world.__dict__)
        await world.until("told", lambda: other.condition("Ready") == "False/NameTaken")
        assert "MySQLCluster orders is older" in other.message("Ready")
        await world.rest()
        assert world.status.phase == "Ready" and world.statefulsets() == ["orders-0"]


def test_images_of_mariadb_are_refused() -> None:
    metadata = ObjectMeta(name=KEY.name, namespace=KEY.namespace)
    cluster = MySQLCluster(metadata=metadata, spec=MySQLClusterSpec(image="docker.io/library/mariadb:11.8"))
    assert OfMySQL().refuses(cluster).startswith("spec.image: clusters need MySQL")
    [words] = violations(cluster)
    assert words.startswith(".spec.image: clusters need MySQL")
