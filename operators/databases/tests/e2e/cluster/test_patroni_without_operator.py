"""What a PostgreSQL cluster does by itself: its parts are made by hand, and no operator looks after it."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import AbstractContextManager
from dataclasses import replace

import pytest

from database_support.e2e.engines import POSTGRESQL as ENGINE
from database_support.e2e.field_watch import FOLLOWS, ROLE, FieldWatch, endpoints, lock_was_released, watching_field
from database_support.e2e.patroni_cluster import PatroniCluster, view
from database_support.nodes.packet_loss import without_api_server
from devcluster.errors import CommandFailed
from devcluster.images import POSTGRESQL, POSTGRESQL_15, POSTGRESQL_18, ensure, load
from devcluster.progress import Progress
from devcluster.target import Target, wait_until
from steersman_databases.engines.postgresql.ha import patroni

NAMESPACE = "e2e-patroni"
RECIPES = {"18": POSTGRESQL_18, "17": POSTGRESQL, "15": POSTGRESQL_15}
# The second as one of `services.additional`, with role rw.
WRITABLE = ("pg-rw", "shopfront")
PEER = "sslrootcert=/etc/steersman/tls/ca.crt sslcert=/etc/steersman/peer/tls.crt sslkey=/etc/steersman/peer/tls.key"
# What is promised of a primary whose server dies: measured were 1.1 to 2.8 s.
TAKES_OVER = 5.0

pytestmark = pytest.mark.xdist_group("patroni")


@pytest.fixture(scope="module", params=RECIPES)
def cluster(bare_cluster: Target, request: pytest.FixtureRequest) -> Generator[PatroniCluster]:
    """Three members of each major, one cluster after the other."""
    if not bare_cluster.is_devcluster:
        pytest.skip("loads an image into the devcluster")
    image = ensure(RECIPES[request.param], Progress())
    load(image)
    bare_cluster.kubectl("delete", "namespace", NAMESPACE, "--ignore-not-found", "--timeout=180s", seconds=200)
    bare_cluster.kubectl("create", "namespace", NAMESPACE)
    shape = view("pg", NAMESPACE, image.reference, version=request.param)
    cluster = PatroniCluster(bare_cluster, replace(shape, writable_services=WRITABLE))
    cluster.apply()
    cluster.start_all()
    yield cluster
    bare_cluster.kubectl("delete", "namespace", NAMESPACE, "--timeout=180s", seconds=200)


@pytest.fixture(autouse=True)
def settled(cluster: PatroniCluster) -> None:
    wait_until("all stream", cluster.settled, seconds=90)


def unready(cluster: PatroniCluster) -> dict[str, str]:
    """The pods that are not ready, or were started again."""
    pods = cluster.target.get("pods", f"--namespace={NAMESPACE}")
    assert pods is not None
    return {
        pod["metadata"]["name"]: str(status)
        for pod in pods["items"]
        for status in pod["status"]["containerStatuses"]
        if not status["ready"] or status["restartCount"]
    }


def ask(cluster: PatroniCluster, service: str, statement: str, user: str = "steersman_rewind", mode: str = "") -> str:
    """Over a Service, from the pod of a replica, with the members' certificate."""
    pod = next(name for name in sorted(cluster.members()) if name != cluster.leader())
    dsn = f"host={service}.{NAMESPACE}.svc user={user} dbname=postgres {mode or f'sslmode=verify-full {PEER}'}"
    return cluster.execute(pod, "psql", "-XAtq", f"{dsn} connect_timeout=3", "-c", statement).strip()


def lock(cluster: PatroniCluster) -> AbstractContextManager[FieldWatch]:
    return watching_field(cluster, "configmap", "pg-leader", "{.metadata.annotations.leader}")


def test_leader_lock_ttl_matches_configuration(cluster: PatroniCluster) -> None:
    """Patroni alone takes no time below 20 seconds, and says so in its log only."""
    held = cluster.annotations(cluster.declared.names.dcs_leader.name)
    assert held["ttl"] == str(patroni.dynamic_configuration(cluster.declared)["ttl"])


def test_services_select_their_roles(cluster: PatroniCluster) -> None:
    recovers = "SELECT pg_is_in_recovery()"
    assert ask(cluster, "pg-rw", recovers) == "f"
    assert {ask(cluster, "pg-ro", recovers) for _ in range(5)} == {"t"}
    assert ask(cluster, "pg-r", "SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()") == "t"


@pytest.mark.parametrize("user", ["steersman_superuser", "steersman_operator", "postgres"])
def test_member_certificate_grants_no_other_access(cluster: PatroniCluster, user: str) -> None:
    with pytest.raises(CommandFailed, match=r"certificate authentication failed|no password supplied"):
        ask(cluster, "pg-rw", "SELECT 1", user)


@pytest.mark.parametrize("user", ["steersman_superuser", "steersman_rewind", "postgres"])
def test_operator_roles_require_tls(cluster: PatroniCluster, user: str) -> None:
    with pytest.raises(CommandFailed, match=r"pg_hba\.conf rejects connection"):
        ask(cluster, "pg-rw", "SELECT 1", user, mode="sslmode=disable")


