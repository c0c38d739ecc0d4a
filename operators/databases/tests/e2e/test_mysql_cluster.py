"""A MySQL cluster of real servers from apply to deletion, as its user sees it."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator

import pytest

from database_support.cluster_engines import MYSQL, ON_MYSQL
from database_support.cluster_under_test import Client, ClusterUnderTest, Place, writing
from devcluster.errors import CommandFailed

pytestmark = [pytest.mark.xdist_group("mysql-cluster"), pytest.mark.timeout(900)]

Record = Callable[[str, object], None]
KINDS = "statefulsets,pods,pvc,secrets,services,configmaps,endpointslices,roles,serviceaccounts,jobs"


def test_one_instance_with_all_that_it_declares_and_gone(place: Place) -> None:
    place.make(
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
    assert one.leads() == ["stock-0-0"]
    assert one.status["version"].startswith("9.7.")
    one.wait_reason("Applied", "InitialConfiguration")
    assert one.sql("SELECT who FROM made", "parts") == "keeper@%"
    assert one.shown("max_connections") == {"60"}
    collation = "SELECT default_collation_name FROM information_schema.schemata WHERE schema_name = 'parts'"
    assert one.sql(collation) == "utf8mb4_bin"
    assert one.pod("stock-0")["metadata"]["labels"]["team"] == "one"
    assert place.get("pvc", "data-stock-0")["spec"]["resources"]["requests"]["storage"] == "1Gi"
    assert {place.secret("stock-app")[key] for key in ("user", "password")} == {"keeper", "kept for itself"}
    client = Client(one, "stock-app")
    client.start()
    assert client.sql("INSERT INTO made VALUES ('me'); SELECT COUNT(*) FROM made") == "2"
    client.stop()

    one.delete()
    # What is owned is collected by Kubernetes, after it.
    one.until(
        "nothing is left", lambda: not [n for n in place.names(KINDS) if "/stock" in n or "data-stock" in n], 90
    )


@pytest.fixture(scope="module")
def client(three: ClusterUnderTest) -> Generator[Client]:
    """Somebody who has nothing but the Secret of the database."""
    made = Client(three, "shop-app")
    made.start()
    yield made
    made.stop()


@ON_MYSQL
def test_services_lead_to_their_roles(three: ClusterUnderTest, client: Client) -> None:
    three.wait_ready()
    where = "SELECT @@hostname, @@super_read_only"

    def at(service: str, asked: int = 6) -> set[str]:
        host = f"{three.name}-{service}.{three.place.namespace}.svc"
        login = client.login.replace(three.place.secret("shop-app")["host"], host)
        return {client.sql(where, login) for _ in range(asked)}

    primary = f"{three.primary}-0\t0"
    replicas = {f"{name}-0\t1" for name in three.replicas}
    assert at("rw", 3) == {primary}
    assert at("ro") <= replicas
    assert at("r") <= {primary, *replicas}
    assert three.leads("ro") == sorted(f"{name}-0" for name in three.replicas)
    assert len(three.leads("r")) == 3
    client.sql("CREATE TABLE seen (n int PRIMARY KEY); INSERT INTO seen VALUES (7)")
    for replica in three.replicas:
        three.until(f"{replica} has it", lambda on=replica: three.sql("SELECT n FROM seen", "shop", on) == "7", 30)


@ON_MYSQL
def test_clear_text_is_refused(client: Client) -> None:
    command = client.cluster.engine.outside("SELECT 1", client.login)
    plain = [word for word in command if not word.startswith("--ssl-")]
    with pytest.raises(CommandFailed, match="insecure transport"):
        client.cluster.place.kubectl("exec", client.name, "--", *plain, "--ssl-mode=DISABLED")


@ON_MYSQL
def test_a_planned_switchover(three: ClusterUnderTest, record_property: Record) -> None:
    former, wanted = three.primary, three.replicas[-1]
    with writing(three, "shop-app") as seen:
        three.annotate("switchover", wanted)
        three.until(f"{wanted} leads", lambda: three.primary == wanted, 60)
        seen.goes_on(time.time())
        record_property("longest gap in writes, in seconds", round(seen.gap, 2))
        assert seen.lost() == 0
    three.wait_ready()
    assert three.leads() == [f"{wanted}-0"]
    assert {three.status["lastSwitchover"][key] for key in ("former", "to", "outcome")} == {
        former,
        wanted,
        "Succeeded",
    }
    assert not three.place.events(three.name, "Failover")


@ON_MYSQL
def test_a_refused_switchover_says_why(three: ClusterUnderTest) -> None:
    three.annotate("switchover", "orders-9")
    said = three.until("it is refused", lambda: three.place.events(three.name, "SwitchoverRefused"), 60)
    assert any("no instance of this name" in words for words in said)
    three.wait_ready()


@ON_MYSQL
def test_one_is_made_three_and_one_again(three: ClusterUnderTest) -> None:
    """It is the last: with what one instance had, others are made."""
    with writing(three, "shop-app") as seen:
        three.apply(instances=1)
        three.wait_ready(1)
        one = three.primary
        three.until("the others are gone", lambda: set(three.nodes()) == {one}, 120)
        three.until("claims go", lambda: three.place.names("pvc") == {f"persistentvolumeclaim/data-{one}"}, 60)

        three.place.kubectl("scale", "my", three.name, "--replicas=3")
        three.wait_ready(3)
        assert three.primary == one
        seen.goes_on(time.time())
        assert seen.errors == [], "nobody who writes noticed"
        assert seen.lost() == 0
    rows = three.sql("SELECT COUNT(*) FROM written", "shop")
    for replica in three.replicas:
        three.until(
            f"{replica} has all", lambda on=replica: three.sql("SELECT COUNT(*) FROM written", "shop", on) == rows, 60
        )
    assert len({three.sql("SELECT @@server_uuid", instance=name) for name in three.nodes()}) == 3
    three.place.kubectl("scale", "my", three.name, "--replicas=1")
    three.wait_ready(1)
    assert three.primary == one
