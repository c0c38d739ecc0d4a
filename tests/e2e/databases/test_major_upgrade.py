"""PostgreSQL 15 becomes 17 in place: refused while it serves, taken back from its very end, and then done."""

from __future__ import annotations

import re

import pytest
import yaml

from devcluster.images import POSTGRESQL_15, UPGRADE_15_17, ensure, load
from devcluster.progress import Progress
from devcluster.target import Target, wait_until

NAME = "ledger"
ROWS = 20000
DATA = f"""
CREATE EXTENSION pgcrypto;
CREATE COLLATION german (provider = icu, locale = 'de-DE');
CREATE TABLE entry (id int PRIMARY KEY, who text COLLATE german, what text COLLATE "sv-x-icu", sum bytea);
INSERT INTO entry SELECT i, 'Ö' || i, 'å' || i, digest(i::text, 'sha256') FROM generate_series(1, {ROWS}) i;
CREATE INDEX entry_who ON entry (who);
CREATE INDEX entry_what ON entry (lower(what));
ALTER SYSTEM SET work_mem = '5MB';
"""
# What pg_upgrade refuses, and the operator finds while all serve.
PLAIN = "CREATE TABLE bad (a aclitem)"
# What only amcheck finds, when all else is done: an index in another order than its operator class says by now.
DISORDER = """
CREATE FUNCTION compared(int, int) RETURNS int LANGUAGE sql IMMUTABLE AS 'SELECT pg_catalog.btint4cmp($1, $2)';
CREATE OPERATOR CLASS disorder FOR TYPE int USING btree AS OPERATOR 1 <, OPERATOR 2 <=, OPERATOR 3 =,
  OPERATOR 4 >=, OPERATOR 5 >, FUNCTION 1 compared(int, int);
CREATE INDEX disordered ON entry (id disorder);
CREATE OR REPLACE FUNCTION compared(int, int) RETURNS int LANGUAGE sql IMMUTABLE
  AS 'SELECT pg_catalog.btint4cmp($2, $1)'
"""
# pg_upgrade keeps the files of indexes by their names, and rebuilding gives them others.
FILES = "SELECT relname, relfilenode FROM pg_class WHERE relname LIKE 'entry\\_%' ORDER BY 1"
SOUND = """
CREATE EXTENSION IF NOT EXISTS amcheck;
SELECT count(bt_index_check(indexrelid, true)) FROM pg_index JOIN pg_class ON oid = indexrelid
WHERE relam = (SELECT oid FROM pg_am WHERE amname = 'btree') AND relpersistence = 'p' AND relkind = 'i';
"""
STALE = "SELECT count(*) FROM pg_collation WHERE collversion <> pg_collation_actual_version(oid)"


class Ledger:
    """The cluster of the test."""

    def __init__(self, target: Target, namespace: str) -> None:
        self._target = target
        self._namespace = namespace

    def apply(self) -> None:
        manifest = {
            "apiVersion": "databases.steersman.dev/v1alpha1",
            "kind": "PostgreSQLCluster",
            "metadata": {"name": NAME, "namespace": self._namespace},
            "spec": {
                "version": "15",
                "instances": 2,
                "deletionPolicy": "Delete",
                "storage": {"size": "1Gi"},
                "walStorage": {"size": "512Mi"},
                "resources": {"requests": {"cpu": "50m", "memory": "128Mi"}, "limits": {"memory": "512Mi"}},
                "postgresql": {"parameters": {"shared_buffers": "32MB", "max_connections": "40"}},
            },
        }
        self._target.apply(yaml.safe_dump(manifest))

    def kubectl(self, *arguments: str, seconds: float = 60) -> str:
        return self._target.kubectl(f"--namespace={self._namespace}", *arguments, seconds=seconds)

    def change(self, spec: str) -> None:
        self.kubectl("patch", "pg", NAME, "--type=merge", f'--patch={{"spec": {spec}}}')

    @property
    def status(self) -> dict[str, object]:
        found = self._target.get("pg", NAME, f"--namespace={self._namespace}") or {}
        return found.get("status", {})

    def says(self, type_: str = "Upgraded") -> tuple[str, str]:
        """Reason and message of a condition."""
        conditions: list[dict[str, str]] = self.status.get("conditions", [])  # type: ignore[assignment]
        return next(((c["reason"], c["message"]) for c in conditions if c["type"] == type_), ("", ""))

    def serves(self, version: str) -> bool:
        """Whether all take connections, the primary with this version."""
        status = self.status
        right = str(status.get("version")).startswith(f"{version}.")
        return right and status.get("readyInstances") == 2 and self.says("Available")[0] == "PrimaryAccepts"

    def run(self, *command: str, seconds: float = 60) -> str:
        return self.kubectl("exec", f"{self.status['primary']}-0", "--", *command, seconds=seconds)

    def sql(self, statements: str) -> str:
        """What the last of some statements says; each is a transaction of its own."""
        one_by_one = [word for one in statements.strip().split(";\n") for word in ("-c", one)]
        return self.run("psql", "-XAtq", "-v", "ON_ERROR_STOP=1", "-U", "postgres", *one_by_one).strip()

    def pods(self) -> str:
        selector = "--selector=app.kubernetes.io/name=postgresql"
        return self.kubectl("get", "pods", "--output=jsonpath={.items[*].metadata.uid}", selector)