def test_rest_api_changes_require_client_certificate(cluster: PatroniCluster) -> None:
    script = """
import http.client, ssl
for shown in (False, True):
    context = ssl.create_default_context(cafile="/etc/steersman/tls/ca.crt")
    context.check_hostname = False
    if shown:
        context.load_cert_chain("/etc/steersman/peer/tls.crt", "/etc/steersman/peer/tls.key")
    for method, path in (("GET", "/readiness"), ("POST", "/reload")):
        connection = http.client.HTTPSConnection("127.0.0.1", 8008, timeout=5, context=context)
        connection.request(method, path)
        print(connection.getresponse().status)
"""
    said = cluster.execute(cluster.leader() or "", "python3", "-c", script).split()
    assert said == ["200", "403", "200", "202"]


def test_system_accounts_exist_without_password(cluster: PatroniCluster) -> None:
    statement = "SELECT rolname, rolpassword IS NULL FROM pg_authid WHERE rolname LIKE 'steersman%' ORDER BY 1"
    names = ("operator", "pooler", "replication", "rewind", "superuser")
    assert cluster.sql(cluster.leader() or "", statement).split() == [f"steersman_{name}|t" for name in names]


def test_services_follow_switchover(cluster: PatroniCluster) -> None:
    former, wanted = cluster.leader() or "", cluster.synchronous()[-1]
    with (
        lock(cluster) as locked,
        watching_field(cluster, "pod", former, ROLE) as role,
        endpoints(cluster, "pg-rw") as rw,
        endpoints(cluster, "shopfront") as additional,
        endpoints(cluster, "pg-ro") as ro,
        endpoints(cluster, "pg-r") as r,
    ):
        ro.wait_for("-ro leads to both", lambda names: len(names.split()) == 2)
        cluster.switch_over(wanted)
        # The lock comes before the promotion, so this is more than is promised.
        since = locked.wait_for(f"{wanted} leads", wanted.__eq__)
        for service in (rw, additional):
            assert service.wait_for("a Service of the primary routes to it", wanted.__eq__) - since <= FOLLOWS
        assert ro.wait_for("it leaves -ro", lambda names: wanted not in names.split()) - since <= FOLLOWS
        follows = role.wait_for("the former follows", "replica".__eq__)
        assert ro.wait_for("the former joins -ro", lambda names: former in names.split()) - follows <= FOLLOWS
        wait_until("all stream", cluster.settled, seconds=90)
        assert all(wanted in names.split() for _, names in r.lines), "-r leads to it whatever it is"
    assert cluster.members()[former]["role"] == "replica"


def test_postmaster_killed_loses_no_row(cluster: PatroniCluster) -> None:
    former = cluster.leader() or ""
    cluster.sql(former, "CREATE TABLE kept AS SELECT generate_series(1, 1000) AS number")
    with lock(cluster) as locked, endpoints(cluster, "pg-rw") as rw, endpoints(cluster, "pg-ro") as ro:
        kill = f"date +%s.%N; kill -9 $({ENGINE.pid})"
        killed = float(cluster.execute(former, "sh", "-c", kill))
        since = locked.wait_for("another leads", lambda name: name not in (former, ""))
        leader = cluster.leader() or ""
        routed = rw.wait_for("-rw leads to it", leader.__eq__)
        assert routed - since <= FOLLOWS and routed - killed <= TAKES_OVER
        assert ro.wait_for("it leaves -ro", lambda names: leader not in names.split()) - since <= FOLLOWS
    assert ask(cluster, "pg-rw", "SELECT count(*) FROM pg_class WHERE relname = 'kept'") == "1"
    assert cluster.sql(leader, "SELECT count(*) FROM kept") == "1000"


def test_pod_deleted_switches_over_and_rejoins(cluster: PatroniCluster) -> None:
    """It gives back the lock as the last that it does: the others would wait 15 s for it to expire."""
    former = cluster.leader() or ""
    with lock(cluster) as locked:
        cluster.kubectl("delete", "pod", former, "--wait=false")
        locked.wait_for("another leads", lambda name: name not in (former, ""))
        assert lock_was_released(locked, former)
    wait_until("all stream", cluster.settled, seconds=90)


def test_api_server_down_writes_continue(cluster: PatroniCluster) -> None:
    leader = cluster.leader() or ""
    cluster.sql(leader, "CREATE TABLE IF NOT EXISTS written (at timestamptz DEFAULT clock_timestamp())")
    with without_api_server(cluster.target, NAMESPACE):
        # Longer than the lease, in which Patroni without this mode would stop the primary, and than the watch of a
        # member that began with Patroni's own defaults: until that ends it goes by a record that is out of date.
        insert = "INSERT INTO written DEFAULT VALUES; SELECT clock_timestamp() - min(at) > '45s' FROM written"

        def written() -> bool:
            assert unready(cluster) == {}
            return cluster.sql(leader, insert) == "t"

        wait_until("45 s of writes", written, seconds=80, interval=1)
    wait_until("Patroni renews its lease", cluster.settled, seconds=60)
    assert cluster.leader() == leader
