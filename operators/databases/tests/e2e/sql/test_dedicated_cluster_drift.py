"""What somebody changes behind the operator's back is healed within 30 s, and an Event says so."""

from __future__ import annotations

import json
from contextlib import AbstractContextManager
from typing import Any

import pytest

from database_support.e2e.database import DatabaseUnderTest
from database_support.e2e.events import expecting_events

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
OF_DROPPED = {"postgresql": ["UserCreated", "OwnerRestored"], "mysql": ["UserCreated", "GrantsRestored"]}
OF_REVOKED = {"postgresql": ["OwnerRestored"], "mysql": ["GrantsRestored"]}
ESTRANGE = {
    "postgresql": "ALTER DATABASE orders IS_TEMPLATE true",
    "mysql": "ALTER DATABASE orders CHARACTER SET latin1",
}
AS_MADE = {
    "postgresql": "SELECT NOT datistemplate FROM pg_database WHERE datname = 'orders'",
    "mysql": "SELECT DEFAULT_CHARACTER_SET_NAME = 'utf8mb4' FROM information_schema.SCHEMATA "
    "WHERE SCHEMA_NAME = 'orders'",
}
DROP_DATABASE = {"postgresql": "DROP DATABASE orders WITH (FORCE)", "mysql": "DROP DATABASE orders"}
IN_OWN_DATABASE = frozenset({"REASSIGN OWNED BY orders TO postgres", "DROP OWNED BY orders"})


@pytest.fixture
def ready(database: DatabaseUnderTest) -> DatabaseUnderTest:
    """A ready database with one row."""
    database.apply()
    database.wait_ready()
    database.client_sql("CREATE TABLE t (n INT)")
    database.client_sql("INSERT INTO t VALUES (1)")
    return database


def _told(database: DatabaseUnderTest, *reasons: tuple[str, str] | str) -> AbstractContextManager[None]:
    return expecting_events(database.events_with_cluster, *reasons)


def _works_again(database: DatabaseUnderTest, one: str = "SELECT n FROM t") -> None:
    database.eventually(
        "the application reads and writes again",
        lambda: database.client_sql(f"CREATE TABLE again (n INT); DROP TABLE again; {one}").endswith("1"),
        seconds=HEALED_WITHIN,
    )


def test_sql_drift_is_reverted(ready: DatabaseUnderTest) -> None:
    with _told(ready, *OF_DROPPED[ready.engine]):
        for statement in DROP_USER[ready.engine]:
            ready.admin_sql(statement, "orders" if statement in IN_OWN_DATABASE else None)
        _works_again(ready)
    with _told(ready, "PasswordReset"):
        ready.admin_sql(CHANGE_PASSWORD[ready.engine])
        _works_again(ready)
    with _told(ready, *OF_REVOKED[ready.engine]):
        for statement in REVOKE[ready.engine]:
            ready.admin_sql(statement)
        _works_again(ready)
    with _told(ready, "DatabaseAltered"):
        ready.client_sql(ESTRANGE[ready.engine])
        ready.eventually(
            "the database is as it was made",
            lambda: ready.admin_sql(AS_MADE[ready.engine]) in ("t", "1"),
            seconds=HEALED_WITHIN,
        )
    with _told(ready, "DatabaseCreated"):
        ready.admin_sql(DROP_DATABASE[ready.engine])
        # What was in it is gone.
        _works_again(ready, "SELECT 1")
    assert {"Normal"} == {e["type"] for e in ready.events()}, "healing is no cause for alarm"


