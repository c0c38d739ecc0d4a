"""``kubectl steersman import check``."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from database_support.unit.plugin import GROUP, call, reached, server
from database_support.unit.report_jobs import EndedJobs, ended
from steersman.client import Client
from steersman.meta import ObjectKey, decode_builtins
from steersman_databases.api import Database, DatabaseUser
from steersman_databases.features.dump.import_check import (
    FoundAccount,
    check_job,
    check_plan,
)
from steersman_databases.kubectl.imports.import_check import CheckOutcome
from steersman_databases.kubectl.imports.user_manifests import skipped_accounts, user_manifests
from steersman_databases.kubectl.report_job import read_outcome
from steersman_testing import InMemoryApiServer

__all__ = ["ended", "reached", "server"]

SOURCE: dict[str, Any] = {"host": "old.example.com", "credentials": {"name": "reader"}}
REPORT: dict[str, Any] = {
    "source": {"version": "PostgreSQL 16.4", "sizeBytes": 3 << 30},
    "target": {"version": "PostgreSQL 17.5"},
    "problems": [
        {"reason": "RightsMissing", "message": "User reader cannot read 2 tables.", "count": 3, "names": ["a", "b"]}
    ],
    "leftOut": [{"kind": "event triggers", "count": 1, "names": ["watch"]}],
    "notes": ["The owner of the source is clerk"],
    "accounts": [
        {
            "name": "auditor",
            "connectionLimit": 3,
            "roles": [{"name": "audits", "admin": False}],
            "grants": [
                {
                    "kind": "table",
                    "schema": "shop",
                    "objects": ["orders"],
                    "columns": ["note"],
                    "privileges": ["UPDATE"],
                    "option": False,
                }
            ],
            "omittedGrants": 0,
        }
    ],
}


def manifest(tmp_path: Path, **spec: Any) -> str:
    """Write the manifest of a Database with an import."""
    declared = {
        "apiVersion": f"{GROUP}/v1alpha1",
        "kind": "Database",
        "metadata": {"name": "orders"},
        "spec": {"engine": "postgresql", "version": "17", "bootstrap": {"import": SOURCE}, **spec},
    }
    path = tmp_path / "orders.yaml"
    path.write_text(yaml.safe_dump(declared))
    return str(path)


@pytest.fixture(autouse=True)
def report(ended: EndedJobs) -> None:
    """The report of each check."""
    ended.line = json.dumps({"ok": True, "check": REPORT})


def test_check_prints_problems_and_leaves_nothing(
    server: InMemoryApiServer, ended: EndedJobs, tmp_path: Path
) -> None:
    shown = call("import", "check", "-f", manifest(tmp_path, extensions=[{"name": "dblink"}]))
    assert shown.exit_code == 1, shown.output
    assert "PostgreSQL 16.4, database orders of old.example.com, 3.0 GiB" in shown.stdout
    assert "RightsMissing: User reader cannot read 2 tables.\n    a\n    b\n    and 1 more" in shown.stdout
    assert "event triggers (1): watch" in shown.stdout
    assert ended.document["declared"] == {
        "extensions": [{"name": "dblink"}],
        "storage_engines": "InnoDB",
        "storage_bytes": 1 << 30,
    }
    assert ended.document["source"]["host"] == "old.example.com" and "server" not in ended.document
    assert ended.left() == 0


def test_check_prints_user_manifests_alone(server: InMemoryApiServer, ended: EndedJobs, tmp_path: Path) -> None:
    shown = call("import", "check", "-f", manifest(tmp_path), "--users")
    assert "RightsMissing" in shown.stderr
    (found,) = yaml.safe_load_all(shown.stdout)
    assert found["metadata"] == {"name": "orders-auditor", "namespace": "prod"}
    assert found["spec"] == {
        "user": "auditor",
        "clusterRef": {"name": "orders"},
        "adopt": True,
        "connectionLimit": 3,
        "roles": [{"name": "audits"}],
        "grants": [
            {
                "database": "orders",
                "schema": "shop",
                "tables": ["orders"],
                "columns": ["note"],
                "privileges": ["UPDATE"],
            }
        ],
    }
    asyncio.run(Client(server).create(decode_builtins(found, DatabaseUser)))


def test_check_of_existing_database_uses_its_spec(
    server: InMemoryApiServer, ended: EndedJobs, tmp_path: Path
) -> None:
    server.load(
        yaml.safe_load(Path(manifest(tmp_path)).read_text()) | {"metadata": {"name": "o", "namespace": "prod"}}
    )
    assert json.loads(call("import", "check", "o", "-o", "json").stdout)["leftOut"][0]["names"] == ["watch"]


def test_failed_check_shows_its_reason(ended: EndedJobs, tmp_path: Path) -> None:
    ended.line = json.dumps({"ok": False, "reason": "SourceUnreachable", "message": "Check host and port."})
    shown = call("import", "check", "-f", manifest(tmp_path))
    assert shown.exit_code == 1 and "error: SourceUnreachable: Check host and port." in shown.stderr


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "is not YAML"),
        ("a: 1", "must have one Database, and has 0"),
        ("kind: Database\nmetadata: {name: a}\nspec: {engine: mysql}", "no spec.bootstrap.import"),
        ("kind: Database\nspec: {engine: [1]}", "malformed"),
        ("kind: Database\nspec: {engine: oracle}", "Invalid enum value 'oracle'"),
    ],
)
def test_check_refuses_other_manifests(server: InMemoryApiServer, tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "a.yaml").write_text(text)
    shown = call("import", "check", "-f", str(tmp_path / "a.yaml"))
    assert shown.exit_code == 2 and message in shown.stderr


def test_check_of_unknown_version_names_the_versions(server: InMemoryApiServer, tmp_path: Path) -> None:
    shown = call("import", "check", "-f", manifest(tmp_path, version="9"))
    assert shown.exit_code == 2 and "15" in shown.stderr


def database(**spec: Any) -> Database:
    """Return a Database with an import."""
    declared = {"bootstrap": {"import": SOURCE}, **spec}
    return decode_builtins({"metadata": {"name": "shop", "namespace": "prod"}, "spec": declared}, Database)


SERVER: dict[str, Any] = {"host": "new.example.com", "administrator": {"name": "admin"}}


def test_job_of_a_check_only_mounts_secrets() -> None:
    declared = database(engine="postgresql", serverRef=SERVER)
    job = check_job(declared, check_plan(declared, ObjectKey("prod", "c")))
    text = str(job)
    assert "env" not in {name for name in ("env", "env_from") if f"{name}=[" in text}
    assert all(name in text for name in ("/etc/steersman/import", "/etc/steersman/server", "reader", "admin"))
    document = check_plan(declared, ObjectKey("prod", "c")).document
    assert document["server"] == {
        "host": "new.example.com",
        "port": 5432,
        "database": "postgres",
        "tls": "VerifyFull",
        "administrator": "",
    }


def account(name: str, **fields: Any) -> FoundAccount:
    return decode_builtins({"name": name, **fields}, FoundAccount)


def test_manifests_name_what_they_leave_out() -> None:
    grants = [{"kind": "database", "objects": [""], "privileges": ["SELECT", "FILE"]}]
    found = [
        account("auditor", host="10.%", grants=grants, omittedGrants=2),
        account("auditor", host="localhost"),
        account("shop"),
        account("a\nb"),
    ]
    declared = database(engine="mysql", version="9.7")
    ((manifest, notes),) = user_manifests(declared, found)
    assert manifest["spec"]["clusterRef"] == {"name": "shop", "kind": "MySQLCluster"}
    assert manifest["spec"]["grants"] == [{"database": "shop", "privileges": ["SELECT"]}]
    assert manifest["spec"]["undeclaredGrants"] == "Keep"
    assert len(notes) == 3 and "FILE" in notes[0] and "2 more grants" in notes[1] and "10.%" in notes[2]
    assert skipped_accounts(found) == ["auditor@localhost", "'a\\nb'"]


def test_names_of_manifests_differ_for_similar_users() -> None:
    names = [
        each["metadata"]["name"]
        for each, _ in user_manifests(database(engine="postgresql"), map(account, ("a-b", "a_b", "A-B", "x" * 63)))
    ]
    assert names[0] == "shop-a-b"
    assert len(set(names)) == 4 and all(len(name) <= 57 for name in names)


def test_malformed_report_is_no_report() -> None:
    assert read_outcome("[]", CheckOutcome) is None
    assert read_outcome('{"ok": true, "check": {"source": 1}}', CheckOutcome) is None
    assert read_outcome('{"ok": false}', CheckOutcome) == CheckOutcome(ok=False)
