"""PgBouncer in pods of its own, as its clients see it."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator

import pytest

from cluster_under_test import Client, ClusterUnderTest, writing
from devcluster.errors import CommandFailed

pytestmark = pytest.mark.xdist_group("pooler")


@pytest.fixture(scope="module")
def pooled(three: ClusterUnderTest) -> ClusterUnderTest:
    """The shared cluster, with poolers that serve."""
    three.apply(pooler={})
    three.wait_ready()
    for role in ("rw", "ro"):
        rollout = ("rollout", "status", f"deployment/{three.name}-pooler-{role}", "--timeout=120s")
        three.place.kubectl(*rollout, seconds=130)
    return three


@pytest.fixture(scope="module")
def client(pooled: ClusterUnderTest) -> Generator[Client]:
    """Somebody who logs in as the owner of the database, through the pooler of the primary."""
    made = Client(pooled, "shop-app", host(pooled, "rw"))
    made.start()
    yield made
    made.stop()


def host(cluster: ClusterUnderTest, role: str) -> str:
    return f"{cluster.name}-pooler-{role}.{cluster.place.namespace}.svc"


def through(client: Client, role: str, **changed: str) -> str:
    """The client's way through another pooler, or as somebody else."""
    words = dict(word.split("=", 1) for word in client.login.split())
    words |= {"host": host(client.cluster, role), **changed}
    return " ".join(f"{key}={value}" for key, value in words.items())


def test_rw_writes_and_ro_reads_what_was_written(client: Client) -> None:
    client.sql("CREATE TABLE pooled (n int); INSERT INTO pooled VALUES (7)")
    assert client.sql(
        "SELECT pg_is_in_recovery(), current_user, ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()"
    ) == ("f|shop|t")
    reading = through(client, "ro")
    client.cluster.until("a replica has the row", lambda: client.sql("SELECT n FROM pooled", reading) == "7", 30)
    assert client.sql("SELECT pg_is_in_recovery()", reading) == "t"
    with pytest.raises(CommandFailed, match="read-only transaction"):
        client.sql("INSERT INTO pooled VALUES (8)", reading)


@pytest.mark.parametrize("role", ["rw", "ro"])
def test_clear_text_is_refused(client: Client, role: str) -> None:
    with pytest.raises(CommandFailed, match="SSL required"):
        client.sql("SELECT 1", through(client, role, sslmode="disable"))


def test_a_wrong_password_is_refused(client: Client) -> None:
    with pytest.raises(CommandFailed, match="authentication failed"):
        client.sql("SELECT 1", through(client, "rw", password="wrong"))


@pytest.mark.parametrize("user", ["postgres", "steersman_operator", "steersman_pooler", "steersman_superuser"])
def test_nobody_of_importance_comes_through(client: Client, user: str) -> None:
    administrator = client.cluster.place.secret(f"{client.cluster.name}-admin")
    with pytest.raises(CommandFailed, match="FATAL"):
        client.sql("SELECT 1", through(client, "rw", user=user, password=administrator["password"]))
    with pytest.raises(CommandFailed, match="FATAL"):
        client.sql("SHOW POOLS", through(client, "rw", user=user, dbname="pgbouncer", password="guess"))


def test_a_planned_switchover_is_a_pause_and_no_error(
    pooled: ClusterUnderTest, client: Client, record_property: Callable[[str, object], None]
) -> None:
    former = pooled.primary
    with writing(pooled, "shop-app", host(pooled, "rw")) as seen:
        pooled.annotate("switchover", "any")
        pooled.until("another leads", lambda: pooled.primary not in ("", former), 60)
        seen.goes_on(time.time())
        assert seen.errors == []
        assert seen.lost() == 0
        record_property("longest gap in seconds", seen.gap)
        # A pooler that was left waiting is ended by its probe after half a minute: that is not how it went on.
        assert seen.gap < 20
    pooled.wait_ready()


def test_poolers_that_a_quota_refuses_are_told_of_until_it_is_larger(pooled: ClusterUnderTest) -> None:
    place = pooled.place
    place.kubectl("create", "quota", "few", f"--hard=pods={len(place.all('pods'))}")
    pooled.apply(pooler={"replicas": 3, "readOnly": False})
    try:
        condition = pooled.wait_reason("PoolersRefused", "PoolersReady")
        assert f"{pooled.name}-pooler-rw has 2 of 3 poolers ready" in condition["message"]
        assert "exceeded quota: few" in condition["message"]
        pooled.wait_reason("Degraded")
        assert place.condition(pooled.kind, pooled.name, "Available")["reason"] == "PrimaryAccepts"
        assert 0 < len(place.events(pooled.name, "PoolersRefused")) < 3
    finally:
        place.kubectl("delete", "quota", "few")
    pooled.wait_ready()
    pooled.wait_reason("Serving", "PoolersReady")


def test_poolers_go_when_they_are_declared_no_more(pooled: ClusterUnderTest, client: Client) -> None:
    client.stop()
    pooled.apply(pooler={"replicas": 1, "readOnly": False})
    pooled.until(
        "only one is left", lambda: pooled.place.names("deployments") == {f"deployment.apps/{pooled.name}-pooler-rw"}
    )
    pooled.apply(pooler=None)
    kinds, ours = "deployments,services,configmaps", f"{pooled.name}-pooler"
    pooled.until("none is left", lambda: not any(ours in name for name in pooled.place.names(kinds)))
