"""A MySQL cluster of real servers from apply to deletion, as its user sees it."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator

import pytest

from database_support.e2e.cluster import ClusterUnderTest, NamespaceClient, SqlClient, writing
from database_support.e2e.engines import MYSQL, ON_MYSQL
from devcluster.errors import CommandFailed

pytestmark = [pytest.mark.xdist_group("mysql-cluster"), pytest.mark.timeout(900)]

Record = Callable[[str, object], None]
KINDS = "statefulsets,pods,pvc,secrets,services,configmaps,endpointslices,roles,serviceaccounts,jobs"


def test_single_instance_with_all_fields_create_delete(place: NamespaceClient) -> None:
    place.create(
        {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": "owner"},
            "type": "kubernetes.io/basic-auth",
            "stringData": {"username": "keeper", "password": "kept for itself"},
        },
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": "sql"},
            "data": {"a": "CREATE TABLE made (who varchar(64) PRIMARY KEY); INSERT INTO made SELECT current_user();"},
        },
    )
    one = ClusterUnderTest(place, "stock", dict(MYSQL.small), MYSQL)
    initial = {
        "database": "parts",
        "owner": "keeper",
        "secret": {"name": "owner"},
        "postInitApplicationSQLRefs": {"configMapRefs": [{"name": "sql", "key": "a"}]},
        "collation": "utf8mb4_bin",
    }
    one.apply(instances=1, bootstrap={"initdb": initial}, podMetadata={"labels": {"team": "one"}})
    one.wait_ready(1)
    assert one.primary == "stock-0"
    assert one.endpoints() == ["stock-0-0"]
    assert one.status["version"].startswith("9.7.")
    one.wait_reason("Applied", "PostInitSQLApplied")
    assert one.sql("SELECT who FROM made", "parts") == "keeper@%"
    assert one.server_values("max_connections") == {"60"}
    collation = "SELECT default_collation_name FROM information_schema.schemata WHERE schema_name = 'parts'"
    assert one.sql(collation) == "utf8mb4_bin"
    assert one.pod("stock-0")["metadata"]["labels"]["team"] == "one"
    assert place.get("pvc", "data-stock-0")["spec"]["resources"]["requests"]["storage"] == "1Gi"
    assert {place.secret("stock-app")[key] for key in ("user", "password")} == {"keeper", "kept for itself"}
    client = SqlClient(one, "stock-app")
    client.start()
    assert client.sql("INSERT INTO made VALUES ('me'); SELECT COUNT(*) FROM made") == "2"
    client.stop()

    one.delete()
    # What is owned is collected by Kubernetes, after it.
    one.until(
        "nothing is left", lambda: not [n for n in place.names(KINDS) if "/stock" in n or "data-stock" in n], 90
    )


@pytest.fixture(scope="module")
def client(three: ClusterUnderTest) -> Generator[SqlClient]:
    """Somebody who has nothing but the Secret of the database."""
    made = SqlClient(three, "shop-app")
    made.start()
    yield made
    made.stop()


@ON_MYSQL
def test_services_select_their_roles(three: ClusterUnderTest, client: SqlClient) -> None:
    three.wait_ready()
    where = "SELECT @@hostname, @@super_read_only"

    def at(service: str, asked: int = 6) -> set[str]:
        host = f"{three.name}-{service}.{three.namespace_client.namespace}.svc"
        login = client.login.replace(three.namespace_client.secret("shop-app")["host"], host)
        return {client.sql(where, login) for _ in range(asked)}

    primary = f"{three.primary}-0\t0"
    replicas = {f"{name}-0\t1" for name in three.replicas}
    assert at("rw", 3) == {primary}
    assert at("ro") <= replicas
    assert at("r") <= {primary, *replicas}
    assert three.endpoints("ro") == sorted(f"{name}-0" for name in three.replicas)
    assert len(three.endpoints("r")) == 3
    client.sql("CREATE TABLE seen (n int PRIMARY KEY); INSERT INTO seen VALUES (7)")
    for replica in three.replicas:
        three.until(f"{replica} has it", lambda on=replica: three.sql("SELECT n FROM seen", "shop", on) == "7", 30)


@ON_MYSQL
def test_clear_text_connection_is_rejected(client: SqlClient) -> None:
    command = client.cluster.engine.client_command("SELECT 1", client.login)
    plain = [word for word in command if not word.startswith("--ssl-")]
    with pytest.raises(CommandFailed, match="insecure transport"):
        client.cluster.namespace_client.kubectl("exec", client.name, "--", *plain, "--ssl-mode=DISABLED")


@ON_MYSQL
def test_switchover_planned_moves_primary(three: ClusterUnderTest, record_property: Record) -> None:
    former, wanted = three.primary, three.replicas[-1]
    with writing(three, "shop-app") as seen:
        three.annotate("switchover", wanted)
        three.until(f"{wanted} leads", lambda: three.primary == wanted, 60)
        seen.wait_for_writes(time.time())
        record_property("longest gap in writes, in seconds", round(seen.longest_gap, 2))
        assert seen.lost_rows() == 0
    three.wait_ready()
    assert three.endpoints() == [f"{wanted}-0"]
    assert {three.status["lastSwitchover"][key] for key in ("former", "to", "outcome")} == {
        former,
        wanted,
        "Succeeded",
    }
    assert not three.namespace_client.events(three.name, "Failover")


@ON_MYSQL
def test_switchover_rejected_reports_reason(three: ClusterUnderTest) -> None:
    three.annotate("switchover", "orders-9")
    said = three.until("it is refused", lambda: three.namespace_client.events(three.name, "SwitchoverRejected"), 60)
    assert any("no instance has this name" in words for words in said)
    three.wait_ready()


@ON_MYSQL
def test_scale_1_to_3_and_back(three: ClusterUnderTest) -> None:
    """It is the last: with what one instance had, others are made."""
    with writing(three, "shop-app") as seen:
        three.apply(instances=1)
        three.wait_ready(1)
        one = three.primary
        three.until("the others are gone", lambda: set(three.nodes()) == {one}, 120)
        three.until(
            "claims go", lambda: three.namespace_client.names("pvc") == {f"persistentvolumeclaim/data-{one}"}, 60
        )

        three.namespace_client.kubectl("scale", "my", three.name, "--replicas=3")
        three.wait_ready(3)
        assert three.primary == one
        seen.wait_for_writes(time.time())
        assert seen.errors == [], "nobody who writes noticed"
        assert seen.lost_rows() == 0
    rows = three.sql("SELECT COUNT(*) FROM written", "shop")
    for replica in three.replicas:
        three.until(
            f"{replica} has all", lambda on=replica: three.sql("SELECT COUNT(*) FROM written", "shop", on) == rows, 60
        )
    assert len({three.sql("SELECT @@server_uuid", instance=name) for name in three.nodes()}) == 3
    three.namespace_client.kubectl("scale", "my", three.name, "--replicas=1")
    three.wait_ready(1)
    assert three.primary == one
