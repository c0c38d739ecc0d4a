"""Users and databases on a cluster, and on a server that is none of ours, as their user sees them."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
import yaml

from database_under_test import DatabaseUnderTest
from devcluster.errors import CommandFailed
from devcluster.target import Target, wait_until

API = "databases.steersman.dev/v1alpha1"
LOGIN = {
    "postgresql": 'PGPASSWORD="$5" PGCONNECT_TIMEOUT=5 exec psql -h "$1" -p "$2" -U "$3" -d "$4" -Atc "$6"',
    "mysql": 'MYSQL_PWD="$5" exec mysql --connect-timeout=5 -h "$1" -P "$2" -u "$3" -N -e "$6" "$4"',
}


class Namespace:
    """What somebody does in one namespace."""

    def __init__(self, target: Target, name: str) -> None:
        self.target, self.name = target, name
        self._scope = f"--namespace={name}"

    def apply(self, kind: str, name: str, spec: dict[str, Any], **labels: str) -> None:
        metadata = {"name": name, "labels": labels}
        manifest = {"apiVersion": API, "kind": kind, "metadata": metadata, "spec": spec}
        self.target.apply(yaml.safe_dump(manifest), self.name)

    def kubectl(self, *arguments: str, seconds: float = 60) -> str:
        return self.target.kubectl(*arguments, self._scope, seconds=seconds)

    def set_password(self, secret: str, password: str) -> None:
        patch = json.dumps({"stringData": {"password": password}})
        self.kubectl("patch", "secret", secret, f"--patch={patch}")

    def shows(self, kind: str, name: str, *words: str) -> None:
        """Waits until ``kubectl get`` has these words in its line."""

        def shown() -> bool:
            line = self.kubectl("get", kind, name, "--no-headers")
            return all(word in line for word in words)

        try:
            wait_until(f"kubectl get {kind} {name} shows {words}", shown, seconds=120)
        except Exception as error:
            error.add_note(self.kubectl("get", kind, name, "--output=yaml"))
            raise

    def entries(self, secret: str) -> dict[str, str]:
        found = self.target.get("secret", secret, self._scope)
        assert found is not None
        return {key: base64.b64decode(value).decode() for key, value in found["data"].items()}

    def log_in(self, pod: str, secret: str, statement: str, engine: str = "postgresql") -> str:
        """What the server answers to who has nothing but the Secret."""
        entries = self.entries(secret)
        values = [entries[key] for key in ("host", "port", "user", "dbname", "password")]
        command = ("exec", pod, self._scope, "--container=server", "--", "sh", "-c", LOGIN[engine], "sh")
        return self.target.kubectl(*command, *values, statement, seconds=30).strip()


@pytest.fixture
def place(cluster: Target, namespace: str) -> Namespace:
    return Namespace(cluster, namespace)


def test_on_a_cluster(place: Namespace) -> None:
    place.apply(
        "PostgreSQLCluster",
        "shop",
        {
            "instances": 1,
            "deletionPolicy": "Delete",
            "storage": {"size": "512Mi"},
            "resources": {"requests": {"cpu": "50m", "memory": "128Mi"}, "limits": {"memory": "512Mi"}},
            "postgresql": {"parameters": {"shared_buffers": "32MB", "max_connections": "40"}},
        },
    )
    place.apply("Database", "orders", {"clusterRef": {"name": "shop"}, "deletionPolicy": "Delete"})
    place.kubectl("create", "secret", "generic", "chosen", "--from-literal=word=chosen by hand")
    grants = [{"database": "orders", "privileges": ["CONNECT"]}]
    # As in the first description of this kind: a label says where, a Secret which password.
    spec = {"user": "clerk", "password": {"name": "chosen", "key": "word"}, "grants": grants}
    place.apply("DatabaseUser", "clerk", spec, target="shop")
    place.apply("DatabaseUser", "report", {"clusterRef": {"name": "shop"}, "user": "report", "grants": grants})

    place.shows("db", "orders", "Ready")
    for user in ("clerk", "report"):
        place.shows("dbu", user, "True", "ProvisionSucceeded")
        assert place.log_in("shop-0-0", f"{user}-user", "SELECT current_user") == user
    assert place.entries("clerk-user")["password"] == "chosen by hand"
    assert place.log_in("shop-0-0", "orders-app", "CREATE TABLE t (n INT); SELECT current_user").endswith("orders")
    with pytest.raises(CommandFailed, match="permission denied"):
        place.log_in("shop-0-0", "clerk-user", "SELECT * FROM t")

    administrator = ("exec", "shop-0-0", "--container=server", "--", "psql", "-XAtqd", "postgres", "-c")
    for kind, name, left in (
        ("dbu", "report", "SELECT count(*) FROM pg_roles WHERE rolname = 'report'"),
        ("dbu", "clerk", "SELECT count(*) FROM pg_roles WHERE rolname = 'clerk'"),
        ("db", "orders", "SELECT count(*) FROM pg_database WHERE datname = 'orders'"),
    ):
        place.kubectl("delete", kind, name, "--timeout=60s", seconds=70)
        scope = f"--namespace={place.name}"
        assert place.target.kubectl(administrator[0], scope, *administrator[1:], left).strip() == "0"


def test_on_any_server(place: Namespace, database: DatabaseUnderTest, engine: str) -> None:
    database.apply()
    database.wait_ready()
    entries = database.secret("admin")
    right = entries["password"]
    username = {"postgresql": "postgres", "mysql": "steersman_admin"}[engine]
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
    place.shows("dbu", "clerk", "False", "ProvisionFailed", f'the server rejected the administrator "{username}"')

    place.set_password("root", right)
    place.shows("db", "shop", "Ready")
    place.shows("dbu", "clerk", "True", "ProvisionSucceeded")
    assert place.log_in(database.pod, "clerk-user", "SELECT 1", engine) == "1"
    kept = place.entries("clerk-user")

    place.kubectl("delete", "dbu", "clerk", "--timeout=60s", seconds=70)
    catalog = {"postgresql": "pg_roles WHERE rolname", "mysql": "mysql.user WHERE user"}[engine]
    assert database.admin_sql(f"SELECT count(*) FROM {catalog} = '{kept['user']}'") == "0"
    place.kubectl("delete", "db", "shop", "--timeout=60s", seconds=70)
    catalog = {"postgresql": "pg_database WHERE datname", "mysql": "information_schema.schemata WHERE schema_name"}
    assert database.admin_sql(f"SELECT count(*) FROM {catalog[engine]} = 'shop'") == "0"
