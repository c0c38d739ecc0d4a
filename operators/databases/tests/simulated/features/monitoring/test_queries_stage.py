"""User queries of a cluster: the file of the exporter, and the condition."""

from __future__ import annotations

import json

from database_support.unit.cluster_harness import KEY, NAMES, ClusterHarness
from steersman.api.core_v1 import ConfigMap
from steersman.client import MergePatch
from steersman.meta import FrozenDict, ObjectKey, ObjectMeta
from steersman_databases.api.cluster_common import MonitoringSettings
from steersman_databases.api.references import KeySelector
from steersman_testing import virtual_time

SOURCE = ObjectKey(KEY.namespace, "queries")
ORDERS = "orders: {query: SELECT 1 AS n, metrics: [{n: {usage: GAUGE}}]}\n"
DECLARED = MonitoringSettings(queries=(KeySelector(name=SOURCE.name, key="shop"),))


async def write(world: ClusterHarness, text: str) -> None:
    if world.server.read(ConfigMap, SOURCE) is None:
        metadata = ObjectMeta(name=SOURCE.name, namespace=SOURCE.namespace)
        await world.client.create(ConfigMap(metadata=metadata, data=FrozenDict({"shop": text})))
    else:
        await world.client.patch(ConfigMap, SOURCE, MergePatch({"data": {"shop": text}}))


def names(world: ClusterHarness) -> list[str] | None:
    found = world.server.read(ConfigMap, NAMES.queries)
    return None if found is None else [one["name"] for one in json.loads(found.data["queries.json"])["queries"]]


@virtual_time
async def test_queries_follow_config_map_and_declaration() -> None:
    world = ClusterHarness()
    async with world.operator():
        await world.create(instances=1, monitoring=DECLARED)
        await world.until("reported", lambda: world.condition("QueriesValid") == "False/ConfigMapNotFound")
        await world.ready(1)
        [pod] = world.pods().values()
        assert "missing: ConfigMap queries" in world.message("QueriesValid")
        await write(world, ORDERS)
        await world.until("valid", lambda: world.condition("QueriesValid") == "True/Valid", 20)
        assert names(world) == ["orders"]
        await write(world, ORDERS + ORDERS.replace("orders", "bad").replace("GAUGE", "RATE"))
        await world.until("reported", lambda: world.condition("QueriesValid") == "False/QueryInvalid", 20)
        assert "queries/shop: query bad: Invalid enum value 'RATE'" in world.message("QueriesValid")
        assert names(world) == ["orders"]
        await world.change(monitoring={"queries": []})
        await world.until("removed", lambda: names(world) is None)
        assert world.condition("QueriesValid") == ""
        assert [one.metadata.uid for one in world.pods().values()] == [pod.metadata.uid], "nothing restarts"
        await world.ready(1)


@virtual_time
async def test_config_map_of_others_is_left_alone() -> None:
    world = ClusterHarness()
    foreign = ConfigMap(
        metadata=ObjectMeta(name=NAMES.queries.name, namespace=KEY.namespace), data=FrozenDict({"a": "b"})
    )
    await world.client.create(foreign)
    async with world.operator():
        await write(world, ORDERS)
        await world.create(instances=1, monitoring=DECLARED)
        await world.until("reported", lambda: "ConfigMap orders-queries exists" in world.message("Ready"))
        found = world.server.read(ConfigMap, NAMES.queries)
        assert found is not None and dict(found.data) == {"a": "b"}
