"""Sessions with the local PostgreSQL server, with a time limit."""

from __future__ import annotations

import select
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, cast

import psycopg2
import psycopg2.extensions
from psycopg2.extras import RealDictCursor

from ..catalog import CollectFailed, SessionLost

MONITOR_ROLE = "steersman_monitor"
"""A member of pg_monitor and of nothing else. roles.sql creates it."""
QUERIES_ROLE = "steersman_queries"
"""Login of user queries. It reads what users grant to it."""
MAINTENANCE_DATABASE = "postgres"
_CONNECT_TIMEOUT_SECONDS = 3
_GRACE_SECONDS = 3.0  # that the server has to end a query itself
_OPTIONS = {
    "lock_timeout": "100ms",
    "default_transaction_read_only": "on",
    # A standby refuses each transaction with the level serializable.
    "default_transaction_isolation": r"read\ committed",
    "idle_session_timeout": "0",
    "jit": "off",
    "log_min_duration_statement": "-1",
    "max_parallel_workers_per_gather": "0",
    # An object of a user never takes the place of one of the server's. User queries have the default.
    "search_path": "pg_catalog",
}
_NOT_FOR_USERS = ("search_path", "log_min_duration_statement")  # only superusers set the second one


@dataclass(frozen=True)
class ServerAddress:
    """Parameters of libpq to reach the server.

    Defaults to the socket of the pod as the operating system's account, which is the superuser. Each session drops
    the superuser's rights before its first query. So it reaches databases that are closed to PUBLIC, and it gets a
    connection of `superuser_reserved_connections` if clients hold all others.

    Args:
        role: role of the session after the login. Empty for the user of the login, whose session runs SQL of users:
            a session of a superuser could take its rights back.
    """

    host: str = "/run/steersman"
    user: str = "postgres"
    more: Mapping[str, str] = field(default_factory=dict[str, str])
    role: str = MONITOR_ROLE

    def for_user_queries(self) -> ServerAddress:
        """Return the address with the login of user queries."""
        return replace(self, user=QUERIES_ROLE, role="")


class _Connection(psycopg2.extensions.connection):
    """A connection with a deadline, in seconds of the monotonic clock."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        self.deadline = time.monotonic() + _CONNECT_TIMEOUT_SECONDS
        super().__init__(*arguments, **options)


def _wait(connection: Any) -> None:
    """Wait for the server until the connection's deadline.

    Source: psycopg2, "Support for coroutine libraries".
    """
    deadline: float = getattr(connection, "deadline", float("inf"))
    poller = select.poll()
    while True:
        state = connection.poll()
        if state == psycopg2.extensions.POLL_OK:
            return
        event = select.POLLIN if state == psycopg2.extensions.POLL_READ else select.POLLOUT
        poller.register(connection.fileno(), event)
        remaining = deadline - time.monotonic()
        timeout = None if remaining == float("inf") else max(remaining, 0) * 1000
        if not poller.poll(timeout):
            # psycopg2 closes the connection after an error of this function.
            raise psycopg2.OperationalError("the server did not respond in time")


class PostgreSQLSession:
    """A session of the least rights with one database.

    Raises:
        SessionLost: it cannot be opened.
    """

    def __init__(
        self, address: ServerAddress, database: str = MAINTENANCE_DATABASE, statement_timeout_seconds: float = 2.0
    ) -> None:
        psycopg2.extensions.set_wait_callback(_wait)
        self._timeout = statement_timeout_seconds
        options = {**_OPTIONS, "statement_timeout": f"{int(statement_timeout_seconds * 1000)}ms"}
        if not address.role:
            options = {name: value for name, value in options.items() if name not in _NOT_FOR_USERS}
        try:
            # The stubs know no connection factory together with other parameters.
            self._connection: Any = cast(Any, psycopg2.connect)(
                host=address.host,
                user=address.user,
                dbname=database,
                application_name=address.role or address.user,
                options=" ".join(f"-c {name}={value}" for name, value in options.items()),
                connection_factory=_Connection,
                **dict(address.more),
            )
            self._connection.autocommit = True
            if address.role:
                self._execute(f"SET SESSION AUTHORIZATION {address.role}")
        except psycopg2.Error as error:
            raise SessionLost(str(error)) from error

    @property
    def server_version(self) -> int:
        """Version as a number, such as 170005."""
        return int(self._connection.server_version)

    def rows(self, sql: str) -> Sequence[Mapping[str, object]]:
        """See `Session.rows`."""
        try:
            return self._execute(sql)
        except psycopg2.Error as error:
            if self._connection.closed or isinstance(error, psycopg2.InterfaceError):
                raise SessionLost(str(error)) from error
            raise CollectFailed(str(error)) from error

    def databases(self) -> Sequence[str]:
        """Return the connectable databases, oldest transactions first."""
        open_ones = "SELECT datname FROM pg_database WHERE datallowconn AND datconnlimit <> -2"
        return [str(row["datname"]) for row in self.rows(f"{open_ones} ORDER BY age(datfrozenxid) DESC, 1")]

    def close(self) -> None:
        """See `ClosableSession.close`."""
        with suppress(psycopg2.Error):
            self._connection.close()

    def _execute(self, sql: str) -> Sequence[Mapping[str, object]]:
        self._connection.deadline = time.monotonic() + self._timeout + _GRACE_SECONDS
        with self._connection.cursor(cursor_factory=RealDictCursor) as cursor:
            cursor.execute(sql)
            return list(cursor.fetchall()) if cursor.description else []
