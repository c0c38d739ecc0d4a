"""PostgreSQL 15 becomes 17 in place: refused while it serves, taken back from its very end, and then done.

What is declared on the cluster is there afterwards, and whoever comes through the pooler has waited.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from typing import Any

import pytest

from database_support.e2e.cluster import SMALL_SPEC, ClusterUnderTest, NamespaceClient, SqlClient, WriteLog, writing
from devcluster.errors import CommandFailed
from devcluster.images import UPGRADE_TO_17, tag
from steersman_databases.engines.versions import upgrade_image

HEALED_WITHIN = 30.0
ROWS = 20000
ANOTHER = "steersman.dev/postgresql-upgrade:17-other"
"""What the operator would have upgrade the data, by another name."""
SPEC = {
    **SMALL_SPEC,
    "version": "15",
    "storage": {"size": "1Gi"},
    "walStorage": {"size": "512Mi"},
    "postgresql": {"parameters": {**SMALL_SPEC["postgresql"]["parameters"], "maintenance_work_mem": "48MB"}},
    "bootstrap": {"initdb": {"database": "books", "owner": "keeper"}},
    # Whoever waits has the time that it takes on a machine where others work too.
    "pooler": {"replicas": 1, "readOnly": False, "parameters": {"query_wait_timeout": "600"}},
}
CLERK = {
    "user": "clerk",
    "database": "stock",
    "grants": [
        {"database": "stock", "privileges": ["CONNECT"]},
        {"database": "stock", "schema": "public", "privileges": ["USAGE"]},
        {"database": "stock", "schema": "public", "tables": ["*"], "privileges": ["SELECT"], "future": True},
    ],
}
OWNERS = "SELECT datname, pg_get_userbyid(datdba) FROM pg_database WHERE NOT datistemplate ORDER BY 1"
DATA = f"""
CREATE EXTENSION pgcrypto;
CREATE COLLATION german (provider = icu, locale = 'de-DE');
CREATE TYPE span AS RANGE (subtype = text, collation = german);
CREATE TABLE entry (id int PRIMARY KEY, who text COLLATE german, what text COLLATE "sv-x-icu", sum bytea, span span);
INSERT INTO entry SELECT i, 'Ö' || i, 'å' || i, digest(i::text, 'sha256'), span('Ö' || i, NULL)
FROM generate_series(1, {ROWS}) i;
CREATE INDEX entry_who ON entry (who);
CREATE INDEX entry_what ON entry (lower(what));
CREATE INDEX entry_early ON entry (id) WHERE who < 'p';
CREATE INDEX entry_is_early ON entry ((who < 'p'));
CREATE INDEX entry_span ON entry USING gist (span);
CREATE INDEX entry_summed ON entry (id) WHERE sum IS NOT NULL;
ALTER SYSTEM SET temp_buffers = '5MB';
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
# Those whose order or rows may be others by now.
DUE = {"entry_who", "entry_what", "entry_early", "entry_is_early", "entry_span"}
# pg_upgrade keeps the files of indexes by their names, and rebuilding gives them others.
FILES = "SELECT relname, relfilenode FROM pg_class WHERE relname LIKE 'entry\\_%' ORDER BY 1"
SOUND = """
CREATE EXTENSION IF NOT EXISTS amcheck;
SELECT count(bt_index_check(indexrelid, true)) FROM pg_index JOIN pg_class ON oid = indexrelid
WHERE relam = (SELECT oid FROM pg_am WHERE amname = 'btree') AND relpersistence = 'p' AND relkind = 'i';
"""
STALE = "SELECT count(*) FROM pg_collation WHERE collversion <> pg_collation_actual_version(oid)"


@pytest.fixture
def ledger(place_of_15: NamespaceClient) -> ClusterUnderTest:
    if place_of_15.target.is_devcluster:
        tag(UPGRADE_TO_17.reference, ANOTHER)
    return ClusterUnderTest(place_of_15, "ledger", dict(SPEC))


def run(ledger: ClusterUnderTest, statements: str) -> str:
    """What the last of some statements says; each is a transaction of its own."""
    one_by_one = [word for one in statements.strip().split(";\n") for word in ("-c", one)]
    command = ("psql", "-XAtq", "-v", "ON_ERROR_STOP=1", "-U", "postgres", *one_by_one)
    return ledger.execute(ledger.primary, *command, seconds=60).strip()


