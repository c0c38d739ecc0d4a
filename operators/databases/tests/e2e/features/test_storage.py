"""Volumes of a cluster: the log has one of its own, and they grow where their class lets them."""

from __future__ import annotations

from typing import Any

import pytest

from database_support.e2e.cluster import SMALL_SPEC, ClusterUnderTest, NamespaceClient
from database_support.e2e.engines import MYSQL

pytestmark = [pytest.mark.xdist_group("cluster-storage"), pytest.mark.timeout(900)]


def claims(place: NamespaceClient) -> dict[str, tuple[str, str]]:
    """What is requested for each claim, and what it has."""
    return {
        claim["metadata"]["name"]: (
            claim["spec"]["resources"]["requests"]["storage"],
            claim["status"].get("capacity", {}).get("storage", ""),
        )
        for claim in place.all("pvc")
    }


def two(place: NamespaceClient, **spec: Any) -> ClusterUnderTest:
    made = ClusterUnderTest(place, spec={**SMALL_SPEC, "instances": 2, **spec})
    made.apply()
    made.wait_ready()
    return made


def test_postgresql_volumes_resize_online(place: NamespaceClient) -> None:
    def sizes(data: str, wal: str) -> dict[str, Any]:
        return {
            "storage": {"size": data, "storageClass": "limited"},
            "walStorage": {"size": wal, "storageClass": "limited"},
        }

    orders = two(place, **sizes("400Mi", "300Mi"))
    for instance in ("orders-0", "orders-1"):
        assert orders.execute(instance, "readlink", "/var/lib/steersman/data/pgdata/pg_wal").strip() == (
            "/var/lib/steersman/wal/pg_wal"
        )
        volumes = orders.execute(
            instance, "stat", "--format=%d", "/var/lib/steersman/data", "/var/lib/steersman/wal/pg_wal"
        )
        assert len(set(volumes.split())) == 2, "two file systems"
    orders.sql("CREATE TABLE kept AS SELECT generate_series(1, 1000) AS n")
    pods = orders.pods()

    orders.apply(**sizes("500Mi", "350Mi"))
    grown = {
        f"{volume}-orders-{n}": (size, size) for volume, size in (("data", "500Mi"), ("wal", "350Mi")) for n in (0, 1)
    }
    orders.until("all have grown", lambda: claims(place) == grown, 120)
    orders.wait_reason("SizeMatches", "VolumesResized")
    orders.wait_ready()
    assert len(place.events("orders", "VolumeResized")) == 4
    assert orders.pods() == pods, "nobody was restarted"
    # A replica that is made now has both, and what was written.
    orders.apply(instances=3)
    orders.wait_ready()
    assert claims(place) == {**grown, "data-orders-2": ("500Mi", "500Mi"), "wal-orders-2": ("350Mi", "350Mi")}
    assert orders.sql("SELECT count(*) FROM kept", instance="orders-2") == "1000"


def test_mysql_volumes_resize_online(place: NamespaceClient) -> None:
    spec = {**MYSQL.small, "instances": 2, "storage": {"size": "1Gi", "storageClass": "limited"}}
    orders = ClusterUnderTest(place, spec=spec, engine=MYSQL)
    orders.apply()
    orders.wait_ready()
    pods = orders.pods()
    orders.apply(storage={"size": "1200Mi", "storageClass": "limited"})
    grown = {f"data-orders-{n}": ("1200Mi", "1200Mi") for n in (0, 1)}
    orders.until("all have grown", lambda: claims(place) == grown, 120)
    orders.wait_reason("SizeMatches", "VolumesResized")
    orders.wait_ready()
    assert len(place.events("orders", "VolumeResized")) == 2
    assert orders.pods() == pods, "nobody was restarted"


def test_non_expandable_class_replaces_instances(place: NamespaceClient) -> None:
    orders = two(place, storage={"size": "512Mi", "storageClass": "standard"})
    orders.sql("CREATE TABLE kept AS SELECT generate_series(1, 1000) AS n")
    before = claims(place)
    orders.apply(storage={"size": "600Mi", "storageClass": "standard"})
    condition = orders.wait_reason("NotExpandable", "VolumesResized")
    assert "PVC data-orders-0 cannot be resized from 512Mi" in condition["message"]
    assert "allowVolumeExpansion" in condition["message"]
    assert place.events("orders", "NotExpandable")
    orders.wait_degraded("cannot be resized from 512Mi")
    assert claims(place) == before, "the cluster goes on with what it has"

    # What the condition says may be done instead.
    for _ in range(2):
        replica, primary = orders.replicas[0], orders.primary
        place.kubectl("delete", "pvc", f"data-{replica}", "--wait=false")
        place.kubectl("delete", "pod", f"{replica}-0", "--wait=false")
        orders.until("another takes its place", lambda gone=replica: gone not in orders.nodes(), 120)
        orders.until("it follows", lambda gone=replica: gone not in orders.replicas and orders.replicas, 300)
        small = claims(place).keys() & {"data-orders-0", "data-orders-1"}
        if small:
            orders.wait_degraded("cannot be resized from 512Mi")
        else:
            orders.wait_ready()
        assert orders.primary == primary
        if small:
            orders.annotate("switchover", "any")
            orders.until("another leads", lambda was=primary: orders.primary != was, 60)
            orders.wait_degraded("cannot be resized from 512Mi")
    orders.wait_reason("SizeMatches", "VolumesResized")
    assert {size for size, _ in claims(place).values()} == {"600Mi"}
    assert orders.sql("SELECT count(*) FROM kept") == "1000"
