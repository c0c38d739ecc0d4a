"""Volumes grow while they fill up, before a write is refused, and nothing is restarted."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from database_support.e2e.cluster import ClusterUnderTest, NamespaceClient, writing
from database_support.e2e.engines import EACH_ENGINE, EngineCommands

pytestmark = [pytest.mark.xdist_group("autogrow"), pytest.mark.timeout(900)]

Record = Callable[[str, object], None]
FILL = (
    'set -e; for n in $(seq "$2"); do dd if=/dev/zero of="$0/filler-$n" bs=1M count="$1" status=none; sleep 1; done'
)
"""Shell script that writes files of MiB, one a second: directory, MiB, number. It fails if a write is refused."""
DATA, WAL = "/var/lib/steersman/data", "/var/lib/steersman/wal"


def growing(size: str, **more: Any) -> dict[str, Any]:
    """Volumes of limited size that grow by themselves."""
    autogrow = {"maxSize": "4Gi", "minStep": "200Mi", "cooldown": "1h", **more}
    return {"size": size, "storageClass": "limited", "autogrow": autogrow}


def sizes(place: NamespaceClient, volume: str = "data") -> set[tuple[str, str]]:
    """Requested size and capacity of the volumes of this name."""
    return {
        (pvc["spec"]["resources"]["requests"]["storage"], pvc["status"].get("capacity", {}).get("storage", ""))
        for pvc in place.all("pvc")
        if pvc["metadata"]["name"].startswith(f"{volume}-")
    }


@EACH_ENGINE
def test_volumes_grow_before_they_are_full(
    place: NamespaceClient, of: EngineCommands, record_property: Record
) -> None:
    size = of.small["storage"]["size"]
    orders = ClusterUnderTest(place, spec={**of.small, "instances": 2, "storage": growing(size)}, engine=of)
    orders.apply()
    place.apply("Database", "shop", orders.reference(deletionPolicy="Delete"))
    orders.wait_ready()
    place.wait_reason("database", "shop", "DatabaseReady")
    orders.wait_reason("Idle", "AutogrowReady")
    pods, primary = orders.pods(), orders.primary
    with writing(orders, "shop-app") as seen:
        # 1 % of the volume a second, and more than the volume has.
        mebibytes = 5 if size == "512Mi" else 10
        orders.execute(primary, "sh", "-c", FILL, DATA, str(mebibytes), "110", seconds=300)
        seen.wait_for_writes(0)
        assert seen.lost_rows() == 0
    assert place.events("orders", "VolumeGrown")
    record_property("growths", place.events("orders", "VolumeGrown"))
    orders.until("all have grown alike", lambda: len(sizes(place)) == 1 and (size, size) not in sizes(place), 120)
    orders.wait_reason("Idle", "AutogrowReady")
    orders.wait_ready(2)
    assert orders.pods() == pods, "nothing was restarted"
    assert orders.found["spec"]["storage"]["size"] == size
    (shown,) = orders.status["automation"]
    assert shown["name"] == "Storage" and " % used" in shown["lastAction"]
    assert not place.events("orders", "DiskFull")


def test_full_volume_of_stopped_server_grows(place: NamespaceClient, of: EngineCommands) -> None:
    """WAL finds no room on any instance, and no instance accepts writes."""
    orders = ClusterUnderTest(
        place, spec={**of.small, "instances": 1, "storage": growing("400Mi", mode="Disabled")}, engine=of
    )
    orders.apply()
    orders.wait_ready()
    script = f"dd if=/dev/zero of={DATA}/filler bs=1M 2>&1 || true"
    orders.execute("orders-0", "sh", "-c", script, seconds=120)
    orders.wait_reason("DiskFull")
    orders.apply(storage=growing("400Mi"))
    orders.until("grown", lambda: sizes(place) != {("400Mi", "400Mi")}, 60)
    orders.wait_reason("Sufficient", "StorageSufficient", 120)
    orders.wait_ready(1)


def test_wal_volume_names_replication_slot_before_it_grows(place: NamespaceClient, of: EngineCommands) -> None:
    spec = {**of.small, "instances": 2, "storage": {"size": "512Mi", "storageClass": "limited"}}
    orders = ClusterUnderTest(
        place, spec={**spec, "walStorage": growing("300Mi", atPercent=50, mode="Recommend")}, engine=of
    )
    orders.apply()
    orders.wait_ready()
    primary, away = orders.primary, orders.replicas[0]
    slot = f"replication slot {away.replace('-', '_')}_0"
    orders.annotate("fenced-instances", away)
    orders.until("no replica streams", lambda: orders.sql(orders.engine.is_following, instance=primary) == "0", 90)
    for _ in range(4):
        orders.sql("SELECT pg_logical_emit_message(false, 'e2e', 'x'); SELECT pg_switch_wal()", instance=primary)

    def reported() -> dict[str, Any]:
        return place.condition(orders.kind, "orders", "AutogrowReady")

    def named() -> bool:
        return f"{slot} retains" in reported().get("message", "")

    # Up to 50 %, in small steps: how much WAL there is depends on the server.
    for number in range(60):
        if reported().get("reason") == "Recommended":
            break
        command = f"dd if=/dev/zero of={WAL}/filler-{number} bs=1M count=4 status=none; sleep 1.5"
        orders.execute(primary, "sh", "-c", command)
    orders.wait_reason("Recommended", "AutogrowReady")
    orders.until("it is named before it grows", named, 60)
    orders.apply(walStorage=growing("300Mi", atPercent=50))
    orders.until("it grows", lambda: sizes(place, "wal") != {("300Mi", "300Mi")}, 60)
    assert place.events("orders", "WALRetained")
    assert any(f"wal-{primary} grew" in message for message in place.events("orders", "VolumeGrown"))
