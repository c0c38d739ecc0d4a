"""Text of user queries, and what the exporter makes of it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from steersman_databases.engines.connection.input_limits import MAX_QUERIES, MAX_QUERIES_CHARACTERS
from steersman_databases.features.monitoring.queries import (
    ParsedQueries,
    exporter_file,
    merge_queries,
    parse_queries,
)
from steersman_instance.metrics.catalog import CollectFailed, Metric, SessionLost
from steersman_instance.metrics.exporter import mysql_exporter, postgresql_exporter
from steersman_instance.metrics.user_queries import (
    ROW_LIMIT,
    DatabaseSessions,
    PostgreSQLUserQuery,
    UserQuery,
    load_queries,
)
from steersman_instance.paths import InstancePaths

ORDERS = """
orders:
  query: SELECT state, count(*) AS waiting FROM orders GROUP BY state
  target_databases: [shop]
  cache_seconds: 30
  metrics:
    - state: {usage: LABEL}
    - waiting: {usage: GAUGE, description: Orders that wait.}
"""
SHORT = "{name}: {{query: SELECT 1 AS one, metrics: [{{one: {{usage: GAUGE}}}}]}}\n"


def problems(text: str, *, has_databases: bool = True) -> Sequence[str]:
    return parse_queries(text, has_databases=has_databases).problems


def loaded(tmp_path: Path, parsed: ParsedQueries) -> InstancePaths:
    file = tmp_path / "queries.json"
    file.write_text(exporter_file(parsed.queries))
    return InstancePaths(queries_file=file)


def test_valid_query_reaches_the_exporter(tmp_path: Path) -> None:
    parsed = parse_queries(ORDERS, has_databases=True)
    assert not parsed.problems
    paths = loaded(tmp_path, parsed)
    [query] = load_queries(paths.queries_file, "postgresql")
    assert (query.databases, query.interval_seconds) == (("shop",), 30)
    metric = Metric("steersman_query_orders_waiting", "Orders that wait.", ("database", "state"))
    assert metric in postgresql_exporter(170000, paths).metrics()


def test_one_invalid_query_does_not_affect_others() -> None:
    parsed = parse_queries(ORDERS + SHORT.format(name="broken").replace("GAUGE", "HISTOGRAM"), has_databases=True)
    assert [one["name"] for one in parsed.queries] == ["orders"]
    assert parsed.problems == ["query broken: Invalid enum value 'HISTOGRAM' - at `$.metrics[0][...].usage`"]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("- a list\n", "Expected `object`, got `array`"),
        ("orders: [\n", "while parsing"),
        ("a: &a [x]\nb: *a\n", "aliases are not supported"),
        ("a: " + "[" * 3000, "nested too deeply"),
        ("x" * (MAX_QUERIES_CHARACTERS + 1), "split it into several keys"),
        (SHORT.format(name="Orders"), "Expected `str` matching regex"),
        (SHORT.format(name="a").replace("one:", "one_total:"), "must end with _total"),
        (SHORT.format(name="a").replace("GAUGE", "COUNTER"), "must end with _total"),
        (SHORT.format(name="a").replace("GAUGE", "LABEL"), "no column has the usage GAUGE or COUNTER"),
        (SHORT.format(name="a").replace("query:", "sql:"), "unknown field `sql`"),
    ],
)
def test_invalid_text_names_the_problem(text: str, problem: str) -> None:
    [found] = problems(text)
    assert problem in found


def test_mysql_has_no_target_databases() -> None:
    [found] = problems(ORDERS, has_databases=False)
    assert "Qualify tables by their database" in found


def test_merge_first_of_one_name_counts() -> None:
    many = "".join(SHORT.format(name=f"q{number}") for number in range(MAX_QUERIES))
    sources = [("a/q", many), ("b/q", SHORT.format(name="q0") + SHORT.format(name="last"))]
    merged = merge_queries((name, parse_queries(text, has_databases=True)) for name, text in sources)
    assert len(merged.queries) == MAX_QUERIES
    assert merged.problems == [
        "b/q: query q0: another query has this name",
        f"b/q: query last: a cluster has at most {MAX_QUERIES} queries",
    ]


@pytest.mark.parametrize("content", ["{", "[]", '{"queries": [{}]}', '{"queries": 1}'])
def test_damaged_file_has_no_queries(tmp_path: Path, content: str, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "queries.json"
    file.write_text(content)
    assert load_queries(file, "mysql") == ()
    assert "unknown form" in capsys.readouterr().err


def test_absent_file_has_no_queries(tmp_path: Path) -> None:
    paths = InstancePaths(queries_file=tmp_path / "absent.json")
    assert len(mysql_exporter(paths).groups) == 2


class Sessions:
    """Databases with rows; others cannot be opened."""

    def __init__(self, rows: Mapping[str, Sequence[Mapping[str, object]]]) -> None:
        self._rows = rows

    def connect(self, database: str) -> Session:
        if database not in self._rows:
            raise SessionLost("permission denied")
        return Session(self._rows[database])


class Session:
    def __init__(self, rows: Sequence[Mapping[str, object]]) -> None:
        self._rows = rows

    def rows(self, _sql: str) -> Sequence[Mapping[str, object]]:
        return self._rows

    def close(self) -> None:
        pass


def query(*databases: str) -> PostgreSQLUserQuery:
    metric = Metric("steersman_query_q_n", "N.", ("database",))
    return PostgreSQLUserQuery(
        UserQuery(
            name="q",
            sql="SELECT 1 AS n",
            labels=(),
            values={"n": metric},
            databases=databases,
            primary_only=False,
            interval_seconds=60,
        )
    )


def test_rows_of_all_databases_share_a_limit() -> None:
    sessions = DatabaseSessions(Sessions({"a": [{"n": 1}] * ROW_LIMIT, "b": [{"n": 2}]}).connect)
    reading = query("a", "b").collect(sessions)
    assert (len(reading.samples), reading.dropped) == (ROW_LIMIT, 1)


def test_closed_database_fails_only_its_query() -> None:
    sessions = DatabaseSessions(Sessions({"a": []}).connect)
    with pytest.raises(CollectFailed, match="database closed: permission denied"):
        query("a", "closed").collect(sessions)
    assert query("a").collect(sessions).samples == []


def test_file_is_json_without_other_fields() -> None:
    [written] = json.loads(exporter_file(parse_queries(ORDERS, has_databases=True).queries))["queries"]
    assert sorted(written) == ["databases", "intervalSeconds", "labels", "name", "primaryOnly", "sql", "values"]
