"""``kubectl steersman why``: its text from recorded responses, and its failures."""

from __future__ import annotations

import subprocess
from typing import Any

import pytest

from database_support.unit.plugin import PlayedExec, call, executed, pod, reached, server
from steersman_databases.kubectl.insight.diagnosis import LockedSession, blocking_tree, lines, parse
from steersman_testing import InMemoryApiServer

__all__ = ["executed", "reached", "server"]

RECORDED = """
{"sessions" : [{"id" : 41, "user" : "app", "database" : "shop", "application" : "till", "state" : "active",
  "statement" : "UPDATE entry\\n  SET coin = 2", "transactionSeconds" : 12, "blockedBy" : [40]},
  {"id" : 40, "user" : "app", "database" : "shop", "application" : "", "state" : "idle in transaction",
  "statement" : "LOCK TABLE entry", "transactionSeconds" : 300, "blockedBy" : []}],
 "horizon" : [{"kind":"standby","name":"shop-1","amount":7,"detail":"streaming"},
  {"kind":"session","name":"40","amount":90,"detail":"app shop idle in transaction"}],
 "logs" : [{"kind":"replication slot","name":"shop_1","amount":16777216,"detail":"active reserved"}]}
"""
TEXT = """\
Locks
  session 40 (app/shop) idle in transaction, transaction of 300 s: LOCK TABLE entry
    session 41 (app/shop/till) active, transaction of 12 s, waits for 40: UPDATE entry SET coin = 2
Deleted rows are kept by
  session 40: 90 transactions  (app shop idle in transaction)
  standby shop-1: 7 transactions  (streaming)
Logs are kept by
  replication slot shop_1: 16777216 bytes  (active reserved)
"""
NOTHING = """\
Locks: no session waits for another
Deleted rows are kept by: nothing
Logs are kept by: nothing
"""


def session(number: int, *blocked_by: int) -> LockedSession:
    return LockedSession(id=number, blocked_by=blocked_by)


def test_why_shows_locks_and_holders(server: InMemoryApiServer, executed: PlayedExec) -> None:
    server.load(pod("shop-0-0", "replica"), pod("shop-1-0", "primary"))
    executed.responses += [RECORDED, RECORDED, "{}"]
    assert call("why", "shop").output == TEXT
    [command] = executed.commands
    assert executed.pod_of(command) == "shop-1-0" and command[command.index("--") + 1] == "psql"
    assert '"blockedBy": [' in call("why", "shop", "-o", "json").output
    assert call("why", "shop", "--instance", "shop-0").output == NOTHING


@pytest.mark.parametrize(
    ("failure", "message"),
    [
        (FileNotFoundError(), "kubectl is not in PATH"),
        (subprocess.CompletedProcess((), 1, stderr="pods is forbidden\n"), "pods is forbidden"),
        (subprocess.TimeoutExpired("kubectl", 30), "shop-1 did not respond in 30 s"),
        ("psql: warning", "the response of the server is not understood"),
    ],
)
def test_why_reports_failure_with_exit_code(
    server: InMemoryApiServer, executed: PlayedExec, failure: Any, message: str
) -> None:
    server.load(pod("shop-1-0", "primary"))
    executed.responses.append(failure)
    told = call("why", "shop")
    assert told.exit_code == 1 and told.stderr.startswith(f"error: {message}") and not told.stdout


def test_why_replaces_control_characters_of_clients(server: InMemoryApiServer, executed: PlayedExec) -> None:
    server.load(pod("shop-1-0", "primary"))
    executed.responses.append('{"sessions": [{"id": 1, "application": "\\u001b]0;owned\\u0007"}]}')
    assert "(\ufffd]0;owned\ufffd)" in call("why", "shop").output


def test_blocking_tree_shows_each_session_once() -> None:
    """Also in a cycle, behind two blockers, and where a blocker is not listed."""
    chain = [session(1), session(2, 1), session(3, 2, 1), session(4, 0)]
    assert [(depth, one.id) for depth, one in blocking_tree(chain)] == [(0, 1), (1, 2), (2, 3), (0, 4)]
    cycle = [session(7, 8), session(8, 7)]
    assert [(depth, one.id) for depth, one in blocking_tree(cycle)] == [(0, 7), (1, 8)]


def test_empty_diagnosis_says_so() -> None:
    assert list(lines(parse("{}"), horizon_unit="seconds", log_unit="seconds")) == NOTHING.splitlines()