def says(ledger: ClusterUnderTest, what: str = "UpToDate") -> tuple[str, str]:
    """Reason and message of a condition."""
    found = ledger.namespace_client.condition(ledger.kind, ledger.name, what)
    return found.get("reason", ""), found.get("message", "")


def accepts(ledger: ClusterUnderTest, version: str) -> bool:
    """Whether the primary takes connections, with this version."""
    right = str(ledger.status.get("version")).startswith(f"{version}.")
    return right and says(ledger, "Available")[0] == "PrimaryAvailable"


def serves(ledger: ClusterUnderTest, version: str) -> bool:
    """Whether all do."""
    return accepts(ledger, version) and ledger.status.get("readyInstances") == SPEC["instances"]


def is_ready(ledger: ClusterUnderTest) -> bool:
    return ledger.status.get("phase") == "Ready"


def upgrades(ledger: ClusterUnderTest) -> str:
    """The image of the Job that upgrades the data."""
    return ledger.namespace_client.get("job", "ledger-upgrade")["spec"]["template"]["spec"]["containers"][0]["image"]


def furnish(ledger: ClusterUnderTest) -> None:
    """What somebody has on a cluster, beside what administrators do."""
    ledger.namespace_client.apply("Database", "stock", ledger.reference(deletionPolicy="Delete"))
    ledger.namespace_client.apply("DatabaseUser", "clerk", ledger.reference(**CLERK))
    ledger.namespace_client.wait_reason("database", "stock", "DatabaseReady")
    ledger.namespace_client.wait_reason("databaseuser", "clerk", "ProvisionSucceeded")
    run(ledger, DATA)


def takes_back(ledger: ClusterUnderTest) -> None:
    """What somebody sets at a server, which 17 refuses, goes where something else is declared."""
    told = f"reverted parameters that were changed by ALTER SYSTEM: maintenance_work_mem at {ledger.primary}"
    run(ledger, "ALTER SYSTEM SET maintenance_work_mem = '16MB';\nSELECT pg_reload_conf()")

    def is_back() -> bool:
        events = ledger.namespace_client.events(ledger.name, "DriftReverted")
        return told in events and run(ledger, "SHOW maintenance_work_mem") == "48MB"

    ledger.until("it is taken back, and told", is_back, HEALED_WITHIN)


def went_on(seen: WriteLog) -> None:
    """Whoever waited did so without an error."""
    seen.wait_for_writes(time.time())
    assert seen.errors == []
    assert seen.lost_rows() == 0


@pytest.mark.requirement("overview/upgrade-and-rollback", "overview/level-2-upgrades", "pattern/old-version")
@pytest.mark.timeout(1790)
def test_major_upgrade_rejected_cancelled_then_completed(
    ledger: ClusterUnderTest, record_property: Callable[[str, object], None]
) -> None:
    ledger.apply()
    ledger.until("15 serves", lambda: serves(ledger, "15"), 480)
    ledger.until("all is well", lambda: is_ready(ledger), 90)
    furnish(ledger)
    takes_back(ledger)
    keeper = SqlClient(ledger, "ledger-app", name="keeper")
    keeper.start()
    keeper.sql("CREATE TABLE book AS SELECT 'Ö' AS title")
    pods = ledger.pods()

    run(ledger, PLAIN)
    ledger.apply(version="17", upgradeImage="example.com/upgrade:none")
    ledger.until("refused", lambda: says(ledger)[0] == "PreCheckFailed", 60)
    assert "column a of public.bad in database 'postgres' is of type aclitem" in says(ledger)[1]
    assert ledger.pods() == pods, "nothing was stopped"
    chosen = ANOTHER if ledger.namespace_client.target.is_devcluster else upgrade_image("postgresql", "15", "17")
    ledger.apply(upgradeImage=chosen)

    with writing(ledger, "stock-app", f"ledger-pooler-rw.{ledger.namespace_client.namespace}.svc") as seen:
        run(ledger, f"DROP TABLE bad;\n{DISORDER}")
        ledger.until("taken back", lambda: says(ledger)[0] == "RolledBack", 480)
        assert "pg_amcheck" in says(ledger)[1] and "disordered" in says(ledger)[1], says(ledger)[1]
        assert upgrades(ledger) == chosen
        ledger.until("15 serves", lambda: serves(ledger, "15"), 180)
        assert run(ledger, "SELECT count(*) FROM entry") == str(ROWS)
        went_on(seen)
        record_property(
            "taken back: longest gap in writes through the pooler, in seconds", round(seen.longest_gap, 1)
        )

        run(ledger, "DROP INDEX disordered")
        files = dict(line.split("|") for line in run(ledger, FILES).split())
        former = {f"persistentvolumeclaim/data-{replica}" for replica in ledger.replicas}
        assert len(former) == 2
        # What is declared now is another upgrade, so that it is tried again.
        ledger.apply(upgradeImage=None)
        ledger.until("15 stops", lambda: says(ledger, "Available")[0] != "PrimaryAvailable", 120)
        assert upgrades(ledger) == upgrade_image("postgresql", "15", "17")
        ledger.until("version 17 accepts writes", lambda: accepts(ledger, "17"), 300)
        # Before the poolers are replaced, as they follow the image: their clients have a minute then.
        went_on(seen)
        record_property("upgraded: longest gap in writes through the pooler, in seconds", round(seen.longest_gap, 1))
        ledger.until("17 serves", lambda: serves(ledger, "17"), 420)
        ledger.until("all is well", lambda: is_ready(ledger), 120)
        assert says(ledger)[0] == "Current"
        seen.wait_for_writes(time.time())
        assert seen.lost_rows() == 0

    is_whole(ledger, files)
    is_as_declared(ledger, keeper)
    assert not former & ledger.namespace_client.names("pvc"), "the replicas were copied anew"
    ledger.until("they confirm commits", lambda: "ANY 1" in run(ledger, "SHOW synchronous_standby_names"), 60)
    primary = ledger.primary
    assert "removed former-15" in ledger.execute(primary, "sh", "-c", "steersman-upgrade forget 2>&1", seconds=60)
    assert "former-15" not in ledger.execute(primary, "ls", "-a", "/var/lib/steersman/data")


