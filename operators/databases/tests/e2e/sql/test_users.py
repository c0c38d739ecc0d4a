"""Users and databases on a cluster, and on a server that is none of ours, as their user sees them."""

from __future__ import annotations

import re

import pytest

from database_support.e2e.cluster import SMALL_SPEC, ClusterUnderTest, NamespaceClient
from database_support.e2e.database import DatabaseUnderTest
from devcluster.errors import CommandFailed


@pytest.mark.requirement(
    "design/short-name", "programming/kubectl", "user/no-root", "user/database-user", "user/short-name"
)
def test_user_on_cluster_logs_in(place: NamespaceClient) -> None:
    shop = ClusterUnderTest(place, "shop", {**SMALL_SPEC, "instances": 1})
    shop.apply()
    place.apply("Database", "orders", {"clusterRef": {"name": "shop"}, "deletionPolicy": "Delete"})
    place.kubectl("create", "secret", "generic", "chosen", "--from-literal=word=chosen by hand")
    grants = [{"database": "orders", "privileges": ["CONNECT"]}]
    # As in the first description of this kind: a label says where, a Secret which password.
    spec = {"user": "clerk", "password": {"name": "chosen", "key": "word"}, "grants": grants}
    place.apply("DatabaseUser", "clerk", spec, labels={"target": "shop"})
    place.apply("DatabaseUser", "report", {"clusterRef": {"name": "shop"}, "user": "report", "grants": grants})

    place.wait_for_columns("db", "orders", "Ready")
    for user in ("clerk", "report"):
        place.wait_for_columns("dbu", user, "True", "ProvisionSucceeded")
        assert place.log_in("shop-0-0", place.secret(f"{user}-user"), "SELECT current_user") == user
    assert place.secret("clerk-user")["password"] == "chosen by hand"
    made = place.log_in("shop-0-0", place.secret("orders-app"), "CREATE TABLE t (n INT); SELECT current_user")
    assert made.endswith("orders")
    with pytest.raises(CommandFailed, match="permission denied"):
        place.log_in("shop-0-0", place.secret("clerk-user"), "SELECT * FROM t")

    for kind, name, left in (
        ("dbu", "report", "SELECT count(*) FROM pg_roles WHERE rolname = 'report'"),
        ("dbu", "clerk", "SELECT count(*) FROM pg_roles WHERE rolname = 'clerk'"),
        ("db", "orders", "SELECT count(*) FROM pg_database WHERE datname = 'orders'"),
    ):
        place.kubectl("delete", kind, name, "--timeout=60s", seconds=70)
        assert shop.sql(left) == "0"


def describes(place: NamespaceClient, user: str, words: str) -> bool:
    """Whether ``kubectl describe`` has the server's words in the condition and in an Event, both for their reason."""
    status, _, events = place.kubectl("describe", "dbu", user).partition("\nEvents:")
    return (
        "ProvisionFailed" in status
        and words in status
        and re.search(f"ProvisionFailed .*{words}", events) is not None
    )


@pytest.mark.requirement("design/create-database", "user/connects", "user/status-errors", "user/get-shows-errors")
def test_user_on_external_server_logs_in(place: NamespaceClient, database: DatabaseUnderTest, engine: str) -> None:
    """The Service is created later; the administrator's password is wrong at first, and again afterwards."""
    username, words = {
        "postgresql": ("registrar", 'password authentication failed for user "registrar"'),
        "mysql": ("root", "Access denied for user 'root'"),
    }[engine]
    place.kubectl(
        "create", "secret", "generic", "root", f"--from-literal=username={username}", "--from-literal=password=wrong"
    )
    server = {
        "service": {"name": "orders-primary"},
        "administrator": {"name": "root"},
        "tls": {"mode": "Require"},
    }
    grants = [{"database": "shop", "privileges": ["ALL"]}]
    on = {"engine": engine, "serverRef": server}
    place.apply("Database", "shop", {**on, "deletionPolicy": "Delete"})
    place.apply("DatabaseUser", "clerk", {**on, "user": "clerk", "grants": grants})
    place.wait_for_columns("dbu", "clerk", "False", "ProvisionFailed", "Service orders-primary does not exist")
    database.apply()
    database.wait_ready()
    right = database.secret("admin")["password"]
    if engine == "postgresql":
        database.admin_sql(f"CREATE ROLE registrar SUPERUSER LOGIN PASSWORD '{right}'")
    rejected = ("False", "ProvisionFailed", f'the server rejected the administrator "{username}"', words)
    place.wait_for_columns("dbu", "clerk", *rejected)
    place.until("kubectl describe says so", lambda: describes(place, "clerk", words), 30)

    place.patch("secret", "root", {"stringData": {"password": right}})
    place.wait_for_columns("db", "shop", "Ready")
    place.wait_for_columns("dbu", "clerk", "True", "ProvisionSucceeded")
    kept = place.secret("clerk-user")
    assert place.log_in(database.pod, kept, "SELECT 1", engine) == "1"

    place.patch("secret", "root", {"stringData": {"password": "wrong again"}})
    place.wait_for_columns("dbu", "clerk", *rejected)
    place.wait_reason("database", "shop", "AdministratorRejected")
    assert place.log_in(database.pod, kept, "SELECT 1", engine) == "1", "what is there goes on"
    place.patch("secret", "root", {"stringData": {"password": right}})
    place.wait_for_columns("dbu", "clerk", "True", "ProvisionSucceeded")
    place.wait_for_columns("db", "shop", "Ready")

    place.kubectl("delete", "dbu", "clerk", "--timeout=60s", seconds=70)
    catalog = {"postgresql": "pg_roles WHERE rolname", "mysql": "mysql.user WHERE user"}[engine]
    assert database.admin_sql(f"SELECT count(*) FROM {catalog} = '{kept['user']}'") == "0"
    place.kubectl("delete", "db", "shop", "--timeout=60s", seconds=70)
    catalog = {"postgresql": "pg_database WHERE datname", "mysql": "information_schema.schemata WHERE schema_name"}
    assert database.admin_sql(f"SELECT count(*) FROM {catalog[engine]} = 'shop'") == "0"
