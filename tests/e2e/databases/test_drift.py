"""What somebody changes behind the operator's back is healed within 30 s."""

from __future__ import annotations

import pytest

from database_under_test import DatabaseUnderTest

HEALED_WITHIN = 30.0

DROP_USER = {
    "postgresql": ["REASSIGN OWNED BY orders TO postgres", "DROP OWNED BY orders", "DROP ROLE orders"],
    "mysql": ["DROP USER 'orders'@'%'"],
}
CHANGE_PASSWORD = {
    "postgresql": "ALTER ROLE orders PASSWORD 'elsewhere'",
    "mysql": "ALTER USER 'orders'@'%' IDENTIFIED BY 'elsewhere'",
}
REVOKE = {
    "postgresql": ["ALTER DATABASE orders OWNER TO postgres", "REVOKE ALL ON DATABASE orders FROM orders"],
    "mysql": ["REVOKE ALL PRIVILEGES ON `orders`.* FROM 'orders'@'%'"],
}
IN_OWN_DATABASE = frozenset({"REASSIGN OWNED BY orders TO postgres", "DROP OWNED BY orders"})


@pytest.fixture
def ready(database: DatabaseUnderTest) -> DatabaseUnderTest:
    """A ready database with one row."""
    database.apply()
    database.wait_ready()
    database.client_sql("CREATE TABLE t (n INT)")
    database.client_sql("INSERT INTO t VALUES (1)")
    return database


def _works_again(database: DatabaseUnderTest) -> None:
    database.eventually(
        "the application reads and writes again",
        lambda: database.client_sql("CREATE TABLE again (n INT); DROP TABLE again; SELECT n FROM t").endswith("1"),
        seconds=HEALED_WITHIN,
    )


def test_inside_the_server(ready: DatabaseUnderTest) -> None:
    for statement in DROP_USER[ready.engine]:
        ready.admin_sql(statement, "orders" if statement in IN_OWN_DATABASE else None)
    _works_again(ready)
    ready.admin_sql(CHANGE_PASSWORD[ready.engine])
    _works_again(ready)
    for statement in REVOKE[ready.engine]:
        ready.admin_sql(statement)
    _works_again(ready)
    assert {"Normal"} == {e["type"] for e in ready.events()}, "healing is no cause for alarm"


def test_in_the_cluster(ready: DatabaseUnderTest) -> None:
    cluster, scope = ready.cluster, f"--namespace={ready.namespace}"
    made = (("service", "orders-primary"), ("service", "orders-headless"), ("statefulset", ready.statefulset))
    pod = ready.one("pod", ready.pod)["metadata"]["uid"]
    for kind, name in made:
        uid = ready.one(kind, name)["metadata"]["uid"]
        cluster.kubectl("delete", kind, name, scope, "--wait=false")

        def came_back(kind: str = kind, name: str = name, uid: str = uid) -> bool:
            return ready.one(kind, name)["metadata"]["uid"] != uid

        ready.eventually(f"{kind} {name} is back", came_back, seconds=HEALED_WITHIN)

    def is_another() -> bool:
        found = cluster.get("pod", ready.pod, scope)
        return bool(found) and found["metadata"]["uid"] != pod and ready.client_sql("SELECT n FROM t") == "1"

    # The pod goes with the StatefulSet.
    ready.eventually("another server is there", is_another, seconds=180)
    ready.wait_ready()
    _works_again(ready)
    cluster.kubectl(
        "patch",
        "service",
        "orders-primary",
        scope,
        "--type=json",
        '--patch=[{"op":"replace","path":"/spec/ports/0/port","value":1}]',
    )
    _works_again(ready)
    elsewhere = '--patch={"spec":{"type":"ExternalName","externalName":"elsewhere.invalid"}}'
    cluster.kubectl("patch", "service", "orders-primary", scope, elsewhere)
    _works_again(ready)


def test_secrets(ready: DatabaseUnderTest) -> None:
    cluster, scope = ready.cluster, f"--namespace={ready.namespace}"
    before = ready.secret()["password"]
    cluster.kubectl("delete", "secret", "orders-app", scope)
    _works_again(ready)
    assert ready.secret()["password"] not in ("", before)
    cluster.kubectl("patch", "secret", "orders-app", scope, '--patch={"stringData":{"password":"chosen by hand"}}')
    _works_again(ready)
    ready.eventually(
        "the URI has the new password", lambda: "chosen%20by%20hand" in ready.secret()["uri"], seconds=HEALED_WITHIN
    )
    assert ready.client_sql("SELECT n FROM t", "chosen by hand") == "1"
