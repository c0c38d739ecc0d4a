"""Connections to MySQL and MariaDB with TLS, deadlines and the operator's errors.

The server prepares all statements. It binds the values, and an injected second statement is impossible, because a
prepared statement is a single one.
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

from steersman_databases.engines.connection.dns import resolve
from steersman_databases.engines.connection.memfd import memory_file
from steersman_databases.engines.connection.receive_limit import ReceiveLimit
from steersman_databases.engines.errors import (
    AdministratorRejected,
    CertificateRefused,
    ConcurrentChange,
    LimitReached,
    LoginRejected,
    ServerUnreachable,
    SqlFailed,
)
from steersman_databases.engines.server import DatabaseServer, Login, ServerEndpoint, TLSMode, Verification

CONCURRENT_CHANGE_CODES = frozenset(
    {
        1007,  # database exists: created meanwhile
        1008,  # database does not exist: dropped meanwhile
        1049,  # unknown database
        1133,  # no such user (MariaDB)
        1213,  # deadlock
        1396,  # CREATE or ALTER USER failed: created or dropped meanwhile
        1410,  # GRANT to a user who does not exist
    }
)
"""Error numbers of concurrent changes, after which a new inspection is necessary."""

ACCESS_DENIED_CODES = CONCURRENT_CHANGE_CODES | {1044}
"""Error numbers of a login without privileges on the database.

They may be granted soon.
"""

CANNOT_CONNECT = 2003

UNREACHABLE_CODES = frozenset(
    {
        1040,  # too many connections
        1053,  # server shutdown in progress
        1129,  # host is blocked
        1205,  # lock wait timeout
        CANNOT_CONNECT,
        2006,  # server has gone away
        2013,  # connection lost
        3169,  # session killed
    }
)
"""Error numbers of an unavailable server."""

LIMIT_CODES = frozenset({1203, 1226})
"""Too many connections of this user, or too many queries per hour.

The servers check these limits after the password.
"""

EXPIRED_CODES = frozenset({1820, 1862})
"""The password is right, but must be changed before any other statement."""

LOGIN_REJECTED_CODES = frozenset({1045, 1698}) | EXPIRED_CODES
"""The password is wrong, or right but expired.

After the login, 1045 is a missing privilege of the account.
"""

ACCOUNT_LOCKED_CODES = frozenset({3118, 3955, 4150, 4151})
"""The account is locked, manually or after too many failures.

These are the numbers of MySQL and MariaDB.
"""


_PINNED_SETTINGS = {
    # `init_connect` runs after the driver has set it.
    "autocommit": "ON",
    "sql_select_limit": "18446744073709551615",
    "sql_big_selects": "ON",
    "sql_safe_updates": "OFF",
    # Otherwise a database can be dropped although tables in other databases refer to it.
    "foreign_key_checks": "ON",
}
_PINNED_ON_MYSQL = {
    "sql_mode": "'STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION'",
    "transaction_read_only": "OFF",
    "transaction_isolation": "'REPEATABLE-READ'",
    "max_execution_time": "0",
}
_PINNED_ON_MARIADB = {
    # Without NO_AUTO_CREATE_USER, GRANT creates a missing user with an empty password.
    "sql_mode": "'STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION,NO_AUTO_CREATE_USER'",
    "tx_read_only": "OFF",
    # At a lower level the server refuses writes if the binary log has the format STATEMENT.
    "tx_isolation": "'REPEATABLE-READ'",
    "max_statement_time": "0",
}
"""Settings that could restrict the operator's sessions.

