"""A replica with broken data is rebuilt, an image with another tag rolled out, and data outlive their object."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from database_support.e2e.cluster import ClusterUnderTest, writing
from devcluster.images import POSTGRESQL, tag

pytestmark = [pytest.mark.xdist_group("cluster-repair"), pytest.mark.timeout(1200)]

Record = Callable[[str, object], None]
NEXT = "steersman.dev/postgresql:17-next"
DATA = "/var/lib/steersman/data/pgdata"
OUT_OF_READS = 90.0


@pytest.fixture(autouse=True)
def well(three: ClusterUnderTest) -> None:
    three.wait_ready(seconds=400)


def test_image_change_rolls_out_with_one_switchover(three: ClusterUnderTest, record_property: Record) -> None:
    """As with a minor upgrade: replicas first, then the primary hands over.

    The other image is the same server by another name; test_minor_upgrade.py has two of different minors.
    """
    tag(POSTGRESQL.reference, NEXT)
    former, timeline = three.primary, three.status["timeline"]
    with writing(three, "shop-app") as seen:
        three.apply(image=NEXT)
        three.until("it is looked at", lambda: not three.ready(3), 30)
        three.wait_ready(seconds=400)
        seen.wait_for_writes(time.time())
        record_property("rolling update: longest gap in writes, in seconds", round(seen.longest_gap, 1))
        assert seen.lost_rows() == 0
    assert three.status["image"] == NEXT
    pods = [three.pod(member["name"]) for member in three.status["members"]]
    assert {pod["spec"]["containers"][0]["image"] for pod in pods} == {NEXT}
    assert three.primary != former and three.status["timeline"] == timeline + 1, "one switchover"
    assert three.status["lastSwitchover"]["outcome"] == "Succeeded"
    assert not three.namespace_client.events("orders", "Failover")


@pytest.mark.parametrize("damage", ["control file", "tables", "tables of a server that runs on"])
def test_replica_with_corrupt_data_is_rebuilt(three: ClusterUnderTest, record_property: Record, damage: str) -> None:
    broken, primary = three.replicas[0], three.primary
    # The server that is robbed makes files meanwhile.
    rob = "rm -rf base global/[0-9]* pg_xact"
    what = three.engine.corrupt if damage == "control file" else f"{rob} || {rob}"
    began = time.time()
    told = ("InstanceReplaced", f"replacing instance {broken}: ")
    with writing(three, "shop-app") as seen, three.namespace_client.expecting_events(three.name, told):
        three.execute(broken, "sh", "-c", f"cd {DATA} && {what}")
        if not damage.endswith("runs on"):
            # What it holds in memory hides the damage until then.
            three.namespace_client.kubectl(
                "delete", "pod", f"{broken}-0", "--force", "--grace-period=0", "--wait=false"
            )
        three.until("nobody reads from it", lambda: f"{broken}-0" not in three.endpoints("ro"), 120)
        record_property(f"{damage}: seconds until nobody reads from it", round(time.time() - began))
        three.until("another takes its place", lambda: broken not in three.nodes(), 600)
        record_property(f"{damage}: seconds until it is given up", round(time.time() - began))
        three.wait_ready(seconds=300)
        record_property(f"{damage}: seconds until all are ready", round(time.time() - began))
        assert seen.errors == [] and seen.lost_rows() == 0
    assert three.primary == primary


def test_replica_not_following_leaves_ro_and_is_kept(three: ClusterUnderTest, record_property: Record) -> None:
    """Its data are as good as they were: somebody else holds its slot."""
    stray, primary, pods = three.replicas[0], three.primary, three.pods()
    slot = f"{stray}-0".replace("-", "_")
    hold = f"pg_receivewal --no-loop --username=steersman_replication --slot={slot} --directory=/tmp/held"
    loop = f"mkdir /tmp/held; (until [ -e /tmp/end ]; do {hold}; sleep 0.1; done) >/tmp/held.log 2>&1 &"
    ended = "SELECT pg_terminate_backend(pid) FROM pg_stat_replication WHERE application_name = "
    three.execute(primary, "sh", "-c", loop)
    began = time.time()

    def held() -> bool:
        # It may be back before the other: one that has just begun waits for some seconds.
        three.sql(f"{ended}'{stray}-0'")
        return "pg_receivewal" in three.sql("SELECT application_name FROM pg_stat_replication")

    three.until("somebody else holds its slot", held, 60)
    strays = time.time()
    three.until("nobody reads from it", lambda: f"{stray}-0" not in three.endpoints("ro"), 180)
    out = time.time()
    record_property("it does not follow: seconds until nobody reads from it", round(out - began))
    assert out - began > 50, "a restart or a new primary takes nobody out"
    assert out - strays < OUT_OF_READS, "a minute, and what a look and the probe take"
    assert "PostgreSQL" in three.sql("SELECT version()", instance=stray), "it runs on"
    three.execute(primary, "touch", "/tmp/end")
    three.sql(f"{ended}'pg_receivewal'")
    three.wait_ready()
    assert f"{stray}-0" in three.endpoints("ro") and three.pods() == pods


def test_retained_data_is_adopted_by_same_name(three: ClusterUnderTest) -> None:
    """It is the last: the cluster is another one afterwards."""
    three.apply(deletionPolicy="Retain")
    three.sql("CREATE TABLE kept AS SELECT generate_series(1, 1000) AS n", "shop")
    three.until(
        "it is everywhere",
        lambda: {three.sql("SELECT count(*) FROM kept", "shop", n) for n in three.nodes()} == {"1000"},
        30,
    )
    primary, secret = three.primary, three.namespace_client.secret("orders-admin")
    system = three.sql("SELECT system_identifier FROM pg_control_system()")
    claims = {c["metadata"]["name"]: c["metadata"]["uid"] for c in three.namespace_client.all("pvc")}
    three.delete()
    three.until("the pods are gone", lambda: not three.nodes(), 60)
    assert {c["metadata"]["name"]: c["metadata"]["uid"] for c in three.namespace_client.all("pvc")} == claims

    three.apply(deletionPolicy="Delete")
    three.wait_ready()
    assert {c["metadata"]["name"]: c["metadata"]["uid"] for c in three.namespace_client.all("pvc")} == claims
    assert three.primary == primary, "who led last leads again"
    assert three.namespace_client.secret("orders-admin") == secret
    assert three.sql("SELECT system_identifier FROM pg_control_system()") == system
    assert three.sql("SELECT count(*) FROM kept", "shop") == "1000"
    three.namespace_client.wait_reason("database", "shop", "DatabaseReady")
    with writing(three, "shop-app") as seen:
        seen.wait_for_writes(time.time())
