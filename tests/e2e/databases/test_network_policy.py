"""A cluster lives behind its NetworkPolicy where one is enforced, which lets in nobody else."""

from __future__ import annotations

import pytest

from cluster_engines import MYSQL, POSTGRESQL, Engine
from cluster_under_test import Client, ClusterUnderTest, Place
from devcluster.errors import CommandFailed
from enforced_policies import enforced

# All policies are rules of one chain.
pytestmark = [pytest.mark.addresses, pytest.mark.xdist_group("network-policy")]

REACH = "import socket, sys; socket.create_connection((sys.argv[1], int(sys.argv[2])), timeout=3)"
SILENT, REFUSED = "timed out", "Connection refused"
PATRONI, NOBODY = 8008, 9
OPERATOR = ("app.kubernetes.io/name=steersman-databases", "app.kubernetes.io/component=operator")


def told(client: Client, port: int) -> str:
    """What its pod hears from the primary's at a port; empty with a connection."""
    place, cluster = client.cluster.place, client.cluster
    address = cluster.pod(cluster.primary)["status"]["podIP"]
    try:
        place.kubectl("exec", client.name, "--", "python3", "-c", REACH, address, str(port))
    except CommandFailed as error:
        return next(words for words in (SILENT, REFUSED) if words in str(error))
    return ""


@pytest.mark.parametrize("engine", [POSTGRESQL, MYSQL], ids=["postgresql", "mysql"])
def test_a_cluster_comes_and_changes_behind_its_policy(place: Place, engine: Engine) -> None:
    """Instances copy, follow and agree, the operator asks them, and clients write: nobody else is let in.

    The labels of the operator help nobody in another namespace than its own.
    """
    if not place.target.is_devcluster:
        pytest.skip("the policies of another cluster are its own affair")
    with enforced(place.target, place.namespace):
        cluster = ClusterUnderTest(place, spec={**engine.small, "instances": 2}, engine=engine)
        cluster.apply()
        place.declare("Database", "shop", cluster.reference(deletionPolicy="Delete"))
        cluster.wait_ready()
        place.wait_reason("database", "shop", "DatabaseReady")
        client = Client(cluster, "shop-app")
        client.start()
        client.sql("CREATE TABLE told (number int PRIMARY KEY)")
        cluster.apply(instances=3)
        cluster.wait_ready()
        former = cluster.primary
        cluster.annotate("switchover", "any")
        cluster.until("another leads", lambda: cluster.primary not in ("", former), 60)
        cluster.wait_ready()
        client.sql("INSERT INTO told VALUES (1)")
        assert cluster.sql(engine.following) == "2"
        assert (told(client, PATRONI), told(client, NOBODY)) == (SILENT, SILENT)
    let_in = "" if engine is POSTGRESQL else REFUSED
    assert (told(client, PATRONI), told(client, NOBODY)) == (let_in, REFUSED)
    place.kubectl("label", "pod", client.name, *OPERATOR)
    with enforced(place.target, place.namespace):
        assert told(client, PATRONI) == SILENT
    client.stop()
