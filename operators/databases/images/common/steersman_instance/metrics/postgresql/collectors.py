"""Collectors with several queries: sampled sessions, and databases in turn."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from operator import itemgetter

from ..catalog import CollectFailed, Metric, Reading, Sample, SessionLost
from ..query import number
from .queries import ACTIVE_SESSION_SECONDS, WAIT_TYPES, WAITS_SQL
from .session import PostgreSQLSession, ServerAddress

TABLE_LIMIT = 50
DATABASE_LIMIT = 50
_TABLE = ("database", "schema", "table")
DEAD_ROWS = Metric("steersman_postgresql_table_dead_rows", "Dead rows, of the tables with most of them.", _TABLE)
LIVE_ROWS = Metric("steersman_postgresql_table_live_rows", "Estimated rows of the same tables.", _TABLE)
TABLE_BYTES = Metric("steersman_postgresql_table_bytes", "Size of the same tables at the last vacuum.", _TABLE)
DATABASE_BYTES = Metric("steersman_postgresql_database_bytes", "Size of the database.", ("database",))
UNREADABLE = Metric("steersman_postgresql_databases_unreadable", "Databases whose tables could not be read.")

# relpages instead of pg_table_size(), which waits for the lock of the table.
_TABLES_SQL = f"""
    SELECT s.schemaname, s.relname, s.n_dead_tup, s.n_live_tup,
        c.relpages::bigint * current_setting('block_size')::int AS bytes
    FROM pg_stat_user_tables s JOIN pg_class c ON c.oid = s.relid
    ORDER BY s.n_dead_tup DESC, s.schemaname, s.relname LIMIT {TABLE_LIMIT}
"""  # noqa: S608
_SIZES_SQL = f"""
    SELECT datname, pg_database_size(oid) AS bytes FROM pg_database
    WHERE datallowconn ORDER BY 2 DESC LIMIT {DATABASE_LIMIT}
"""  # noqa: S608


@dataclass
class WaitSampler:
    """Counts active sessions each second, by wait event type."""

    clock: Callable[[], float] = time.monotonic
    name: str = "waits"
    interval_seconds: float = 1.0
    metrics: Sequence[Metric] = (ACTIVE_SESSION_SECONDS,)
    _totals: dict[str, float] = field(default_factory=lambda: dict.fromkeys(WAIT_TYPES, 0.0))
    _last: float | None = None

    def collect(self, session: PostgreSQLSession) -> Reading:
        """See `Collector.collect`."""
        rows = session.rows(WAITS_SQL)
        now = self.clock()
        # After a pause of the sampler, one sample does not stand for all of it.
        elapsed = 0.0 if self._last is None else min(now - self._last, 3 * self.interval_seconds)
        self._last = now
        for row in rows:
            kind = str(row["type"])
            self._totals[kind] = self._totals.get(kind, 0.0) + elapsed * (number(row["sessions"]) or 0)
        return Reading([Sample(ACTIVE_SESSION_SECONDS, (kind,), total) for kind, total in self._totals.items()])


class DatabaseTour:
    """A session for each database in turn.

    Clients lose at most one connection to it.
    """

    def __init__(self, address: ServerAddress, statement_timeout_seconds: float = 10.0) -> None:
        self._address = address
        self._timeout = statement_timeout_seconds

    def rows_of(self, sql: str, database: str | None = None) -> Sequence[dict[str, object]]:
        """Run a query in a database. Defaults to the maintenance database."""
        session = (
            PostgreSQLSession(self._address, statement_timeout_seconds=self._timeout)
            if database is None
            else PostgreSQLSession(self._address, database, self._timeout)
        )
        try:
            return [dict(row) for row in session.rows(sql)]
        finally:
            session.close()

    def databases(self) -> Sequence[str]:
        """Return the databases that accept connections."""
        session = PostgreSQLSession(self._address)
        try:
            return session.databases()
        finally:
            session.close()

    def close(self) -> None:
        """See `ClosableSession.close`. No connection is kept."""


@dataclass(frozen=True)
class DatabaseSizes:
    """Sizes of the largest databases."""

    name: str = "database_sizes"
    interval_seconds: float = 60.0
    metrics: Sequence[Metric] = (DATABASE_BYTES,)

    def collect(self, session: DatabaseTour) -> Reading:
        """See `Collector.collect`."""
        rows = session.rows_of(_SIZES_SQL)
        return Reading([Sample(DATABASE_BYTES, (str(row["datname"]),), number(row["bytes"]) or 0) for row in rows])


@dataclass(frozen=True)
class Tables:
    """The tables with the most dead rows, of all databases together."""

    name: str = "tables"
    interval_seconds: float = 60.0
    metrics: Sequence[Metric] = (DEAD_ROWS, LIVE_ROWS, TABLE_BYTES, UNREADABLE)

    def collect(self, session: DatabaseTour) -> Reading:
        """See `Collector.collect`."""
        found: list[tuple[float, tuple[str, ...], dict[str, object]]] = []
        unreadable = 0
        for database in session.databases():
            try:
                rows = session.rows_of(_TABLES_SQL, database)
            except (CollectFailed, SessionLost):
                # One database, such as a full or a damaged one, does not hide the others.
                unreadable += 1
                continue
            for row in rows:
                names = (database, str(row["schemaname"]), str(row["relname"]))
                found.append((number(row["n_dead_tup"]) or 0, names, row))
        found.sort(key=itemgetter(0), reverse=True)
        samples = [
            sample
            for dead, names, row in found[:TABLE_LIMIT]
            for sample in (
                Sample(DEAD_ROWS, names, dead),
                Sample(LIVE_ROWS, names, number(row["n_live_tup"]) or 0),
                Sample(TABLE_BYTES, names, number(row["bytes"]) or 0),
            )
        ]
        return Reading([*samples, Sample(UNREADABLE, (), unreadable)])
