"""``kubectl steersman what-changed``."""

from __future__ import annotations

import json
from typing import Any

import pytest

from database_support.unit.backup_objects import backup_settings
from database_support.unit.plugin import GROUP, call, reached, server
from database_support.unit.report_jobs import EndedJobs, ended
from steersman.meta import to_builtins
from steersman_testing import InMemoryApiServer

__all__ = ["ended", "reached", "server"]
PERIOD = ("--from", "2026-03-01T12:00:00Z", "--to", "2026-03-01T13:30:00+01:00")
CHANGES: dict[str, Any] = {
    "transactions": 3,
    "first": "2026-03-01T12:01:00Z",
    "last": "2026-03-01T12:09:00Z",
    "tables": [{"database": "stock", "table": "parts", "inserted": 2, "deleted": 40}],
    "definitions": [{"time": "2026-03-01T12:09:00Z", "database": "stock", "statement": "DROP TABLE\x1b prices"}],
    "missing": 4,
    "archivedUntil": "2026-03-01T12:10:00Z",
}


def declare(server: InMemoryApiServer, **spec: Any) -> None:
    """Create a MySQLCluster."""
    cluster = {
        "apiVersion": f"{GROUP}/v1alpha1",
        "kind": "MySQLCluster",
        "metadata": {"name": "stock", "namespace": "prod"},
        "spec": {"image": "mysql:9.7", **spec},
    }
    server.load(cluster)


def test_changes_are_shown_with_what_is_missing(server: InMemoryApiServer, ended: EndedJobs) -> None:
    declare(server, backup=to_builtins(backup_settings()))
    ended.line = json.dumps({"ok": True, "changes": CHANGES})
    shown = call("what-changed", "stock", *PERIOD, "--max-size", "1Mi")
    assert shown.exit_code == 0, shown.output
    assert "Transactions: 3, from 2026-03-01T12:01:00Z to 2026-03-01T12:09:00Z" in shown.stdout
    assert "stock.parts   2          0         40" in shown.stdout
    assert "DROP TABLE\N{REPLACEMENT CHARACTER} prices" in shown.stdout
    assert "The archive lacks 4 transactions" in shown.stdout and "Later ones are not shown" in shown.stdout
    assert ended.document == {
        "format": 1,
        "engine": "mysql",
        "from": "2026-03-01T12:00:00.000000Z",
        "to": "2026-03-01T12:30:00.000000Z",
        "max_bytes": 1 << 20,
    }
    assert ended.job is not None and "stock-backup" not in ended.job.metadata.name
    assert ended.left() == 0


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("shop", *PERIOD), 1, "supported on MySQL only"),
        (("stock", *PERIOD), 1, "no spec.backup"),
        (("stock", "--from", "2026-03-01T12:00:00"), 2, "time zone"),
        (("stock", "--from", "2026-03-01T12:00:00Z", "--to", "2026-03-01T11:00:00Z"), 2, "--from is after --to"),
        (("stock", *PERIOD, "--max-size", "x"), 2, "is not a size"),
    ],
)
def test_impossible_requests_are_refused(
    server: InMemoryApiServer, arguments: tuple[str, ...], code: int, message: str
) -> None:
    declare(server)
    shown = call("what-changed", *arguments)
    assert shown.exit_code == code and message in shown.stderr


def test_failed_job_shows_its_reason(server: InMemoryApiServer, ended: EndedJobs) -> None:
    declare(server, backup=to_builtins(backup_settings()))
    ended.line = json.dumps({"ok": False, "reason": "TooMuchLog", "message": "Choose a shorter period."})
    shown = call("what-changed", "stock", *PERIOD)
    assert shown.exit_code == 1 and "TooMuchLog: Choose a shorter period." in shown.stderr
    assert ended.left() == 0
