"""Connections to MySQL and MariaDB: always TLS, every wait bounded, errors of our own.

All statements are prepared on the server: values are bound there, and a second statement can never be smuggled
in, since a prepared statement is one statement.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import ssl
from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Any, Protocol, cast

import asyncmy
from asyncmy.errors import MySQLError

from ..errors import ServerUnreachable, SqlFailed
from ..port import Credentials, Endpoint
from ..work import LoginRejected, Raced

RACED = frozenset(
    {
        1007,  # database exists: made meanwhile
        1008,  # database does not exist: dropped meanwhile
        1044,  # access denied to the database: revoked meanwhile
        1049,  # unknown database
        1133,  # no such user (MariaDB)
        1213,  # deadlock
        1396,  # CREATE or ALTER USER failed: made or dropped meanwhile
        1410,  # GRANT to a user who does not exist
    }
)
"""Error numbers that mean: somebody else was at it at the same time, look again."""

AWAY = frozenset(
    {
        1040,  # too many connections
        1053,  # server shutdown in progress
        1129,  # host is blocked
        1203,  # too many connections of this user
        1205,  # lock wait timeout
        1226,  # a resource limit of this user is used up
        2003,  # cannot connect
        2006,  # server has gone away
        2013,  # connection lost
        3169,  # session killed
    }
)
"""Error numbers that mean: no server at the moment."""


WRONG_PASSWORD = frozenset({1045, 1698, 1820, 1862})
"""The password is wrong, or right but expired."""

LOCKED = frozenset({3118, 3957, 4150, 4151})
"""The account is locked: by hand or after too many failures, in MySQL's numbers and MariaDB's."""


class Session:
    """One open connection, in autocommit mode."""

    def __init__(self, endpoint: Endpoint, connection: _Connection, secret: str) -> None:
        self._endpoint = endpoint
        self._connection = connection
        self._secret = secret

    @property
    def is_mariadb(self) -> bool:
        return "mariadb" in self._connection.get_server_info().lower()

    async def rows(self, doing: str, query: str, *values: object) -> list[Mapping[str, Any]]:
        """What a query finds, its `?` bound to the values, by column name."""
        result = await self._execute(doing, query, values)
        names = [str(column[0]) for column in result.description or ()]
        return [dict(zip(names, row, strict=True)) for row in result.rows or ()]

    async def run(self, doing: str, statement: str) -> None:
        """Run a statement that changes something. `doing` says in words what, for a possible error."""
        await self._execute(doing, statement, ())

    def literal(self, value: str) -> str:
        """A string literal, for statements that take no parameters. Follows the session's `sql_mode`."""
        return self._connection.escape(value)

    async def _execute(self, doing: str, statement: str, values: tuple[object, ...]) -> _Result:
        try:
            prepared = await self._connection.prepare(statement)
            try:
                return await prepared.execute(values)
            finally:
                await prepared.close()
        except MySQLError as error:
            raise self._failure(doing, error) from None

    def _failure(self, doing: str, error: MySQLError) -> Exception:
        number, message = _told(error)
        message = message.replace(self._secret, "<secret>")
        if number in WRONG_PASSWORD:
            return LoginRejected(message, number)
        if number in AWAY or number == 0:
            return ServerUnreachable(self._endpoint, f"while {doing}: {message}")
        failure = SqlFailed(doing, cast("str | None", error.sqlstate), message)
        return Raced(failure) if number in RACED else failure


def identifier(name: str) -> str:
    """A quoted identifier. Between backticks the backtick alone is special, whatever the `sql_mode`."""
    return "`" + name.replace("`", "``") + "`"


def account(username: str) -> str:
    """A user from anywhere, quoted."""
    return f"{identifier(username)}@{identifier('%')}"


@contextlib.asynccontextmanager
async def open_session(
    endpoint: Endpoint, credentials: Credentials, database: str | None, deadline: float, secret: str
) -> AsyncGenerator[Session]:
    """A session, closed on leaving, given up at the deadline (the event loop's time, seconds).

    TLS is required, since MySQL may ask for the password itself; the certificate is not verified yet.
    `secret` is a text that no error may show.

    Raises `LoginRejected` or `ServerUnreachable`.
    """
    remaining = deadline - asyncio.get_running_loop().time()
    try:
        async with asyncio.timeout(max(remaining, 0)):
            connection = await _connect(endpoint, credentials, database, max(1, math.ceil(remaining)))
            try:
                session = Session(endpoint, connection, secret)
                await _configure(session, remaining)
                yield session
            finally:
                connection.close()
    except TimeoutError:
        raise ServerUnreachable(endpoint, "no answer in time") from None


async def _connect(endpoint: Endpoint, credentials: Credentials, database: str | None, seconds: int) -> _Connection:
    try:
        return await _open(
            host=endpoint.host,
            port=endpoint.port,
            user=credentials.username,
            password=credentials.password.encode(),
            database=database,
            charset="utf8mb4",
            ssl=_tls(),
            connect_timeout=seconds,
            autocommit=True,
            program_name="steersman",
        )
    except MySQLError as error:
        number, message = _told(error)
        if number in WRONG_PASSWORD | LOCKED:
            raise LoginRejected(message, number) from None
        if number in RACED:
            raise Raced(SqlFailed(f"logging in as {credentials.username}", None, message)) from None
        raise ServerUnreachable(endpoint, message) from None
    except OSError as error:
        raise ServerUnreachable(endpoint, str(error)) from None


async def _configure(session: Session, remaining: float) -> None:
    # Without NO_AUTO_CREATE_USER, MariaDB's GRANT makes the missing user, with an empty password.
    modes = "STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION" + (",NO_AUTO_CREATE_USER" if session.is_mariadb else "")
    seconds = max(1, math.ceil(remaining / 2))
    await session.rows(
        "setting up the session",
        "SET SESSION sql_mode = ?, lock_wait_timeout = ?, innodb_lock_wait_timeout = ?",
        modes,
        seconds,
        seconds,
    )


def _tls() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def _told(error: MySQLError) -> tuple[int, str]:
    """An error's number (0 where the server did not send one) and its message."""
    arguments = cast("tuple[object, ...]", error.args)
    if len(arguments) >= 2 and isinstance(arguments[0], int):
        return arguments[0], str(arguments[1])
    return 0, " ".join(str(argument) for argument in arguments)


class _Result(Protocol):
    """What asyncmy's prepared statements return. Its own stubs leave the types out."""

    @property
    def rows(self) -> Sequence[Sequence[object]] | None: ...
    @property
    def description(self) -> Sequence[Sequence[object]] | None: ...


class _Statement(Protocol):
    async def execute(self, args: tuple[object, ...]) -> _Result: ...
    async def close(self) -> None: ...


class _Connection(Protocol):
    async def prepare(self, query: str) -> _Statement: ...
    def escape(self, obj: str) -> str: ...
    def get_server_info(self) -> str: ...
    def close(self) -> None: ...


class _Open(Protocol):
    async def __call__(self, **options: object) -> _Connection: ...


_open = cast(_Open, asyncmy.connect)  # pyright: ignore[reportUnknownMemberType]
