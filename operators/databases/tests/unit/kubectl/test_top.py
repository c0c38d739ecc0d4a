"""``kubectl steersman top``: rates of two samples, its tables, and its failures."""

from __future__ import annotations

import subprocess
from typing import Any

import msgspec
import pytest
from rich.console import Console

from database_support.unit.plugin import PlayedExec, call, executed, pod, reached, server
from steersman_databases.kubectl.insight.load import (
    STATEMENT_LIMIT,
    LoadSample,
    StatementCounters,
    measure,
    statement_loads,
)
from steersman_databases.kubectl.tables import plain_table
from steersman_testing import InMemoryApiServer

__all__ = ["executed", "reached", "server"]

NAMES = ("calls", "seconds", "rows")
SOURCE = '{"loaded": true, "schema": "public"}'
LONG = "SELECT\n  count(*) FROM orders"
TEXTS = msgspec.json.encode({"7": LONG, "8": "COMMIT"}).decode()
TEXT = """\
shop-1 in 4.0 s: 0.5 statements at a time, 11.0 calls/s

SESSIONS   STATE    WAIT
3          idle     Client: ClientRead
1          active

SECONDS   SESSION   USER   DATABASE   WAIT   RUNNING STATEMENT
41        9         app    shop              UPDATE orders

LOAD   CALLS/S   MS/CALL   ROWS/CALL   READ/S      HIT %   TEMP/S   USER   DATABASE   STATEMENT
0.50   1.0       500.0     2.0         200.0 KiB   75      16 B     app    shop       SELECT count(*) FROM orders
0.01   10.0      0.5       0.0         0 B                 0 B      app    shop       COMMIT
"""


def counted(id_: str, *totals: float, database: str = "shop") -> StatementCounters:
    return StatementCounters(id=id_, user="app", database=database, totals=totals)


def sample(at: float, *statements: Any) -> str:
    """Output of PostgreSQL."""
    found: dict[str, Any] = {
        "at": at,
        "names": [*NAMES, "blocksHit", "blocksRead", "tempBlocks"],
        "sessions": [
            {"count": 1, "state": "active", "wait": None},
            {"count": 3, "state": "idle", "wait": "Client: ClientRead"},
        ],
        "running": [
            {"session": 9, "seconds": 41.2, "user": "app", "database": "shop", "statement": "UPDATE\norders"}
        ],
        "statements": list(statements),
    }
    return msgspec.json.encode(found).decode()


BEFORE = sample(100, ["7", "app", "shop", [10, 5, 20, 500, 50, 0]], ["8", "app", "shop", [100, 1, 0, 0, 0, 0]])
AFTER = sample(104, ["7", "app", "shop", [14, 7, 28, 800, 150, 0.008]], ["8", "app", "shop", [140, 1.02, 0, 0, 0, 0]])


def test_loads_are_the_increase_between_samples() -> None:
    before = [counted("1", 10, 5, 100), counted("2", 7, 70, 7)]
    after = [counted("1", 30, 6, 140), counted("2", 7, 70, 7)]
    [load] = statement_loads(NAMES, before, after)
    assert (load.id, load.increases) == ("1", {"calls": 20, "seconds": 1, "rows": 40})


def test_loads_after_reset_count_from_zero() -> None:
    """Also where one of the counters has passed its earlier value again."""
    [load] = statement_loads(NAMES, [counted("1", 1000, 500, 10)], [counted("1", 3, 2, 30)])
    assert load.increases == {"calls": 3, "seconds": 2, "rows": 30}


def test_loads_of_unknown_statement_need_complete_sample() -> None:
    full = [counted(str(number), 1, 1, 1) for number in range(STATEMENT_LIMIT)]
    assert statement_loads(NAMES, full, [*full, counted("new", 900, 900, 900)]) == []
    [load] = statement_loads(NAMES, full[1:], [*full[1:], counted("new", 9, 9, 9)])
    assert load.increases == {"calls": 9, "seconds": 9, "rows": 9}


