"""PgBouncer in pods of its own, as its clients see it."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator
from datetime import UTC, datetime

import pytest

from database_support.e2e.cluster import SMALL_SPEC, ClusterUnderTest, SqlClient, WriteLog, writing
from database_support.e2e.pooler_clients import reading
from devcluster.errors import CommandFailed

pytestmark = pytest.mark.xdist_group("pooler")

Change = Callable[[ClusterUnderTest], Callable[[], bool]]
"""Asks for something, and gives what tells that it is done."""
Record = Callable[[str, object], None]
# Measured were 0.9 s, and 1.4 s as the worst of forty, with nothing else on the machine. A pooler that waits for its
# probe, or for a switchover that it did not see end, takes longer.
PAUSE = 3.0
# Who writes without a pooler waits for less if he can. A machine with other things to do keeps even him from writing,
# for 20 s now and then, and whoever is behind a pooler as well.
DIRECTLY = 1.0
# Poolers connect anew as soon as another leads, and once more when all nodes have led to it for 10 s: then they are
# looked at again within as long.
LETS_GO = 30.0
HEALED_WITHIN = 30.0


@pytest.fixture(scope="module")
def pooled(three: ClusterUnderTest) -> ClusterUnderTest:
    """The shared cluster, with poolers that serve."""
    three.apply(pooler={})
    roll_out(three)
    return three


def roll_out(cluster: ClusterUnderTest) -> None:
    """Waits until the poolers are those that are declared."""
    cluster.wait_ready()
    for role in ("rw", "ro"):
        rollout = ("rollout", "status", f"deployment/{cluster.name}-pooler-{role}", "--timeout=120s")
        cluster.namespace_client.kubectl(*rollout, seconds=130)


@pytest.fixture(scope="module")
def client(pooled: ClusterUnderTest) -> Generator[SqlClient]:
    """Somebody who logs in as the owner of the database, through the pooler of the primary."""
    made = SqlClient(pooled, "shop-app", host(pooled, "rw"))
    made.start()
    yield made
    made.stop()


def host(cluster: ClusterUnderTest, role: str) -> str:
    return f"{cluster.name}-pooler-{role}.{cluster.namespace_client.namespace}.svc"


def through(client: SqlClient, role: str, **changed: str) -> str:
    """The client's way through another pooler, or as somebody else."""
    words = dict(word.split("=", 1) for word in client.login.split())
    words |= {"host": host(client.cluster, role), **changed}
    return " ".join(f"{key}={value}" for key, value in words.items())


def pause(seen: WriteLog, direct: WriteLog) -> float:
    """The longest gap of who writes through a pooler, less what the machine took from who has none."""
    return seen.longest_gap - max(0.0, direct.longest_gap - DIRECTLY)


def test_rw_writes_are_read_from_ro(client: SqlClient) -> None:
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
def test_clear_text_connection_is_rejected(client: SqlClient, role: str) -> None:
    with pytest.raises(CommandFailed, match="SSL required"):
        client.sql("SELECT 1", through(client, role, sslmode="disable"))


def test_wrong_password_is_rejected(client: SqlClient) -> None:
    with pytest.raises(CommandFailed, match="authentication failed"):
        client.sql("SELECT 1", through(client, "rw", password="wrong"))


@pytest.mark.parametrize("user", ["postgres", "steersman_operator", "steersman_pooler", "steersman_superuser"])
def test_superuser_login_is_rejected(client: SqlClient, user: str) -> None:
    administrator = client.cluster.namespace_client.secret(f"{client.cluster.name}-admin")
    with pytest.raises(CommandFailed, match="FATAL"):
        client.sql("SELECT 1", through(client, "rw", user=user, password=administrator["password"]))
    with pytest.raises(CommandFailed, match="FATAL"):
        client.sql("SHOW POOLS", through(client, "rw", user=user, dbname="pgbouncer", password="guess"))


def test_pooler_service_deleted_is_recreated(client: SqlClient) -> None:
    pooled = client.cluster
    place, name = pooled.namespace_client, f"{pooled.name}-pooler-rw"
    with place.expecting_events(pooled.name, ("Created", f"created Service {name}")):
        place.kubectl("delete", "service", name)
        pooled.until("it is back", lambda: place.get("service", name), HEALED_WITHIN)
    pooled.until("it leads to them", lambda: client.sql("SELECT 1") == "1", 60)


def switched_over(pooled: ClusterUnderTest) -> Callable[[], bool]:
    former = pooled.primary
    pooled.annotate("switchover", "any")
    return lambda: pooled.primary not in ("", former)


def restarted(pooled: ClusterUnderTest) -> Callable[[], bool]:
    """As by `kubectl steersman restart`: all pods are made anew."""
    before = set(map(str, pooled.pods().values()))
    pooled.annotate("restarted-at", datetime.now(UTC).isoformat())
    return lambda: before.isdisjoint(map(str, pooled.pods().values()))


