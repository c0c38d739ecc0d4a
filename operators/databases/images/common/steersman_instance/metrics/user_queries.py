"""Queries that users declare, in the file that the operator writes.

Each is wrapped into a query that names its columns, so that rows, the length of labels and the type of values are
limited on the server.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

from .catalog import CollectFailed, Metric, Reading, SessionLost
from .query import Session, samples_of

ROW_LIMIT = 100
"""Most rows of a run of a query, in all its databases."""
LABEL_LIMIT = 200
"""Most characters of a label."""
PREFIX = "steersman_query"
Engine = Literal["postgresql", "mysql"]


@dataclass(frozen=True, kw_only=True)
class UserQuery:
    """A query of the file.

    Args:
        name: unique name, which is a part of the names of its metrics.
        sql: one SELECT statement.
        labels: columns that become labels.
        values: metric of each value column.
        databases: databases in which it runs, for PostgreSQL. ``*`` is each one that its login can open.
        primary_only: it returns no rows on replicas.
        interval_seconds: time between two runs.
    """

    name: str
    sql: str
    labels: tuple[str, ...]
    values: Mapping[str, Metric]
    databases: tuple[str, ...]
    primary_only: bool
    interval_seconds: float

    def wrapped(self, engine: Engine) -> str:
        """Return the query with its limits. A comment at its end must not hide the rest."""
        return _DIALECTS[engine].wrap(self)


class _Dialect(NamedTuple):
    label: str
    value: str
    is_primary: str

    def wrap(self, query: UserQuery) -> str:
        columns = [
            *(self.label.format(column=column, limit=LABEL_LIMIT) for column in query.labels),
            *(self.value.format(column=column) for column in query.values),
        ]
        primary = f"WHERE {self.is_primary} " if query.primary_only else ""
        sql = query.sql.strip().removesuffix(";")
        return f"SELECT {', '.join(columns)} FROM (\n{sql}\n) AS q {primary}LIMIT {ROW_LIMIT + 1}"  # noqa: S608


_DIALECTS: Mapping[Engine, _Dialect] = {
    "postgresql": _Dialect(
        label='pg_catalog.left(q."{column}"::pg_catalog.text, {limit}) AS "{column}"',
        value='q."{column}"::pg_catalog.float8 AS "{column}"',
        # A subquery runs once, before the query, which then does not run on a replica.
        is_primary="NOT (SELECT pg_catalog.pg_is_in_recovery())",
    ),
    "mysql": _Dialect(
        label="LEFT(CAST(q.`{column}` AS CHAR), {limit}) AS `{column}`",
        value="CAST(q.`{column}` AS DOUBLE) AS `{column}`",
        is_primary="NOT @@GLOBAL.super_read_only",
    ),
}


@dataclass(frozen=True)
class _UserQueryCollector:
    """Common fields of the collectors of both engines."""

    query: UserQuery

    @property
    def name(self) -> str:
        return f"query_{self.query.name}"

    @property
    def interval_seconds(self) -> float:
        return self.query.interval_seconds

    @property
    def metrics(self) -> Sequence[Metric]:
        return tuple(self.query.values.values())


@dataclass(frozen=True)
class MySQLUserQuery(_UserQueryCollector):
    """Collector of a query on MySQL."""

    def collect(self, session: Session) -> Reading:
        """See `Collector.collect`."""
        return samples_of(session.rows(self.query.wrapped("mysql")), self.query.values, ROW_LIMIT)


class DatabaseSessions:
    """A session with a database for each run of a query. Clients lose at most one connection to it."""

    def __init__(self, connect: Callable[[str], Any]) -> None:
        self._connect = connect

    def rows(self, database: str, sql: str) -> Sequence[Mapping[str, object]]:
        """Run a query in a database.

        Raises:
            CollectFailed: the database cannot be opened, or the query failed.
        """
        try:
            session = self._connect(database)
            try:
                return session.rows(sql)
            finally:
                session.close()
        except (SessionLost, CollectFailed) as error:
            # One database that cannot be opened does not fail the queries of others.
            raise CollectFailed(f"database {database}: {error}") from error

    def close(self) -> None:
        """See `ClosableSession.close`. No connection is kept."""


@dataclass(frozen=True)
class PostgreSQLUserQuery(_UserQueryCollector):
    """Collector of a query on PostgreSQL, with the label ``database``."""

    maintenance_database: str = "postgres"

    def collect(self, session: DatabaseSessions) -> Reading:
        """See `Collector.collect`."""
        sql = self.query.wrapped("postgresql")
        databases = self._databases(session)
        rows = [{**row, "database": database} for database in databases for row in session.rows(database, sql)]
        return samples_of(rows, self.query.values, ROW_LIMIT)

    def _databases(self, session: DatabaseSessions) -> Sequence[str]:
        if "*" not in self.query.databases:
            return self.query.databases
        return [str(row["datname"]) for row in session.rows(self.maintenance_database, _OPEN_DATABASES_SQL)]


_OPEN_DATABASES_SQL = """
    SELECT datname FROM pg_catalog.pg_database
    WHERE datallowconn AND datconnlimit <> -2 AND NOT datistemplate
        AND pg_catalog.has_database_privilege(oid, 'CONNECT')
    ORDER BY datname
"""


def load_queries(file: Path, engine: Engine) -> Sequence[UserQuery]:
    """Return the queries of a file.

    There are none if it is absent or damaged.
    """
    try:
        text = file.read_text()
    except FileNotFoundError:
        return ()
    except OSError as error:
        sys.stderr.write(f"metrics: user queries cannot be read: {error}\n")
        return ()
    try:
        return [_query(declared, engine) for declared in json.loads(text)["queries"]]
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        # The operator writes the file. Another version of it may write another form.
        sys.stderr.write(f"metrics: user queries have an unknown form: {error!r}\n")
        return ()


def _query(declared: Mapping[str, Any], engine: Engine) -> UserQuery:
    labels = tuple(map(str, declared["labels"]))
    of_database = ("database",) if engine == "postgresql" and "database" not in labels else ()
    return UserQuery(
        name=declared["name"],
        sql=declared["sql"],
        labels=labels,
        values={
            one["column"]: Metric(
                f"{PREFIX}_{declared['name']}_{one['column']}", one["help"], (*of_database, *labels), one["kind"]
            )
            for one in declared["values"]
        },
        databases=tuple(declared["databases"]),
        primary_only=declared["primaryOnly"],
        interval_seconds=float(declared["intervalSeconds"]),
    )
