"""Connections to PostgreSQL that cannot be hijacked, cannot hang, and fail with our own errors.

Every connection pins `search_path` to `pg_catalog` in its startup packet, which outranks whatever a database's
owner has set with ALTER DATABASE or ALTER ROLE: no function or operator planted in another schema is ever
called. Statements are composed by psycopg, values go as bound parameters.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import os
import socket
from collections.abc import AsyncGenerator
from typing import LiteralString

import psycopg
from psycopg import sql
from psycopg.rows import TupleRow

from ..errors import ServerUnreachable, SqlFailed
from ..port import Credentials, Endpoint
from ..work import LoginRejected, Raced

RACED = frozenset(
    {
        "42710",  # duplicate_object: the role was made meanwhile
        "42P04",  # duplicate_database
        "23505",  # unique_violation in a catalog: the same two, a moment earlier
        "42704",  # undefined_object: the role was dropped meanwhile
        "3D000",  # invalid_catalog_name: the database was dropped meanwhile
        "55006",  # object_in_use: the template is being copied by somebody else
        "40001",  # serialization_failure
        "40P01",  # deadlock_detected
    }
)
"""SQLSTATEs that mean: somebody else was at it at the same time, look again."""

QUERY_CANCELED = "57014"
"""The statement took longer than `statement_timeout`."""

AWAY = ("08", "53", "57P")
"""Beginnings of SQLSTATEs that mean: no server at the moment (lost, out of resources, starting, stopping)."""


class Session:
    """One open connection, in autocommit mode."""

    def __init__(self, endpoint: Endpoint, connection: psycopg.AsyncConnection[TupleRow]) -> None:
        self._endpoint = endpoint
        self._connection = connection
        self._severed = False

    async def rows(self, doing: str, query: LiteralString, *values: object) -> list[TupleRow]:
        """What a query finds, its `%s` bound to the values."""
        cursor = await self._execute(doing, query, values)
        return await cursor.fetchall()

    async def run(self, doing: str, statement: sql.Composed) -> None:
        """Run a statement that changes something. `doing` says in words what, for a possible error."""
        await self._execute(doing, statement, None)

    @contextlib.asynccontextmanager
    async def transaction(self) -> AsyncGenerator[None]:
        """All of the statements inside, or none: a failure must end the session, which undoes them."""
        await self._execute("beginning a transaction", "BEGIN", None)
        yield
        await self._execute("ending a transaction", "COMMIT", None)

    def verifier(self, username: str, password: str) -> str:
        """What the server stores for a password, computed here: logs of the server never hold the password."""
        encrypted = self._connection.pgconn.encrypt_password(password.encode(), username.encode(), b"scram-sha-256")
        return encrypted.decode()

    def sever(self) -> None:
        """Shut the socket down. Whoever waits for the server gets an error at once.

        Cancelling would not do: psycopg then asks the server to cancel the statement and waits for its
        answer, and a server that hangs gives none.
        """
        self._severed = True
        closed_already = contextlib.suppress(psycopg.OperationalError, OSError)
        with closed_already, socket.socket(fileno=os.dup(self._connection.pgconn.socket)) as duplicate:
            duplicate.shutdown(socket.SHUT_RDWR)

    async def _execute(
        self, doing: str, query: LiteralString | sql.Composed, values: tuple[object, ...] | None
    ) -> psycopg.AsyncCursor[TupleRow]:
        execution = asyncio.ensure_future(self._connection.execute(query, values))
        try:
            return await asyncio.shield(execution)
        except asyncio.CancelledError:
            self.sever()
            await asyncio.gather(execution, return_exceptions=True)
            raise
        except psycopg.Error as error:
            raise self._failure(doing, error) from None

    def _failure(self, doing: str, error: psycopg.Error) -> Exception:
        if self._severed or error.sqlstate == QUERY_CANCELED:
            return ServerUnreachable(self._endpoint, f"no answer in time while {doing}")
        message = error.diag.message_primary or " ".join(str(error).split())
        if error.sqlstate is None or error.sqlstate.startswith(AWAY):
            return ServerUnreachable(self._endpoint, f"while {doing}: {message}")
        failure = SqlFailed(doing, error.sqlstate, message)
        # Two catalog updates at once have no SQLSTATE of their own, and developers' messages (elog) are
        # never translated.
        if error.sqlstate in RACED or message == "tuple concurrently updated":
            return Raced(failure)
        return failure


@contextlib.asynccontextmanager
async def open_session(
    endpoint: Endpoint, credentials: Credentials, database: str, deadline: float
) -> AsyncGenerator[Session]:
    """A session in a database, closed on leaving, severed at the deadline (the event loop's time, seconds).

    TLS is used where the server offers it. SCRAM is required, so a server that is not ours never gets to see
    the password.

    Raises `LoginRejected` or `ServerUnreachable`.
    """
    loop = asyncio.get_running_loop()
    connection = await _connect(endpoint, credentials, database, deadline)
    session = Session(endpoint, connection)
    alarm = loop.call_at(deadline, session.sever)
    try:
        yield session
    finally:
        alarm.cancel()
        await connection.close()


async def _connect(
    endpoint: Endpoint, credentials: Credentials, database: str, deadline: float
) -> psycopg.AsyncConnection[TupleRow]:
    remaining = deadline - asyncio.get_running_loop().time()
    try:
        async with asyncio.timeout(max(remaining, 0)):
            return await psycopg.AsyncConnection.connect(
                host=endpoint.host,
                port=endpoint.port,
                user=credentials.username,
                password=credentials.password,
                dbname=database,
                autocommit=True,
                sslmode="prefer",
                gssencmode="disable",
                require_auth="scram-sha-256",
                application_name="steersman",
                client_encoding="utf8",
                connect_timeout=max(1, math.ceil(remaining)),
                options=_options(remaining),
            )
    except TimeoutError:
        raise ServerUnreachable(endpoint, "no answer in time while connecting") from None
    except psycopg.errors.ConnectionTimeout:
        raise ServerUnreachable(endpoint, "no answer in time while connecting") from None
    except psycopg.Error as error:
        message = " ".join(str(error).split()).removeprefix("connection failed: ")
        # libpq hands over no SQLSTATE for a failed login, only the text; the images run with untranslated
        # messages for this.
        if "password authentication failed" in message:
            raise LoginRejected(message) from None
        raise ServerUnreachable(endpoint, message) from None


def _options(remaining: float) -> str:
    milliseconds = max(1, math.ceil(remaining * 1000))
    settings = {
        "search_path": "pg_catalog",
        "statement_timeout": milliseconds,
        "lock_timeout": max(1, milliseconds // 2),
        "idle_in_transaction_session_timeout": milliseconds,
        "default_transaction_read_only": "off",
        "standard_conforming_strings": "on",
    }
    return " ".join(f"-c {name}={value}" for name, value in settings.items())
