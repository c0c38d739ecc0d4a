"""Connections to PostgreSQL with pinned settings, deadlines and the operator's errors.

Each connection pins `search_path` to `pg_catalog` in its startup packet. This overrides values that a database's
owner has set with ALTER DATABASE or ALTER ROLE, so no function or operator planted in another schema is called.
psycopg composes statements, and values are bound parameters. Other settings of a database are overridden by name
(`session_overrides`).
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import os
import re
import socket
import ssl
from collections.abc import AsyncGenerator, Generator, Mapping
from types import MappingProxyType
from typing import Any, LiteralString, cast

import psycopg
from psycopg import sql
from psycopg.abc import Buffer
from psycopg.adapt import AdaptersMap, Loader
from psycopg.pq import TransactionStatus
from psycopg.rows import TupleRow

from steersman_databases.engines.connection.dns import resolve
from steersman_databases.engines.connection.memfd import memory_file
from steersman_databases.engines.connection.receive_limit import ReceiveLimit
from steersman_databases.engines.errors import (
    AccessDenied,
    AdministratorRejected,
    CertificateRefused,
    ConcurrentChange,
    EngineError,
    LimitReached,
    LoginRejected,
    RoleMissing,
    ServerUnreachable,
    SqlFailed,
)
from steersman_databases.engines.server import DatabaseServer, Login, TLSMode, Verification

from .event_triggers import FAILED_TRIGGERS_QUERY

CONCURRENT_CHANGE_CODES = frozenset(
    {
        "42710",  # duplicate_object: the role was created meanwhile.
        "42P04",  # duplicate_database.
        "23505",  # unique_violation in a catalog: the same two, a moment earlier.
        "42704",  # undefined_object: the role was dropped meanwhile.
        "3D000",  # Database dropped meanwhile: invalid_catalog_name.
        "55006",  # Template in use by another client: object_in_use.
        "40001",  # Serialization failure.
        "40P01",  # Deadlock detected.
    }
)
"""SQLSTATEs of concurrent changes, after which a new inspection is necessary."""

OBJECT_IN_USE = "2BP01"
"""dependent_objects_still_exist. The detail names them."""

_DETAIL_CODES = (
    OBJECT_IN_USE,
    "42501",  # insufficient_privilege: since version 16 the detail names the privilege and the object
)

QUERY_CANCELED = "57014"
"""The statement took longer than `statement_timeout`."""

_STATEMENT_TIMEOUT_SHARE = 0.9
"""Share of the time until the deadline for one statement.

So the server itself can report the timeout.
"""
_MAX_LOCK_TIMEOUT_SECONDS = 7.5

TOO_MANY_CONNECTIONS = "53300"
"""SQLSTATE of a connection beyond a database's own limit."""

UNREACHABLE_CLASSES = ("08", "53", "57P")
"""Prefixes of SQLSTATEs of an unavailable server.

The connection is lost, or the server is out of resources, starting or stopping.
"""


class _LenientTextLoader(Loader):
    """Loader of text with arbitrary bytes.

    Text in shared catalogs has the encoding of the client that wrote it.
    """

    def load(self, data: Buffer) -> str:
        return bytes(data).decode(errors="replace")


_ADAPTERS = AdaptersMap(psycopg.adapters)
for _type in ("text", "name", "varchar", "bpchar"):
    _ADAPTERS.register_loader(_type, _LenientTextLoader)


