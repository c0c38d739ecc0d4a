"""Slow statements in the logs of both engines."""

from __future__ import annotations

import pytest

from steersman_databases.engines.postgresql.config.logging import LINE_PREFIX
from steersman_databases.kubectl.slow_log import MySQLSlowLog, PostgreSQLSlowLog, SlowLog

POSTGRESQL = """\
2030-01-01 10:00:00.001 UTC [71] sqlstate=00000 queryid=0 user= db= app= LOG:  checkpoint starting: time
2030-01-01 10:00:01.250 UTC [99] sqlstate=00000 queryid=-77 user=app db=shop app=web  one LOG:  duration: 1250.300 ms  statement: SELECT *
\tFROM orders
\t WHERE note = 'LOG:  duration: 1.0 ms  statement: x'
2030-01-01 10:00:02.000 UTC [99] sqlstate=42P01 queryid=0 user=app db=shop app=web ERROR:  relation "x" does not exist
2030-01-01 10:00:02.000 UTC [99] sqlstate=42P01 queryid=0 user=app db=shop app=web STATEMENT:  SELECT 1
\tFROM x
2030-01-01 10:00:03.000 UTC [98] sqlstate=00000 queryid=5 user=app db=shop app= LOG:  duration: 900.000 ms  execute <unnamed>: SELECT $1
2030-01-01 10:00:04.000 UTC [98] sqlstate=00000 queryid=5 user=app db=shop app= LOG:  duration: 0.100 ms
"""  # noqa: E501
MYSQL = """\
2030-01-01T10:00:00.000000Z 0 [System] [MY-010931] [Server] ready for connections
/usr/sbin/mysqld, Version: 9.7.4 (Debian). started with:
Tcp port: 3306  Unix socket: /run/steersman/mysqld.sock
Time                 Id Command    Argument
# Time: 2030-01-01T10:00:01.208457Z
# User@Host: app[app] @  [10.1.1.1]  Id:     9
# Query_time: 0.700761  Lock_time: 0.000000 Rows_sent: 1  Rows_examined: 1 Thread_id: 9 Errno: 0 Killed: 0
use shop;
SET timestamp=1796023697;
SELECT sleep(0.7),
2030-01-01T10:00:01.300000Z 12 [Warning] [MY-013360] [Server] between
 'two lines';
wait: it is online
# Time: 2030-01-01T10:00:02.000000Z
# User@Host: root[root] @ localhost []  Id:    10
# Query_time: 12.000000  Lock_time: 0.000000 Rows_sent: 1  Rows_examined: 1
SET timestamp=1796023699;
DO sleep(12);
# Time: 2030-01-01T10:00:03.000000Z
"""


def read(parser: SlowLog, text: str) -> list[str]:
    found = [str(each) for line in text.splitlines() for each in parser.feed(line)]
    return found + [str(each) for each in parser.finish()]


def test_postgresql_statements_are_one_line_each() -> None:
    text = "SELECT * FROM orders WHERE note = 'LOG: duration: 1.0 ms statement: x'"
    assert read(PostgreSQLSlowLog(), POSTGRESQL) == [
        f"2030-01-01 10:00:01.250 UTC  1250.3 ms  user=app db=shop app=web  one queryid=-77  {text}",
        "2030-01-01 10:00:03.000 UTC  900.0 ms  user=app db=shop queryid=5  SELECT $1",
    ]


def test_mysql_statements_are_one_line_each() -> None:
    assert read(MySQLSlowLog(), MYSQL) == [
        "2030-01-01T10:00:01.208457Z  700.8 ms  user=app db=shop  SELECT sleep(0.7), 'two lines'",
        "2030-01-01T10:00:02.000000Z  12000.0 ms  user=root db=shop  DO sleep(12)",
    ]


def test_postgresql_last_statement_is_complete_at_the_end() -> None:
    (text,) = [line for line in POSTGRESQL.splitlines() if "execute" in line]
    assert read(PostgreSQLSlowLog(), text) == [
        "2030-01-01 10:00:03.000 UTC  900.0 ms  user=app db=shop queryid=5  SELECT $1"
    ]


@pytest.mark.parametrize("parser", [PostgreSQLSlowLog, MySQLSlowLog])
def test_statement_shows_no_control_characters(parser: type[SlowLog]) -> None:
    text = (POSTGRESQL if parser is PostgreSQLSlowLog else MYSQL).replace("SELECT", "SELECT \x1b[31m")
    assert "\x1b" not in "".join(read(parser(), text))


@pytest.mark.parametrize("parser", [PostgreSQLSlowLog, MySQLSlowLog])
def test_statement_of_many_lines_is_bounded(parser: type[SlowLog]) -> None:
    first, end = (POSTGRESQL.splitlines()[1], "") if parser is PostgreSQLSlowLog else (MYSQL.rpartition("DO")[0], ";")
    text = "\n".join([first, *["\tx"] * 5000, end])
    (found,) = read(parser(), text)[-1:]
    assert found.count("x") < 1100


@pytest.mark.parametrize("parser", [PostgreSQLSlowLog, MySQLSlowLog])
def test_other_lines_are_left_out(parser: type[SlowLog]) -> None:
    assert read(parser(), "\t\n# \nuse x;\nSET timestamp=1;\nSELECT 1;\n# User@Host: a[a] @ b\n") == []


def test_prefix_of_servers_is_the_parsed_one() -> None:
    values = {
        "%m": "2030-01-01 10:00:00.000 UTC",
        "%p": "7",
        "%e": "00000",
        "%Q": "5",
        "%u": "a",
        "%d": "b",
        "%a": "c",
    }
    prefix = LINE_PREFIX
    for name, value in values.items():
        prefix = prefix.replace(name, value)
    (found,) = read(PostgreSQLSlowLog(), f"{prefix}LOG:  duration: 1.000 ms  statement: SELECT 1")
    assert found == "2030-01-01 10:00:00.000 UTC  1.0 ms  user=a db=b app=c queryid=5  SELECT 1"