def test_loads_are_separate_by_database_and_sorted_by_time() -> None:
    loads = statement_loads(NAMES, [], [counted("1", 9, 1, 1), counted("1", 1, 9, 1, database="blog")])
    assert [one.database for one in loads] == ["blog", "shop"]


def test_measure_sums_all_statements_and_shows_some() -> None:
    before = LoadSample(at=100, names=NAMES, statements=())
    after = LoadSample(at=110, names=NAMES, statements=tuple(counted(str(n), n, n, n) for n in range(1, 4)))
    load = measure("shop-1", before, after, limit=2)
    assert load.totals == {"calls": 6, "seconds": 6, "rows": 6} and [one.id for one in load.statements] == ["3", "2"]
    with pytest.raises(ValueError, match="clock"):
        measure("shop-1", after, before, limit=2)


def test_top_shows_sessions_and_statements(server: InMemoryApiServer, executed: PlayedExec) -> None:
    server.load(pod("shop-0-0", "replica"), pod("shop-1-0", "primary"))
    executed.responses += [SOURCE, BEFORE, AFTER, TEXTS] * 2
    assert call("top", "shop", "--interval", "0.1").output == TEXT
    assert {executed.pod_of(command) for command in executed.commands} == {"shop-1-0"}
    shown = msgspec.json.decode(call("top", "shop", "--interval", "0.1", "-o", "json").stdout)
    assert shown["statements"][0]["increases"]["blocksRead"] == 100 and shown["intervalSeconds"] == 4


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("{}", "Add it to spec.postgresql.sharedPreloadLibraries"),
        ('{"loaded": true, "schema": null}', "kubectl steersman psql shop -- --command 'CREATE EXTENSION"),
    ],
)
def test_top_without_extension_shows_the_rest(
    server: InMemoryApiServer, executed: PlayedExec, source: str, message: str
) -> None:
    server.load(pod("shop-1-0", "primary"))
    without = [sample(at).replace('"statements":[]', '"statements":null') for at in (100, 104)]
    executed.responses += [source, *without]
    shown = call("top", "shop", "--interval", "0.1").output
    assert "ClientRead" in shown and "UPDATE orders" in shown and message in shown and "LOAD" not in shown
    assert not any("pg_stat_statements(" in part for command in executed.commands for part in command)


def test_top_watch_survives_a_failure(server: InMemoryApiServer, executed: PlayedExec) -> None:
    server.load(pod("shop-1-0", "primary"))
    restarting = subprocess.CompletedProcess((), 2, stdout="", stderr="the database system is starting up\n")
    executed.responses += [SOURCE, BEFORE, restarting, AFTER, TEXTS, KeyboardInterrupt()]
    watched = call("top", "shop", "--watch", "--interval", "0.1")
    assert watched.stdout == TEXT and watched.stderr == "error: the database system is starting up\n"
    executed.responses += [SOURCE, BEFORE, restarting]
    failed = call("top", "shop", "--interval", "0.1")
    assert failed.exit_code == 1 and failed.stderr == "error: the database system is starting up\n"


def test_top_watch_of_json_is_refused(server: InMemoryApiServer, executed: PlayedExec) -> None:
    refused = call("top", "shop", "--watch", "-o", "json")
    assert refused.exit_code == 2 and "--watch prints tables" in refused.stderr and not executed.commands


def test_narrow_terminal_shortens_only_the_last_column() -> None:
    table = plain_table(
        ("FIRST", "SECOND", "LAST"), [("a" * 10, "b" * 10, "SELECT 1\n FROM long_name")], shorten_last=True
    )
    console = Console(width=40)
    with console.capture() as capture:
        console.print(table)
    assert [line.rstrip() for line in capture.get().splitlines()] == [
        "FIRST        SECOND       LAST",
        "aaaaaaaaaa   bbbbbbbbbb   SELECT 1 FROM…",
    ]