class PostgreSQLSession:
    """An open connection in autocommit mode."""

    def __init__(self, server: DatabaseServer, connection: psycopg.AsyncConnection[TupleRow]) -> None:
        self._endpoint = server.endpoint
        self._connection = connection
        self._aborted = False
        self._deadline_timer: asyncio.TimerHandle | None = None
        self._limit = 0.0
        self._error_context = ""

    @property
    def _descriptor(self) -> int:
        """Descriptor of the socket, or -1 if it is closed."""
        with contextlib.suppress(psycopg.OperationalError):
            return self._connection.pgconn.socket
        return -1

    @property
    def usable(self) -> bool:
        """Return True if it is open and not in a transaction."""
        return not self._aborted and self._connection.pgconn.transaction_status == TransactionStatus.IDLE

    async def begin_use(self, deadline: float) -> bool:
        """Limit each following wait by the deadline (the event loop's time).

        Returns True if the server responds and is not a standby. A connection may outlive the primary role of its
        server.
        """
        loop = asyncio.get_running_loop()
        self.end_use()
        self._deadline_timer = loop.call_at(deadline, self.abort)
        remaining = deadline - loop.time()
        self._limit = max(0.001, remaining * _STATEMENT_TIMEOUT_SHARE)
        bounds = (self._limit, max(0.001, min(remaining / 2, _MAX_LOCK_TIMEOUT_SECONDS)))
        try:
            [(standby, *_)] = await self.rows(
                "beginning to work", _TIMEOUTS_QUERY, *(str(math.ceil(seconds * 1000)) for seconds in bounds)
            )
        except ServerUnreachable:
            self.end_use()
            if loop.time() >= deadline:
                raise
            return False
        return not standby

    def end_use(self) -> None:
        """Stop enforcing the deadline."""
        if self._deadline_timer is not None:
            self._deadline_timer.cancel()
            self._deadline_timer = None

    async def close(self) -> None:
        """Close the connection."""
        self.end_use()
        await self._connection.close()

    async def rows(self, operation: str, query: LiteralString, *values: object) -> list[TupleRow]:
        """Return the rows of a query, with `%s` bound to the values."""
        cursor = await self._execute(operation, query, values)
        try:
            return await cursor.fetchall()
        except psycopg.Error as error:
            raise self._failure(operation, error, is_read=True) from None

    async def run(self, operation: str, statement: sql.Composed) -> None:
        """Run a statement that changes something.

        Args:
            operation: description for a possible error.

        Raises:
            SqlFailed: the server refused it, or it took too long. A server that executes it is reachable.
        """
        try:
            await self._execute(operation, statement, None)
        except SqlFailed as failure:
            if not (triggers := await self._failed_event_triggers()):
                raise
            reason = f"{failure.message}. It was raised by event trigger {triggers}: correct or disable it"
            raise SqlFailed(operation, failure.sqlstate, reason) from None

    async def _failed_event_triggers(self) -> str:
        """Return the event triggers that raised the last error, or ""."""
        context, self._error_context = self._error_context, ""
        if not context or self._aborted:
            return ""
        with contextlib.suppress(EngineError):  # it would replace the error to report
            # The failure leaves a transaction behind, which accepts no query.
            await self._execute("ending a transaction", "ROLLBACK", None)
            found = await self.rows("inspecting event triggers", FAILED_TRIGGERS_QUERY, context)
            return ", ".join(str(name) for (name,) in found)
        return ""

    @contextlib.asynccontextmanager
    async def transaction(self) -> AsyncGenerator[None]:
        """Run all statements of the block in one transaction.

        A failure leaves the session in the transaction, so that it is not usable any more.
        """
        await self._execute("beginning a transaction", "BEGIN", None)
        yield
        await self._execute("ending a transaction", "COMMIT", None)

    def abort(self) -> None:
        """Shut down the socket, so that pending requests fail at once.

        Cancellation does not suffice: psycopg would send a cancel request and wait for the response, which a server
        that
        hangs does not send.
        """
        self._aborted = True
        closed_already = contextlib.suppress(psycopg.OperationalError, OSError)
        with closed_already, socket.socket(fileno=os.dup(self._connection.pgconn.socket)) as duplicate:
            duplicate.shutdown(socket.SHUT_RDWR)

    async def _execute(
        self, operation: str, query: LiteralString | sql.Composed, values: tuple[object, ...] | None
    ) -> psycopg.AsyncCursor[TupleRow]:
        limit = ReceiveLimit(self._descriptor, self.abort)
        execution = asyncio.ensure_future(self._connection.execute(query, values))
        try:
            with limit:
                return await asyncio.shield(execution)
        except asyncio.CancelledError:
            self.abort()
            await asyncio.gather(execution, return_exceptions=True)
            raise
        except psycopg.Error as error:
            if limit.exceeded:
                raise limit.error(self._endpoint, operation) from None
            raise self._failure(operation, error, is_read=values is not None) from None

    def _failure(self, operation: str, error: psycopg.Error, *, is_read: bool) -> Exception:
        cancelled = error.sqlstate == QUERY_CANCELED
        if self._aborted or (cancelled and is_read):
            return ServerUnreachable(self._endpoint, f"no response in time while {operation}")
        message = error.diag.message_primary or " ".join(str(error).split())
        self._error_context = error.diag.context or ""
        if cancelled:
            message += f". Its limit is {self._limit:.0f} s: check what blocks it on the server, or do it manually"
        if error.sqlstate in _DETAIL_CODES and error.diag.message_detail:
            message += f": {_truncated(error.diag.message_detail.splitlines())}"
        if error.sqlstate is None and isinstance(error, psycopg.DataError):
            return SqlFailed(operation, None, message)  # the value was never sent to the server
        if error.sqlstate is None or error.sqlstate.startswith(UNREACHABLE_CLASSES):
            return ServerUnreachable(self._endpoint, f"while {operation}: {message}")
        failure = SqlFailed(operation, error.sqlstate, message)
        # Concurrent catalog updates have no SQLSTATE of their own. Developers' messages (elog) are never translated.
        if error.sqlstate in CONCURRENT_CHANGE_CODES or message == "tuple concurrently updated":
            return ConcurrentChange(failure)
        return failure


