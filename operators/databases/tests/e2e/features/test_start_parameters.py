"""Parameters with which a server does not start or is never promoted: refused, reverted, or without effect."""

from __future__ import annotations

import pytest

from database_support.e2e.cluster import SMALL_SPEC, ClusterUnderTest, NamespaceClient
from devcluster.errors import CommandFailed

pytestmark = [pytest.mark.xdist_group("cluster-start-parameters"), pytest.mark.timeout(1200)]
PARAMETERS: dict[str, str] = SMALL_SPEC["postgresql"]["parameters"]
ISOLATION = "default_transaction_isolation"


def condition(cluster: ClusterUnderTest) -> tuple[str, str]:
    found = cluster.namespace_client.condition("postgresqlcluster", cluster.name, "ParametersApplied")
    current = found.get("observedGeneration") == cluster.found["metadata"]["generation"]
    return (found.get("reason", ""), found.get("message", "")) if current else ("", "")


def test_two_mistakes_at_once_are_taken_back(place: NamespaceClient) -> None:
    """The only server does not start with one, and would not with the other, which it refused before."""
    cluster = ClusterUnderTest(place)
    cluster.apply(instances=1, postgresql={"parameters": PARAMETERS})
    cluster.wait_ready(1)
    first = cluster.pods()["orders-0-0"][0]
    cluster.apply(
        instances=1,
        postgresql={
            "parameters": {**PARAMETERS, "timezone": "Europe/Berln", "huge_pages": "on"},
            "sharedPreloadLibraries": ["nope"],
        },
    )
    words = ("Europe/Berln", "huge_pages", "the image does not contain the library nope")
    cluster.until("all are named", lambda: all(word in condition(cluster)[1] for word in words), 240)
    cluster.until(
        "it serves", lambda: cluster.sql("SHOW huge_pages") != "on" and cluster.sql("SHOW timezone") != "", 240
    )
    cluster.apply(instances=1, postgresql={"parameters": PARAMETERS, "sharedPreloadLibraries": []})
    cluster.until("applied", lambda: condition(cluster)[0] == "Applied", 240)
    cluster.wait_ready(1)
    assert cluster.pods()["orders-0-0"][0] == first, "no pod was recreated"

    with pytest.raises(CommandFailed, match="ALTER ROLE"):
        cluster.apply(instances=1, postgresql={"parameters": {**PARAMETERS, ISOLATION: "serializable"}})
    # A default that nobody declared: a standby refuses each transaction of this level, and each server starts as one.
    for where in ("DATABASE postgres", "ROLE postgres"):
        cluster.sql(f"ALTER {where} SET {ISOLATION} = 'serializable'")
    place.kubectl("delete", "pod", "orders-0-0", "--grace-period=0", "--force")
    cluster.until("another pod", lambda: cluster.pods().get("orders-0-0", (first,))[0] != first, 120)
    cluster.wait_ready(1)
    cluster.sql(f"ALTER ROLE postgres SET {ISOLATION} = 'read committed'")