def is_whole(ledger: ClusterUnderTest, files: dict[str, str]) -> None:
    """What administrators made, and ``files`` of its indexes where they need not be others."""
    assert run(ledger, "SELECT count(*) FROM entry WHERE sum = digest(id::text, 'sha256')") == str(ROWS)
    assert run(ledger, "SHOW temp_buffers") == "5MB"
    assert run(ledger, "SET enable_seqscan = off;\nSELECT id FROM entry WHERE who = 'Ö7'") == "7"
    upgraded = dict(line.split("|") for line in run(ledger, FILES).split())
    rebuilt = {name for name, file in upgraded.items() if files[name] != file}
    assert rebuilt == DUE, "and no others"
    assert run(ledger, "SET enable_seqscan = off;\nSELECT count(*) FROM entry WHERE who < 'p'") == str(ROWS)
    described = ledger.namespace_client.kubectl("describe", "pg", ledger.name)
    assert re.search(r"[1-9]\d* indexes rebuilt for their collations, amcheck clean", described), described
    assert int(run(ledger, SOUND)) > 100
    assert run(ledger, STALE) == "0"
    assert run(ledger, "SELECT count(*) > 0 FROM pg_stats WHERE tablename = 'entry'") == "t"


def is_as_declared(ledger: ClusterUnderTest, keeper: SqlClient) -> None:
    """The first database, another one and a user: whose they are, what they may, and that they are followed yet."""
    assert run(ledger, OWNERS).split() == ["books|keeper", "postgres|postgres", "stock|stock"]
    assert keeper.sql("SELECT title, current_user FROM book") == "Ö|keeper"
    assert says(ledger, "BootstrapDatabaseReady")[0] == "DatabaseReady"

    clerk = SqlClient(ledger, "clerk-user", name="clerk")
    clerk.start()
    assert clerk.by_uri("SELECT current_user, count(*) > 100 FROM written") == "clerk|t"
    with pytest.raises(CommandFailed, match="permission denied"):
        clerk.sql("INSERT INTO written VALUES (-1)")

    more: tuple[tuple[str, str, dict[str, Any], str], ...] = (
        ("Database", "stock", {"deletionPolicy": "Delete", "schemas": [{"name": "later"}]}, "DatabaseReady"),
        ("DatabaseUser", "clerk", {**CLERK, "connectionLimit": 7}, "ProvisionSucceeded"),
    )
    for kind, name, spec, reason in more:
        ledger.namespace_client.apply(kind, name, ledger.reference(**spec))
        ledger.namespace_client.wait_current(kind.lower(), name, reason)
    assert ledger.sql("SELECT count(*) FROM pg_namespace WHERE nspname = 'later'", "stock") == "1"
    assert ledger.sql("SELECT rolconnlimit FROM pg_roles WHERE rolname = 'clerk'") == "7"
