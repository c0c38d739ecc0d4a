"""More instances, and fewer: what is new has all data, and nothing is left of what is gone."""

from __future__ import annotations

import time

import pytest

from database_support.e2e.cluster import ClusterUnderTest, writing

pytestmark = [pytest.mark.xdist_group("cluster-scale"), pytest.mark.timeout(1200)]


def members(cluster: ClusterUnderTest) -> set[str]:
    return {member["name"] for member in cluster.status["members"]}


def slots(cluster: ClusterUnderTest) -> set[str]:
    """The replication slots of the primary, as names of instances."""
    told = cluster.sql("SELECT slot_name FROM pg_replication_slots").split()
    return {name.removesuffix("_0").replace("_", "-") for name in told}


def settles(cluster: ClusterUnderTest, instances: int) -> None:
    """All is as declared, and everybody knows of those who are there, and of nobody else."""
    cluster.wait_ready(instances)
    there = members(cluster)
    assert len(there) == instances
    cluster.until("slots are theirs", lambda: slots(cluster) == there - {cluster.primary}, 90)
    assert set(cluster.nodes()) == there
    assert cluster.endpoints("rw") == [f"{cluster.primary}-0"]
    cluster.until(
        "replicas are those", lambda: set(cluster.endpoints("ro")) == {f"{n}-0" for n in cluster.replicas}, 30
    )
    names = {f"orders-{number}" for number in range(9)}
    rules = cluster.namespace_client.get("role", cluster.name)["rules"]
    writable = {
        name.removesuffix("-0")
        for rule in rules
        if rule["resources"] == ["pods"]
        for name in rule.get("resourceNames", ())
    }
    assert writable & names == there | {max(writable)}, (
        "the pods' rights are about those that are there, and the next"
    )


def test_scale_by_spec_and_by_kubectl_scale(three: ClusterUnderTest) -> None:
    with writing(three, "shop-app") as seen:
        three.apply(instances=4)
        settles(three, 4)
        assert "orders-3" in members(three)
        assert int(three.sql("SELECT count(*) FROM written", "shop", "orders-3")) > 0, "it has what was written"

        three.namespace_client.kubectl("scale", "pg", three.name, "--replicas=2")
        settles(three, 2)
        assert three.namespace_client.get("pg", three.name)["spec"]["instances"] == 2
        three.until(
            "claims go",
            lambda: (
                three.namespace_client.names("pvc") == {f"persistentvolumeclaim/data-{n}" for n in members(three)}
            ),
            60,
        )

        three.namespace_client.kubectl("scale", "pg", three.name, "--replicas=1")
        settles(three, 1)
        primary = three.primary

        three.spec["instances"] = 1
        three.namespace_client.kubectl("scale", "pg", three.name, "--replicas=3")
        settles(three, 3)
        assert three.primary == primary
        seen.wait_for_writes(time.time())
        assert seen.errors == [], "nobody who writes noticed"
        assert seen.lost_rows() == 0
    rows = three.sql("SELECT count(*) FROM written", "shop")
    for replica in three.replicas:
        three.until(
            f"{replica} has all", lambda on=replica: three.sql("SELECT count(*) FROM written", "shop", on) == rows, 30
        )