def _truncated(lines: list[str]) -> str:
    return "; ".join(lines[:3]) + (f"; and {len(lines) - 3} more" if len(lines) > 3 else "")


_TIMEOUTS_QUERY = """
    SELECT pg_catalog.pg_is_in_recovery(), pg_catalog.set_config('statement_timeout', %s, false),
           pg_catalog.set_config('lock_timeout', %s, false),
           CASE WHEN pg_catalog.current_setting('transaction_timeout', true) <> ''
               THEN pg_catalog.set_config('transaction_timeout', '0', false) END
"""
"""Sets the timeouts of a session.

The last parameter does not exist before version 17, so it cannot be in the startup packet.
"""


@contextlib.asynccontextmanager
async def logged_in(
    server: DatabaseServer,
    deadline: float,
    database: str | None = None,
    session_settings: Mapping[str, str] = MappingProxyType({}),
) -> AsyncGenerator[PostgreSQLSession]:
    """Provide a session with the server's own login during the block.

    It is in the maintenance database unless `database` names another.

    Args:
        session_settings: see `connect`.

    Raises:
        AdministratorRejected: the server rejects the login.
        ServerUnreachable: see `connect`.
    """
    try:
        session = await connect(
            server, server.login, database or server.maintenance_database, deadline, session_settings
        )
    except LoginRejected as login_error:
        raise AdministratorRejected(server.login.username, str(login_error)) from None
    try:
        yield session
    finally:
        await session.close()


async def connect(
    server: DatabaseServer,
    login: Login,
    database: str,
    deadline: float,
    session_settings: Mapping[str, str] = MappingProxyType({}),
) -> PostgreSQLSession:
    """Open a session in a database by the deadline (event loop's time).

    Passwords are sent with SCRAM only, so a foreign server never receives them.

    Args:
        session_settings: parameters with values that override those of the database, see `session_overrides`.

    Raises:
        LoginRejected: the server rejects the credentials.
        ServerUnreachable: there is no response in time.
        SqlFailed: the login may not connect to the database.
    """
    endpoint = server.endpoint
    if any("\0" in message for message in (login.username, login.password or "", database)):
        # libpq would stop reading here, and ignore the parameters that verify the server.
        raise LoginRejected("no name and no password has a NUL character in it")
    if server.verification.mode is TLSMode.DISABLE and not f"{login.username}{database}".isprintable():
        # The server may be of another protocol, which reads lines of the unencrypted startup packet as commands.
        raise LoginRejected("without TLS, names must not have control characters")
    addresses = await resolve(endpoint, deadline, server.networks)
    remaining = deadline - asyncio.get_running_loop().time()
    try:
        with tls_parameters(server.verification, login) as tls:
            async with asyncio.timeout(max(remaining, 0)):
                connection = await psycopg.AsyncConnection[TupleRow].connect(
                    # The certificate must match the name. psycopg resolves hosts that have no address in `hostaddr`.
                    host=",".join(endpoint.host for _ in addresses),
                    hostaddr=",".join(addresses),
                    port=endpoint.port,
                    user=login.username,
                    password=login.password,
                    dbname=database,
                    autocommit=True,
                    prepare_threshold=None,  # several statements in one query cannot be prepared
                    gssencmode="disable",
                    require_auth=_login_methods(login),
                    application_name="steersman",
                    client_encoding="utf8",
                    connect_timeout=max(1, math.ceil(remaining)),
                    options=_startup_options({**session_settings, **_PINNED_SETTINGS}),
                    context=_ADAPTERS,
                    **cast(Any, tls),
                )
        return PostgreSQLSession(server, connection)
    except (TimeoutError, psycopg.errors.ConnectionTimeout):
        raise ServerUnreachable(endpoint, "no response in time while connecting") from None
    except psycopg.Error as error:
        raise _login_error(server, login, database, _error_text(error)) from None


def _error_text(error: psycopg.Error) -> str:
    """Return the error's message on one line.

    With several addresses psycopg lists all failures in the order of DNS. They are sorted, so that the message stays
    the same.
    """
    message, _, each = str(error).partition("\nMultiple connection attempts failed. All failures were:\n- ")
    return " ".join("; ".join(sorted(each.split("\n- ")) if each else [message]).split())