@pytest.fixture
def ledger(cluster: Target, namespace: str) -> Ledger:
    if cluster.is_devcluster:
        for recipe in (POSTGRESQL_15, UPGRADE_15_17):
            load(ensure(recipe, Progress()))
    return Ledger(cluster, namespace)


@pytest.mark.timeout(1500)
def test_refused_then_taken_back_then_upgraded(ledger: Ledger) -> None:
    ledger.apply()
    wait_until("15 serves", lambda: ledger.serves("15"), seconds=480)
    wait_until("all is well", lambda: ledger.status.get("phase") == "Ready", seconds=60)
    ledger.sql(DATA)
    pods = ledger.pods()

    ledger.sql(PLAIN)
    ledger.change('{"version": "17"}')
    wait_until("refused", lambda: ledger.says()[0] == "PreCheckFailed", seconds=60)
    assert "column a of public.bad in database 'postgres' is of type aclitem" in ledger.says()[1]
    assert ledger.pods() == pods, "nothing was stopped"

    ledger.sql(f"DROP TABLE bad;\n{DISORDER}")
    wait_until("taken back", lambda: ledger.says()[0] == "RolledBack", seconds=480)
    assert "pg_amcheck" in ledger.says()[1] and "disordered" in ledger.says()[1], ledger.says()[1]
    wait_until("15 serves", lambda: ledger.serves("15"), seconds=120)
    assert ledger.sql("SELECT count(*) FROM entry") == str(ROWS)

    ledger.sql("DROP INDEX disordered")
    files = dict(line.split("|") for line in ledger.sql(FILES).split())
    ledger.kubectl("delete", "job", f"{NAME}-upgrade")
    wait_until("17 serves", lambda: ledger.says("Available")[0] != "PrimaryAccepts", seconds=120, every=1)
    wait_until("17 serves", lambda: ledger.serves("17"), seconds=300)
    wait_until("all is well", lambda: ledger.status.get("phase") == "Ready", seconds=120)
    assert ledger.says()[0] == "Current"
    assert ledger.sql("SELECT count(*) FROM entry WHERE sum = digest(id::text, 'sha256')") == str(ROWS)
    assert ledger.sql("SHOW work_mem") == "5MB"
    assert ledger.sql("SET enable_seqscan = off;\nSELECT id FROM entry WHERE who = 'Ö7'") == "7"
    upgraded = dict(line.split("|") for line in ledger.sql(FILES).split())
    rebuilt = {name for name, file in upgraded.items() if files[name] != file}
    assert rebuilt == {"entry_who", "entry_what"}, "those whose order may be another, and no others"
    told = ledger.kubectl("describe", "pg", NAME)
    assert re.search(r"[1-9]\d* indexes rebuilt for their collations, amcheck clean", told), told
    assert int(ledger.sql(SOUND)) > 100
    assert ledger.sql(STALE) == "0"
    assert float(ledger.sql("SELECT reltuples FROM pg_class WHERE relname = 'entry'")) == ROWS
    claims = ledger.kubectl("get", "pvc", "--output=name").split()
    assert f"persistentvolumeclaim/data-{NAME}-1" not in claims, "the replica was copied anew"
    assert "removed former-15" in ledger.run("sh", "-c", "steersman-upgrade forget 2>&1")
    assert "former-15" not in ledger.run("ls", "-a", "/var/lib/steersman/data")