def test_object_drift_is_reverted(ready: DatabaseUnderTest) -> None:
    cluster, scope = ready.cluster, f"--namespace={ready.namespace}"
    made = (("Service", "orders-primary"), ("Service", "orders-headless"), ("StatefulSet", ready.statefulset))
    pod = ready.get_object("pod", ready.pod)["metadata"]["uid"]
    for kind, name in made:
        uid = ready.get_object(kind, name)["metadata"]["uid"]

        def came_back(kind: str = kind, name: str = name, uid: str = uid) -> bool:
            return ready.get_object(kind, name)["metadata"]["uid"] != uid

        with _told(ready, ("Created", f"created {kind} {name}")):
            cluster.kubectl("delete", kind, name, scope, "--wait=false")
            ready.eventually(f"{kind} {name} is back", came_back, seconds=HEALED_WITHIN)

    def is_another() -> bool:
        found = cluster.get("pod", ready.pod, scope)
        return bool(found) and found["metadata"]["uid"] != pod and ready.client_sql("SELECT n FROM t") == "1"

    # The pod goes with the StatefulSet.
    ready.eventually("another server is there", is_another, seconds=180)
    ready.wait_ready()
    _works_again(ready)
    for change in (
        ("--type=json", '--patch=[{"op":"replace","path":"/spec/ports/0/port","value":1}]'),
        ('--patch={"spec":{"type":"ExternalName","externalName":"elsewhere.invalid"}}',),
    ):
        with _told(ready, ("Updated", "updated Service orders-primary")):
            cluster.kubectl("patch", "service", "orders-primary", scope, *change)
            _works_again(ready)
    # What the API server completes, and then refuses to have put back by halves.
    udp = {"op": "replace", "path": "/spec/ports/0/protocol", "value": "UDP"}
    nowhere = {"op": "replace", "path": "/ports/0/port", "value": 1}
    endpoints = "orders.orders-primary-ipv4"
    for kind, name, change in (
        ("service", "orders-primary", ("--type=json", f"--patch={json.dumps([udp])}")),
        ("service", "orders-primary", ('--patch={"spec":{"sessionAffinity":"ClientIP"}}',)),
        ("service", "orders-primary", ('--patch={"spec":{"internalTrafficPolicy":"Local"}}',)),
        ("endpointslice", endpoints, ("--type=json", f"--patch={json.dumps([nowhere])}")),
        ("statefulset", ready.statefulset, ('--patch={"spec":{"updateStrategy":{"type":"RollingUpdate"}}}',)),
    ):
        before = _declared(ready, kind, name)
        cluster.kubectl("patch", kind, name, scope, *change)
        ready.eventually(
            f"{kind} {name} is as declared",
            lambda kind=kind, name=name, before=before: _declared(ready, kind, name) == before,
            seconds=HEALED_WITHIN,
        )
    _works_again(ready)


def _declared(database: DatabaseUnderTest, kind: str, name: str) -> Any:
    found = database.get_object(kind, name)
    return found.get("spec"), found.get("ports")


def test_labels(ready: DatabaseUnderTest) -> None:
    """A Secret without them is not seen by the operator, and is the cluster's all the same: its claim owns it."""
    cluster, scope, label = ready.cluster, f"--namespace={ready.namespace}", "app.kubernetes.io/managed-by"
    before = ready.get_object("secret", "orders-ca")["metadata"]["uid"]
    cluster.kubectl("label", "secret", "orders-ca", scope, f"{label}-")
    ready.eventually(
        "the label is back",
        lambda: label in ready.get_object("secret", "orders-ca")["metadata"]["labels"],
        seconds=HEALED_WITHIN,
    )
    assert ready.get_object("secret", "orders-ca")["metadata"]["uid"] == before
    ready.wait_ready()
    _works_again(ready)


def test_secrets(ready: DatabaseUnderTest) -> None:
    cluster, scope = ready.cluster, f"--namespace={ready.namespace}"
    before = ready.secret()["password"]
    with _told(ready, ("Created", "created Secret orders-app"), "PasswordReset"):
        cluster.kubectl("delete", "secret", "orders-app", scope)
        _works_again(ready)
    assert ready.secret()["password"] not in ("", before)
    with _told(ready, "SecretRestored", "PasswordReset"):
        cluster.kubectl(
            "patch", "secret", "orders-app", scope, '--patch={"stringData":{"password":"chosen by hand"}}'
        )
        _works_again(ready)
        ready.eventually(
            "the URI has the new password",
            lambda: "chosen%20by%20hand" in ready.secret()["uri"],
            seconds=HEALED_WITHIN,
        )
    assert ready.client_sql("SELECT n FROM t", "chosen by hand") == "1"