def _login_error(server: DatabaseServer, login: Login, database: str, message: str) -> Exception:
    """Classify a failed connection by its text, because libpq passes no SQLSTATE.

    Clusters of the operator run with untranslated messages for this reason. In other languages a wrong password
    appears as an unreachable server.
    """
    message = message.removeprefix("connection failed: ")
    if any(marker in message for marker in _REJECTIONS):
        return LoginRejected(message)
    if any(sign in message for sign in _HBA_ERRORS):
        return AccessDenied(server.endpoint, message)
    if any(sign in message for sign in _LIMIT_ERRORS):
        return LimitReached(server.endpoint, message)
    if f'role "{login.username}" does not exist' in message:
        return RoleMissing(server.endpoint, message)
    if any(sign in message for sign in _CERTIFICATE_ERRORS):
        return CertificateRefused(server.endpoint, message)
    if "permission denied for database" in message:
        return SqlFailed(f"connecting to database {database}", "42501", f"{login.username} lacks CONNECT on it")
    if "too many connections for database" in message:
        return SqlFailed(
            f"connecting to database {database}", TOO_MANY_CONNECTIONS, "its connection limit is reached"
        )
    if "FATAL:" in message and "does not exist" in message and f'database "{database}"' in message:
        return ConcurrentChange(SqlFailed(f"connecting to database {database}", "3D000", "it does not exist"))
    if "is not currently accepting connections" in message:
        return ConcurrentChange(
            SqlFailed(
                f"connecting to database {database}", "55000", "it does not allow connections, or is being created"
            )
        )
    return ServerUnreachable(server.endpoint, message)


# Messages of OpenSSL: the server's certificate is refused, or the server refuses the client's with an alert.
_CERTIFICATE_ERRORS = (
    *("certificate verify failed", "does not match host name"),
    *("alert unknown ca", "alert bad certificate", "alert certificate"),
)
_REJECTIONS = (
    "password authentication failed",
    "certificate authentication failed",
    "is not permitted to log in",
    "no password supplied",
)

_HBA_ERRORS = (
    *("pg_hba.conf rejects", "no pg_hba.conf entry", "connection requires a valid client certificate"),
    # From libpq: the matching line requires another method than SCRAM, or none.
    "authentication method requirement",
)
"""Messages of access rules.

The server searches the matching line before it checks the password, so these imply nothing about the password.
Source: src/backend/libpq/auth.c, and src/interfaces/libpq/fe-auth.c, check_expected_areq.
"""

_LIMIT_ERRORS = ("too many connections for role", "remaining connection slots are reserved for")
"""Messages of limits, which the server checks after the password.

Source: src/backend/utils/init/postinit.c, miscinit.c.
"""


def _login_methods(login: Login) -> str:
    methods = ["scram-sha-256"] if login.password is not None else []
    return ",".join([*methods, "none"] if login.certificate is not None else methods or ["none"])


_MODES = {
    TLSMode.VERIFY_FULL: "verify-full",
    TLSMode.VERIFY_CA: "verify-ca",
    TLSMode.REQUIRE: "require",
    TLSMode.DISABLE: "disable",
}


@contextlib.contextmanager
def tls_parameters(verification: Verification, login: Login) -> Generator[dict[str, str]]:
    """Yield the TLS parameters of libpq.

    libpq reads certificates from files only, so they are in-memory files.
    """
    with contextlib.ExitStack() as files:
        reported = {"sslmode": _MODES[verification.mode], "sslcertmode": "disable", "sslrootcert": "", "sslcrl": ""}
        if verification.mode in (TLSMode.VERIFY_FULL, TLSMode.VERIFY_CA):
            given = verification.ca_bundle
            reported["sslrootcert"] = (
                files.enter_context(memory_file(given)) if given is not None else _system_ca_file()
            )
        if login.certificate is not None:
            reported["sslcertmode"] = "require"
            reported["sslcert"] = files.enter_context(memory_file(login.certificate.chain))
            reported["sslkey"] = files.enter_context(memory_file(login.certificate.key))
        yield reported


def _system_ca_file() -> str:
    """Return the file of the authorities that the machine trusts.

    libpq's value `system` does not work, because its bundled OpenSSL searches in another place.
    """
    return ssl.get_default_verify_paths().cafile or "/etc/ssl/certs/ca-certificates.crt"


_PINNED_SETTINGS = {
    "search_path": "pg_catalog",
    # Owners of databases may have set other values for all sessions.
    "role": "none",
    "idle_session_timeout": "0",
    "idle_in_transaction_session_timeout": "60s",
    "default_transaction_read_only": "off",
    # A query after a lock must see what others have committed until then.
    "default_transaction_isolation": "read committed",
    "standard_conforming_strings": "on",
    # During the login there is no other limit, and the server would continue to wait after its client has gone.
    "lock_timeout": "5s",
}


def _startup_options(values: Mapping[str, str]) -> str:
    """Escape options for the startup packet.

    Source: `pg_split_opts` in src/backend/utils/init/postinit.c.
    """
    return " ".join(f"-c {name}=" + _OPTION_SEPARATOR.sub(r"\\\g<0>", value) for name, value in values.items())


_OPTION_SEPARATOR = re.compile(r"[\\\s]")
