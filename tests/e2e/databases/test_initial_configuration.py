"""A cluster's first database: made with its owner, configured once by SQL from a ConfigMap and a Secret."""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import Any

import yaml

from devcluster.target import Target, wait_until

NAME = "shop"
MEMBER = "databases.steersman.dev/member-of"


class Shop:
    """The ``PostgreSQLCluster`` of the test, and what is in its database."""

    def __init__(self, target: Target, namespace: str) -> None:
        self._target = target
        self._namespace = f"--namespace={namespace}"

    def apply(self, *manifests: dict[str, Any]) -> None:
        self.kubectl("apply", "--filename=-", stdin=yaml.safe_dump_all(manifests))

    def kubectl(self, *arguments: str, stdin: str = "", seconds: float = 60) -> str:
        return self._target.kubectl(*arguments, self._namespace, stdin=stdin, seconds=seconds)

    def condition(self, type_: str) -> tuple[str, str]:
        """Status and reason, and the message."""
        found: dict[str, Any] = self._target.get("postgresqlcluster", NAME, self._namespace) or {}
        conditions = found.get("status", {}).get("conditions", [])
        told = next((c for c in conditions if c["type"] == type_), {"status": "", "reason": "", "message": ""})
        return f"{told['status']}/{told['reason']}", told["message"]

    def until(self, what: str, probe: Callable[[], object], seconds: float = 120) -> None:
        wait_until(what, probe, seconds=seconds)

    def sql(self, statement: str) -> str:
        """As the owner, by what the Secret for applications says."""
        secret: dict[str, Any] = self._target.get("secret", f"{NAME}-app", self._namespace) or {}
        held = {key: base64.b64decode(value).decode() for key, value in secret["data"].items()}
        script = 'read -r PGPASSWORD; export PGPASSWORD; exec psql -h "$1" -U "$2" -d "$3" -AtXc "$4"'
        arguments = (held["host"], held["user"], held["dbname"], statement)
        pod = ("exec", "-i", f"{NAME}-0-0", "--", "env", "PGSSLMODE=require", "sh", "-c", script, "sh", *arguments)
        return self._target.kubectl(*pod[:3], self._namespace, *pod[3:], stdin=held["password"] + "\n").strip()


def manifest(kind: str, name: str, **fields: Any) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": kind, "metadata": {"name": name}, **fields}


CLUSTER: dict[str, Any] = {
    "apiVersion": "databases.steersman.dev/v1alpha1",
    "kind": "PostgreSQLCluster",
    "metadata": {"name": NAME},
    "spec": {
        "instances": 1,
        "deletionPolicy": "Delete",
        "storage": {"size": "512Mi"},
        "resources": {"requests": {"cpu": "50m", "memory": "128Mi"}, "limits": {"memory": "512Mi"}},
        "postgresql": {"parameters": {"shared_buffers": "32MB", "max_connections": "40"}},
        "bootstrap": {
            "initdb": {
                "database": "shop",
                "owner": "keeper",
                "postInitApplicationSQLRefs": {
                    "secretRefs": [{"name": "seed", "key": "seed.sql"}],
                    "configMapRefs": [{"name": "tables", "key": "tables.sql"}],
                },
            }
        },
    },
}
SEED = manifest("Secret", "seed", stringData={"seed.sql": "CREATE TABLE keys AS SELECT 'hunter2'::text AS value;"})
BROKEN = manifest("ConfigMap", "tables", data={"tables.sql": "CREATE TABLE visits (n int);\nINSERT INTO nowhere;"})
MENDED = manifest("ConfigMap", "tables", data={"tables.sql": "CREATE TABLE visits (n int);"})


def test_the_first_database_is_configured_once(cluster: Target, namespace: str) -> None:
    shop = Shop(cluster, namespace)
    shop.apply(SEED, CLUSTER)
    shop.until("it waits", lambda: shop.condition("InitialConfiguration")[0] == "Unknown/Waiting", 240)
    assert "there is no ConfigMap tables" in shop.condition("InitialConfiguration")[1]
    assert shop.condition("InitialDatabase")[0] == "True/DatabaseReady"

    shop.apply(BROKEN)
    shop.until("it is refused", lambda: shop.condition("InitialConfiguration")[0] == "False/Failed")
    status, message = shop.condition("InitialConfiguration")
    assert "psql:configmap/tables/tables.sql:2: ERROR:" in message, (status, message)
    assert shop.condition("Ready")[0] == "False/Degraded"
    assert "hunter2" not in shop.kubectl("get", "jobs,pods", "--output=yaml")
    labels = shop.kubectl(
        "get", "pods", "--selector=batch.kubernetes.io/job-name", "--output=jsonpath={.items[*].metadata.labels}"
    )
    assert labels, "the pod that failed can be looked at"
    assert MEMBER not in labels, "Patroni would take it for a member"
    assert shop.sql("SELECT count(*) FROM pg_tables WHERE tablename IN ('keys', 'visits')") == "0", "all or nothing"

    shop.apply(MENDED)
    shop.until("it is applied", lambda: shop.condition("InitialConfiguration")[0] == "True/Applied")
    shop.until("it is ready", lambda: shop.condition("Ready")[0] == "True/ClusterReady")
    assert shop.sql("SELECT value FROM keys") == "hunter2"
    assert shop.sql("SELECT count(*) FROM pg_roles WHERE rolname = 'keeper' AND NOT rolsuper") == "1"

    shop.sql("INSERT INTO visits VALUES (1)")
    shop.kubectl("delete", "job", f"{NAME}-init", "--ignore-not-found")
    shop.kubectl("patch", "pg", NAME, "--subresource=status", "--type=merge", '--patch={"status":{"conditions":[]}}')
    shop.apply(BROKEN)
    shop.until("told again", lambda: shop.condition("InitialConfiguration")[0] == "True/Applied")
    assert shop.kubectl("get", "jobs", "--output=name") == ""
    assert shop.sql("SELECT n FROM visits") == "1"