A server may have other values for all sessions, with which the operator could not see all rows, or could not
write. Each account may set these variables. Others need privileges that an administrator may lack. The character
set is not pinned: some servers ignore the client's request, and then names mean the same for all clients.
"""
_LOCK_TIMEOUT_SETTINGS = ("lock_wait_timeout = ?", "innodb_lock_wait_timeout = ?")


class MySQLSession:
    """An open connection in autocommit mode."""

    def __init__(self, endpoint: ServerEndpoint, connection: _DriverConnection, deadline: float) -> None:
        self._endpoint = endpoint
        self._connection = connection
        self._deadline = deadline
        self._broken = False
        self._rejected = False

    @property
    def is_mariadb(self) -> bool:
        return "mariadb" in self._connection.get_server_info().lower()

    @property
    def usable(self) -> bool:
        """Return True if it is open, idle, and no statement was refused."""
        return not self._broken and not self._rejected

    async def begin_use(self, deadline: float) -> bool:
        """Limit each following wait by the deadline (the event loop's time).

        Returns True if the server responds.
        """
        loop = asyncio.get_running_loop()
        self._deadline = deadline
        seconds = max(1, math.ceil((deadline - loop.time()) / 2))
        pinned = _PINNED_SETTINGS | (_PINNED_ON_MARIADB if self.is_mariadb else _PINNED_ON_MYSQL)
        setting = ", ".join([*(f"{name} = {value}" for name, value in pinned.items()), *_LOCK_TIMEOUT_SETTINGS])
        try:
            await self.rows(
                "setting up the session", f"SET SESSION {setting}", *[seconds] * len(_LOCK_TIMEOUT_SETTINGS)
            )
        except ServerUnreachable:
            if loop.time() >= deadline:
                raise
            return False
        return True

    def end_use(self) -> None:
        """Do nothing: each statement checks the deadline itself."""

    def abort(self) -> None:
        """Abort the connection."""
        self._broken = True
        self._connection.close()

    async def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    async def rows(self, operation: str, query: str, *values: object) -> list[Mapping[str, Any]]:
        """Return the rows of a query, with `?` bound to the values.

        Each row maps column names to values. A value may be a list for IN. With an empty list the result is empty.
        """
        if any(value == [] for value in values):
            return []
        text, *rest = query.split("?")
        bound_values: list[object] = []
        for value, part in zip(values, rest, strict=True):
            listed = cast("list[object]", value) if isinstance(value, list) else None
            bound_values += [value] if listed is None else listed
            text += ("?" if listed is None else f"({', '.join('?' * len(listed))})") + part
        result = await self._execute(operation, text, tuple(bound_values))
        names = [str(column[0]) for column in result.description or ()]
        return [dict(zip(names, row, strict=True)) for row in result.rows or ()]

    async def run(self, operation: str, statement: str) -> None:
        """Run a statement that changes something.

        Args:
            operation: description for a possible error.
        """
        await self._execute(operation, statement, ())

    async def command(self, operation: str, statement: str) -> None:
        """Run a statement that cannot be prepared.

        Apart from quoted names it may not contain text from users.
        """
        async with self._with_deadline(operation):
            await self._connection.query(statement)

    async def _execute(self, operation: str, statement: str, values: tuple[object, ...]) -> _DriverResult:
        async with self._with_deadline(operation):
            prepared = await self._connection.prepare(statement)
            try:
                return await prepared.execute(values)
            finally:
                await prepared.close()

    @contextlib.asynccontextmanager
    async def _with_deadline(self, operation: str) -> AsyncGenerator[None]:
        """Enforce the deadline, and translate errors."""
        done, limit = False, ReceiveLimit(_descriptor(self._connection), self.abort)
        try:
            async with asyncio.timeout_at(self._deadline):
                with limit:
                    yield
            done = True
        except TimeoutError:
            raise ServerUnreachable(self._endpoint, f"no response in time while {operation}") from None
        except OSError as error:
            if limit.exceeded:
                raise limit.error(self._endpoint, operation) from None
            raise ServerUnreachable(self._endpoint, f"while {operation}: {error}") from None
        except MySQLError as error:
            failure = limit.error(self._endpoint, operation) if limit.exceeded else self._failure(operation, error)
            done = not isinstance(failure, ServerUnreachable)
            # New privileges on the whole server take effect at the next login.
            self._rejected = isinstance(failure, SqlFailed | ConcurrentChange)
            raise failure from None
        finally:
            # After an interruption the next packets could be taken for the response to another statement.
            self._broken = self._broken or not done

    def _failure(self, operation: str, error: MySQLError) -> Exception:
        number, message = _error_of(error)
        if number in EXPIRED_CODES:
            return LoginRejected(message, number)
        if number in LIMIT_CODES:
            return LimitReached(self._endpoint, f"while {operation}: {message}")
        if number in UNREACHABLE_CODES or number == 0:
            return ServerUnreachable(self._endpoint, f"while {operation}: {message}")
        failure = SqlFailed(operation, cast("str | None", error.sqlstate), message)
        return ConcurrentChange(failure) if number in CONCURRENT_CHANGE_CODES else failure


def _descriptor(connection: _DriverConnection) -> int:
    """Return the descriptor of the socket, or -1 if it is closed."""
    transport = cast("asyncio.Transport | None", getattr(connection, "_transport", None))
    connected = None if transport is None else transport.get_extra_info("socket")
    return -1 if connected is None else cast("int", connected.fileno())


def identifier(name: str) -> str:
    """Return a quoted identifier.

    Between backticks only the backtick is special, whatever the `sql_mode`.
    """
    return "`" + name.replace("`", "``") + "`"


def grant_pattern(name: str) -> str:
    """Return the pattern of only this database in a GRANT.

    There `_` and `%` match any character.
    """
    return "".join("\\" + character if character in "\\_%" else character for character in name)


ANY_HOST = "%"
"""Host of an account that may log in from everywhere."""


def quoted_account(username: str, host: str = ANY_HOST) -> str:
    """Return a quoted account."""
    return f"{identifier(username)}@{identifier(host)}"


@contextlib.asynccontextmanager
async def logged_in(server: DatabaseServer, deadline: float) -> AsyncGenerator[MySQLSession]:
    """Provide a session with the server's own login during the block.

    Raises:
        AdministratorRejected: the server rejects the login.
        ServerUnreachable: see `connect`.
    """
    try:
        session = await connect(server, server.login, None, deadline)
    except LoginRejected as refusal:
        raise AdministratorRejected(server.login.username, str(refusal)) from None
    try:
        yield session
    finally:
        await session.close()


async def connect(server: DatabaseServer, login: Login, database: str | None, deadline: float) -> MySQLSession:
    """Open a session by the deadline (the event loop's time, seconds).

    It always uses TLS, because MySQL may request the password in clear text.

    Raises:
        LoginRejected: the server rejects the credentials.
        ServerUnreachable: there is no response in time.
        ConcurrentChange: the account may not use the database.
    """
    endpoint = server.endpoint
    addresses = await resolve(endpoint, deadline, server.networks)
    remaining = deadline - asyncio.get_running_loop().time()
    try:
        async with asyncio.timeout(max(remaining, 0)):
            connection = await _connect_first(
                addresses,
                port=endpoint.port,
                user=login.username,
                password=(login.password or "").encode(),
                database=database,
                charset="utf8mb4",
                ssl=_tls(endpoint.host, server.verification, login),
                connect_timeout=max(1, math.ceil(remaining)),
                autocommit=True,
                program_name="steersman",
            )
        return MySQLSession(endpoint, connection, deadline)
    except TimeoutError:
        raise ServerUnreachable(endpoint, "no response in time while connecting") from None
    except MySQLError as error:
        number, message = _error_of(error)
        if number in LOGIN_REJECTED_CODES | ACCOUNT_LOCKED_CODES:
            raise LoginRejected(message, number) from None
        if number in LIMIT_CODES:
            raise LimitReached(endpoint, message) from None
        if number in ACCESS_DENIED_CODES:
            raise ConcurrentChange(SqlFailed(f"logging in as {login.username}", None, message)) from None
        if any(marker in message for marker in _CERTIFICATE_ERRORS):
            raise CertificateRefused(endpoint, message) from None
        raise ServerUnreachable(endpoint, _NO_TLS if "WRONG_VERSION_NUMBER" in message else message) from None
    except (OSError, ValueError) as error:
        # Invalid certificates of authorities raise ValueError.
        raise ServerUnreachable(endpoint, str(error)) from None


async def _connect_first(addresses: Sequence[str], **options: object) -> _DriverConnection:
    """Connect to the first address that accepts connections."""
    failures: list[MySQLError] = []
    for address in addresses:
        try:
            return await _driver_connect(host=address, **options)
        except MySQLError as error:
            if _error_of(error)[0] != CANNOT_CONNECT:
                raise
            failures.append(error)
    # The order of DNS is arbitrary, so the message must not depend on it.
    raise min(failures, key=str)


_CERTIFICATE_ERRORS = ("CERTIFICATE_VERIFY_FAILED", "ALERT_UNKNOWN_CA", "ALERT_BAD_CERTIFICATE", "ALERT_CERTIFICATE")
_NO_TLS = "the server offers no TLS, which is required to send the administrator's password"
"""The server responds to the start of TLS in clear text."""


class _NamedContext(ssl.SSLContext):
    """TLS context that verifies the host's name.

    asyncmy connects to an address and would verify this one.
    """

    host = ""

    def wrap_bio(
        self,
        incoming: ssl.MemoryBIO,
        outgoing: ssl.MemoryBIO,
        server_side: bool = False,
        server_hostname: str | bytes | None = None,
        session: ssl.SSLSession | None = None,
    ) -> ssl.SSLObject:
        return super().wrap_bio(incoming, outgoing, server_side, self.host, session)


def _tls(host: str, verification: Verification, login: Login) -> ssl.SSLContext:
    context = _NamedContext(ssl.PROTOCOL_TLS_CLIENT)
    context.host = host
    context.check_hostname = verification.mode is TLSMode.VERIFY_FULL
    if verification.mode in (TLSMode.VERIFY_FULL, TLSMode.VERIFY_CA):
        if verification.ca_bundle is not None:
            context.load_verify_locations(cadata=verification.ca_bundle.decode())
        else:
            context.load_default_certs()
    else:
        context.verify_mode = ssl.CERT_NONE
    if login.certificate is not None:
        with memory_file(login.certificate.chain) as chain, memory_file(login.certificate.key) as key:
            context.load_cert_chain(chain, key)
    return context


def _error_of(error: MySQLError) -> tuple[int, str]:
    """Return an error's number (0 if the server sent none) and message."""
    arguments = cast("tuple[object, ...]", error.args)
    if len(arguments) >= 2 and isinstance(arguments[0], int):
        return arguments[0], str(arguments[1])
    return 0, " ".join(str(argument) for argument in arguments)


class _DriverResult(Protocol):
    """Result of asyncmy's prepared statements. Its own stubs lack the types."""

    @property
    def rows(self) -> Sequence[Sequence[object]] | None: ...
    @property
    def description(self) -> Sequence[Sequence[object]] | None: ...


class _DriverStatement(Protocol):
    async def execute(self, args: tuple[object, ...]) -> _DriverResult: ...
    async def close(self) -> None: ...


class _DriverConnection(Protocol):
    async def prepare(self, query: str) -> _DriverStatement: ...
    async def query(self, sql: str) -> object: ...
    def get_server_info(self) -> str: ...
    def close(self) -> None: ...


class _DriverConnect(Protocol):
    async def __call__(self, **options: object) -> _DriverConnection: ...


_driver_connect = cast(_DriverConnect, asyncmy.connect)  # pyright: ignore[reportUnknownMemberType]