def with_connections(number: str) -> Change:
    """Servers restart for it: for more the primary as the last, after it handed over; for less it is the first."""

    def declared(pooled: ClusterUnderTest) -> Callable[[], bool]:
        parameters = {**SMALL_SPEC["postgresql"]["parameters"], "max_connections": number}
        pooled.apply(postgresql={"parameters": parameters})
        return lambda: pooled.server_values("max_connections") == {number}

    return declared


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(switched_over, id="switchover"),
        pytest.param(restarted, id="restart"),
        pytest.param(with_connections("60"), id="raised"),
        pytest.param(with_connections("40"), id="lowered"),
    ],
)
def test_switchover_pauses_clients_without_error(
    pooled: ClusterUnderTest, change: Change, record_property: Record
) -> None:
    """For who comes to the primary. Who reads is led to replicas by then, though one of them became the primary."""
    with (
        writing(pooled, "shop-app", table="direct") as direct,
        writing(pooled, "shop-app", host(pooled, "rw")) as seen,
        reading(pooled, "shop-app", host(pooled, "rw"), recovery=False) as beside,
        reading(pooled, "shop-app", host(pooled, "ro"), recovery=True) as read,
    ):
        pooled.until("it is done", change(pooled), 300)
        pooled.wait_ready()
        over = time.time()
        seen.wait_for_writes(over)
        direct.wait_for_writes(over)
        pooled.until("all read from the primary", lambda: beside.came_from_expected_role(over), LETS_GO)
        pooled.until("all read from replicas", lambda: read.came_from_expected_role(over), LETS_GO)
        record_property(
            "longest gap in writes", f"{seen.longest_gap:.2f} s, without a pooler {direct.longest_gap:.2f} s"
        )
        record_property("a primary answered who reads from replicas for", f"{read.wrong_role_seconds:.1f} s")
        assert seen.errors == [] and beside.errors == []
        assert seen.lost_rows() == 0
        assert pause(seen, direct) < PAUSE
        # Nobody holds up who reads from a replica that restarts.
        assert change is not switched_over or read.errors == []


@pytest.fixture
def by_session(pooled: ClusterUnderTest) -> Generator[ClusterUnderTest]:
    """Poolers in mode `session`."""
    former = {"pooler": pooled.spec["pooler"]}
    pooled.apply(pooler={"replicas": 1, "mode": "session"})
    roll_out(pooled)
    yield pooled
    pooled.apply(**former)
    roll_out(pooled)


def test_session_mode_keeps_server_while_serving(by_session: ClusterUnderTest) -> None:
    """Who writes is told that it is over when the primary hands over, as without a pooler, and comes back; who reads
    keeps its server, though that becomes the primary.
    """
    orders = by_session
    client = SqlClient(orders, "shop-app", host(orders, "rw"), name="by-session")
    client.start()
    assert client.sql("SET work_mem = '7MB'; SELECT pg_sleep(1); SHOW work_mem").split() == ["7MB"]
    assert client.sql("SHOW work_mem") == "4MB", "nobody else's settings are left"
    with (
        writing(orders, "shop-app", table="direct") as direct,
        writing(orders, "shop-app", host(orders, "rw")) as seen,
        reading(orders, "shop-app", host(orders, "ro"), recovery=True) as read,
    ):
        heir = next(i for i in orders.replicas if orders.pod(i)["status"]["podIP"] == read.results[-1].server)
        orders.annotate("switchover", heir)
        orders.until("it leads", lambda: orders.primary == heir, 60)
        orders.wait_ready()
        over = time.time()
        seen.wait_for_writes(over)
        direct.wait_for_writes(over)
        assert len(seen.errors) == 1, "one session, and the next one waited"
        assert seen.lost_rows() == 0
        assert pause(seen, direct) < PAUSE
        assert client.sql("SELECT pg_is_in_recovery()") == "f"
        orders.until("they read on", lambda: read.has_results_since(over), 30)
        assert read.errors == []
        assert any(not answer.recovery for answer in read.results if answer.moment > over)
        assert client.sql("SELECT pg_is_in_recovery()", through(client, "ro")) == "t", "who comes now has a replica"
    client.stop()


def test_pooler_over_quota_reports_until_raised(pooled: ClusterUnderTest) -> None:
    place = pooled.namespace_client
    pooled.apply(pooler={"readOnly": False})

    def settled() -> int | None:
        """How many pods there are, with none that makes room soon."""
        pods = place.all("pods")
        going = any("deletionTimestamp" in pod["metadata"] or "pooler-ro" in pod["metadata"]["name"] for pod in pods)
        return None if going else len(pods)

    place.kubectl("create", "quota", "few", f"--hard=pods={pooled.until('none goes', settled, 120)}")
    pooled.apply(pooler={"replicas": 3, "readOnly": False})
    try:
        condition = pooled.wait_reason("PodRejected", "PoolersReady")
        assert f"{pooled.name}-pooler-rw has 2 of 3 poolers ready" in condition["message"]
        assert "exceeded quota: few" in condition["message"]
        pooled.wait_reason("Degraded")
        assert place.condition(pooled.kind, pooled.name, "Available")["reason"] == "PrimaryAvailable"
        assert 0 < len(place.events(pooled.name, "PodRejected")) < 3
    finally:
        place.kubectl("delete", "quota", "few")
    pooled.wait_ready()
    pooled.wait_reason("Serving", "PoolersReady")


def test_pooler_removed_from_spec_is_deleted(pooled: ClusterUnderTest, client: SqlClient) -> None:
    client.stop()
    pooled.apply(pooler={"replicas": 1, "readOnly": False})
    pooled.until(
        "only one is left",
        lambda: pooled.namespace_client.names("deployments") == {f"deployment.apps/{pooled.name}-pooler-rw"},
    )
    pooled.apply(pooler=None)
    kinds, ours = "deployments,services,configmaps", f"{pooled.name}-pooler"
    pooled.until("none is left", lambda: not any(ours in name for name in pooled.namespace_client.names(kinds)))
