"""A cluster lives behind its NetworkPolicy where one is enforced, which lets in nobody else."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import pytest

from database_support.e2e.cluster import ClusterUnderTest, NamespaceClient, SqlClient, writing
from database_support.e2e.engines import MYSQL, POSTGRESQL, EngineCommands
from database_support.nodes.network_policies import enforced_policies
from devcluster.errors import CommandFailed

# All policies are rules of one chain.
pytestmark = [pytest.mark.addresses, pytest.mark.xdist_group("network-policy")]

REACH = "import socket, sys; socket.create_connection((sys.argv[1], int(sys.argv[2])), timeout=3)"
SILENT, REFUSED = "timed out", "Connection refused"
PATRONI, NOBODY, POOLER = 8008, 9, 5432
CLOSED: Mapping[str, Any] = {
    "apiVersion": "networking.k8s.io/v1",
    "kind": "NetworkPolicy",
    "metadata": {"name": "closed"},
    "spec": {"podSelector": {}, "policyTypes": ["Ingress"]},
}
"""Nobody gets to any pod of a namespace, unless another policy lets him."""
OPERATOR = ("app.kubernetes.io/name=steersman-databases", "app.kubernetes.io/component=operator")


def told(client: SqlClient, port: int) -> str:
    """What its pod hears from the primary's at a port; empty with a connection."""
    cluster = client.cluster
    return heard(client, cluster.pod(cluster.primary)["status"]["podIP"], port)


def heard(client: SqlClient, address: str, port: int) -> str:
    """What its pod hears from another one; empty with a connection."""
    try:
        client.cluster.namespace_client.kubectl("exec", client.name, "--", "python3", "-c", REACH, address, str(port))
    except CommandFailed as error:
        return next(words for words in (SILENT, REFUSED) if words in str(error))
    return ""


@pytest.mark.parametrize("engine", [POSTGRESQL, MYSQL], ids=["postgresql", "mysql"])
def test_cluster_behind_default_deny_policy_works(place: NamespaceClient, engine: EngineCommands) -> None:
    """Instances copy, follow and agree, the operator asks them, and clients write: nobody else is let in.

    The labels of the operator help nobody in another namespace than its own.
    """
    if not place.target.is_devcluster:
        pytest.skip("the policies of another cluster are its own affair")
    with enforced_policies(place.target, place.namespace):
        cluster = ClusterUnderTest(place, spec={**engine.small, "instances": 2}, engine=engine)
        cluster.apply()
        place.apply("Database", "shop", cluster.reference(deletionPolicy="Delete"))
        cluster.wait_ready()
        place.wait_reason("database", "shop", "DatabaseReady")
        client = SqlClient(cluster, "shop-app")
        client.start()
        client.sql("CREATE TABLE told (number int PRIMARY KEY)")
        cluster.apply(instances=3)
        cluster.wait_ready()
        former = cluster.primary
        cluster.annotate("switchover", "any")
        cluster.until("another leads", lambda: cluster.primary not in ("", former), 60)
        cluster.wait_ready()
        client.sql("INSERT INTO told VALUES (1)")
        assert cluster.sql(engine.is_following) == "2"
        assert (told(client, PATRONI), told(client, NOBODY)) == (SILENT, SILENT)
    let_in = "" if engine is POSTGRESQL else REFUSED
    assert (told(client, PATRONI), told(client, NOBODY)) == (let_in, REFUSED)
    place.kubectl("label", "pod", client.name, *OPERATOR)
    with enforced_policies(place.target, place.namespace):
        assert told(client, PATRONI) == SILENT
    client.stop()


def pooler(cluster: ClusterUnderTest, role: str) -> str:
    """The address of the one pod that leads to servers of a role."""
    labels = f"app.kubernetes.io/name=pgbouncer,databases.steersman.dev/pooler={role}"
    (pod,) = cluster.namespace_client.all("pods", f"--selector={labels}")
    return pod["status"]["podIP"]


def test_pooler_in_isolated_namespace_is_reachable(place: NamespaceClient) -> None:
    """Without a policy of the operator's nobody does."""
    if not place.target.is_devcluster:
        pytest.skip("the policies of another cluster are its own affair")
    place.create(CLOSED)
    with enforced_policies(place.target, place.namespace):
        cluster = ClusterUnderTest(place, spec={**POSTGRESQL.small, "pooler": {"replicas": 1}})
        cluster.apply()
        place.apply("Database", "shop", cluster.reference(deletionPolicy="Delete"))
        cluster.wait_ready()
        place.wait_reason("database", "shop", "DatabaseReady")
        rw, ro = (f"{cluster.name}-pooler-{role}.{place.namespace}.svc" for role in ("rw", "ro"))
        client, reading = SqlClient(cluster, "shop-app", rw), SqlClient(cluster, "shop-app", ro)
        client.start()
        assert client.sql("SELECT pg_is_in_recovery()") == "f"
        assert client.sql("SELECT pg_is_in_recovery()", reading.login) == "t"
        assert [heard(client, pooler(cluster, role), NOBODY) for role in ("rw", "ro")] == [SILENT, SILENT]
        with writing(cluster, "shop-app", rw) as seen:
            former = cluster.primary
            cluster.annotate("switchover", "any")
            cluster.until("another leads", lambda: cluster.primary not in ("", former), 60)
            cluster.wait_ready()
            seen.wait_for_writes(time.time())
            assert seen.errors == [], "the operator did not get to the console, by which clients wait"
        cluster.apply(networkPolicy="None")
        for role in ("rw", "ro"):
            address = pooler(cluster, role)
            cluster.until("it is shut", lambda to=address: heard(client, to, POOLER) == SILENT, 60)
        cluster.apply(networkPolicy="Managed")
        cluster.wait_ready()
        assert client.sql("SELECT pg_is_in_recovery()") == "f"
    client.stop()
