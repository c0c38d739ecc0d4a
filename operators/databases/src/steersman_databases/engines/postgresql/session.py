"""Connections to PostgreSQL that cannot be hijacked, cannot hang, and fail with our own errors.

Every connection pins `search_path` to `pg_catalog` in its startup packet, which outranks whatever a database's
owner has set with ALTER DATABASE or ALTER ROLE: no function or operator planted in another schema is ever
called. Statements are composed by psycopg, values go as bound parameters. What else was set for a database is
overridden by name (`overriding`).
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

from ..addresses import addresses_of
from ..errors import (
    AccessRefused,
    AdministratorRejected,
    CertificateRefused,
    LimitReached,
    LoginRejected,
    Raced,
    RoleMissing,
    ServerUnreachable,
    SqlFailed,
)
from ..in_memory import in_memory
from ..server import Login, Server, TLSMode, Verification

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

IN_USE = "2BP01"
"""dependent_objects_still_exist: the detail names them."""

_TOLD_IN_DETAIL = (
    IN_USE,
    "42501",  # insufficient_privilege: since version 16 the detail says which, and on what
)

QUERY_CANCELED = "57014"
"""The statement took longer than `statement_timeout`."""

_OWN_SHARE = 0.9
"""Of the time until the deadline, for one statement: so that the server itself says that it took too long."""
_LONGEST_WAIT_FOR_LOCK = 7.5

FULL = "53300"
"""Of a connection that goes beyond a database's own limit."""

AWAY = ("08", "53", "57P")
"""Beginnings of SQLSTATEs that mean: no server at the moment (lost, out of resources, starting, stopping)."""


class _Readable(Loader):
    """Text, whatever its bytes: what is written down for the whole server has the encoding of whoever wrote it."""

    def load(self, data: Buffer) -> str:
        return bytes(data).decode(errors="replace")


_ADAPTERS = AdaptersMap(psycopg.adapters)
for _type in ("text", "name", "varchar", "bpchar"):
    _ADAPTERS.register_loader(_type, _Readable)


class Session:
    """One open connection, in autocommit mode."""

    def __init__(self, server: Server, connection: psycopg.AsyncConnection[TupleRow]) -> None:
        self._endpoint = server.endpoint
        self._connection = connection
        self._severed = False
        self._alarm: asyncio.TimerHandle | None = None
        self._limit = 0.0

    @property
    def usable(self) -> bool:
        """Whether it is open and in no transaction."""
        return not self._severed and self._connection.pgconn.transaction_status == TransactionStatus.IDLE

    async def begin_use(self, deadline: float) -> bool:
        """Bound every wait from here on by the deadline (the event loop's time).

        Whether the server answers, and is no standby: a connection may outlive its server's being the primary.
        """
        loop = asyncio.get_running_loop()
        self.end_use()
        self._alarm = loop.call_at(deadline, self.sever)
        remaining = deadline - loop.time()
        self._limit = max(0.001, remaining * _OWN_SHARE)
        bounds = (self._limit, max(0.001, min(remaining / 2, _LONGEST_WAIT_FOR_LOCK)))
        try:
            [(standby, *_)] = await self.rows(
                "beginning to work", _BOUNDS, *(str(math.ceil(seconds * 1000)) for seconds in bounds)
            )
        except ServerUnreachable:
            self.end_use()
            if loop.time() >= deadline:
                raise
            return False
        return not standby

    def end_use(self) -> None:
        """The deadline counts no more."""
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None

    async def close(self) -> None:
        """End it."""
        self.end_use()
        await self._connection.close()

    async def rows(self, doing: str, query: LiteralString, *values: object) -> list[TupleRow]:
        """What a query finds, its `%s` bound to the values."""
        cursor = await self._execute(doing, query, values)
        try:
            return await cursor.fetchall()
        except psycopg.Error as error:
            raise self._failure(doing, error, looking=True) from None

    async def run(self, doing: str, statement: sql.Composed) -> None:
        """Run a statement that changes something. `doing` says in words what, for a possible error.

        Raises `SqlFailed` also where it takes longer than it may: a server that works on it is not away.
        """
        await self._execute(doing, statement, None)

    @contextlib.asynccontextmanager
    async def transaction(self) -> AsyncGenerator[None]:
        """All of the statements inside, or none: a failure leaves the session in it, which then is of no more use."""
        await self._execute("beginning a transaction", "BEGIN", None)
        yield
        await self._execute("ending a transaction", "COMMIT", None)

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
            raise self._failure(doing, error, looking=values is not None) from None

    def _failure(self, doing: str, error: psycopg.Error, *, looking: bool) -> Exception:
        cancelled = error.sqlstate == QUERY_CANCELED
        if self._severed or (cancelled and looking):
            return ServerUnreachable(self._endpoint, f"no answer in time while {doing}")
        message = error.diag.message_primary or " ".join(str(error).split())
        if cancelled:
            message += f"; it may take {self._limit:.0f} s: see what holds it up on the server, or do it by hand"
        if error.sqlstate in _TOLD_IN_DETAIL and error.diag.message_detail:
            message += f": {_shortened(error.diag.message_detail.splitlines())}"
        if error.sqlstate is None and isinstance(error, psycopg.DataError):
            return SqlFailed(doing, None, message)  # a value that never got to the server
        if error.sqlstate is None or error.sqlstate.startswith(AWAY):
            return ServerUnreachable(self._endpoint, f"while {doing}: {message}")
        failure = SqlFailed(doing, error.sqlstate, message)
        # Two catalog updates at once have no SQLSTATE of their own, and developers' messages (elog) are
        # never translated.
        if error.sqlstate in RACED or message == "tuple concurrently updated":
            return Raced(failure)
        return failure


def _shortened(lines: list[str]) -> str:
    return "; ".join(lines[:3]) + (f"; and {len(lines) - 3} more" if len(lines) > 3 else "")


_BOUNDS = """
    SELECT pg_catalog.pg_is_in_recovery(), pg_catalog.set_config('statement_timeout', %s, false),
           pg_catalog.set_config('lock_timeout', %s, false),
           CASE WHEN pg_catalog.current_setting('transaction_timeout', true) <> ''
               THEN pg_catalog.set_config('transaction_timeout', '0', false) END
"""
"""The last is not known before version 17, so that the startup packet cannot have it."""


@contextlib.asynccontextmanager
async def logged_in(
    server: Server, deadline: float, database: str | None = None, over: Mapping[str, str] = MappingProxyType({})
) -> AsyncGenerator[Session]:
    """A session with the server's own login, in the maintenance database unless another is given, during the block.

    `over` is as for `connect`.

    Raises `AdministratorRejected`, and else as `connect` does.
    """
    try:
        session = await connect(server, server.login, database or server.maintenance_database, deadline, over)
    except LoginRejected as refusal:
        raise AdministratorRejected(server.login.username, str(refusal)) from None
    try:
        yield session
    finally:
        await session.close()


async def connect(
    server: Server, login: Login, database: str, deadline: float, over: Mapping[str, str] = MappingProxyType({})
) -> Session:
    """A session in a database, by the deadline (the event loop's time, seconds).

    `over` are parameters and their values, whatever is set for the database: see `overriding`.
    Passwords are given away by SCRAM only, so a server that is not ours never gets to see them.

    Raises `LoginRejected`, `ServerUnreachable` or, where the login may not come into the database, `SqlFailed`.
    """
    endpoint = server.endpoint
    if any("\0" in words for words in (login.username, login.password or "", database)):
        # libpq would read no further, and so not how the server is to be verified either.
        raise LoginRejected("no name and no password has a NUL character in it")
    addresses = await addresses_of(endpoint, deadline)
    remaining = deadline - asyncio.get_running_loop().time()
    try:
        with tls_parameters(server.verification, login) as tls:
            async with asyncio.timeout(max(remaining, 0)):
                connection = await psycopg.AsyncConnection[TupleRow].connect(
                    # The certificate is to be of the name. psycopg looks up what has no address beside it.
                    host=",".join(endpoint.host for _ in addresses),
                    hostaddr=",".join(addresses),
                    port=endpoint.port,
                    user=login.username,
                    password=login.password,
                    dbname=database,
                    autocommit=True,
                    prepare_threshold=None,  # several statements in one query cannot be prepared
                    gssencmode="disable",
                    require_auth=_methods(login),
                    application_name="steersman",
                    client_encoding="utf8",
                    connect_timeout=max(1, math.ceil(remaining)),
                    options=_options({**over, **_PINNED}),
                    context=_ADAPTERS,
                    **cast(Any, tls),
                )
        return Session(server, connection)
    except (TimeoutError, psycopg.errors.ConnectionTimeout):
        raise ServerUnreachable(endpoint, "no answer in time while connecting") from None
    except psycopg.Error as error:
        raise _refusal(server, login, database, _told(error)) from None


def _told(error: psycopg.Error) -> str:
    """Its words on one line. Of several addresses psycopg tells all in the order of DNS, where another is no news."""
    words, _, each = str(error).partition("\nMultiple connection attempts failed. All failures were:\n- ")
    return " ".join("; ".join(sorted(each.split("\n- ")) if each else [words]).split())


def _refusal(server: Server, login: Login, database: str, message: str) -> Exception:
    """What a failed connection means. libpq hands over no SQLSTATE for it, only the text.

    Ours run with untranslated messages for this; in another language a wrong password is an unreachable server.
    """
    message = message.removeprefix("connection failed: ")
    if any(sign in message for sign in _REJECTIONS):
        return LoginRejected(message)
    if any(sign in message for sign in _RULES):
        return AccessRefused(server.endpoint, message)
    if any(sign in message for sign in _LIMITS):
        return LimitReached(server.endpoint, message)
    if f'role "{login.username}" does not exist' in message:
        return RoleMissing(server.endpoint, message)
    if any(sign in message for sign in _DISTRUST):
        return CertificateRefused(server.endpoint, message)
    if "permission denied for database" in message:
        return SqlFailed(f"connecting to database {database}", "42501", f"{login.username} may not connect to it")
    if "too many connections for database" in message:
        return SqlFailed(f"connecting to database {database}", FULL, "it has as many connections as it may have")
    if "FATAL:" in message and "does not exist" in message and f'database "{database}"' in message:
        return Raced(SqlFailed(f"connecting to database {database}", "3D000", "it is not there"))
    if "is not currently accepting connections" in message:
        return Raced(SqlFailed(f"connecting to database {database}", "55000", "it is closed, or about to be made"))
    return ServerUnreachable(server.endpoint, message)


# OpenSSL's words: the server's certificate is not taken, or by an alert of the server the one that is shown to it.
_DISTRUST = (
    *("certificate verify failed", "does not match host name"),
    *("alert unknown ca", "alert bad certificate", "alert certificate"),
)
_REJECTIONS = (
    "password authentication failed",
    "certificate authentication failed",
    "is not permitted to log in",
    "no password supplied",
)

_RULES = (
    *("pg_hba.conf rejects", "no pg_hba.conf entry", "connection requires a valid client certificate"),
    # libpq's: the line that fits wants another method than SCRAM, or none.
    "authentication method requirement",
)
"""The line that fits is looked for before the password, of which these say nothing. Source: src/backend/libpq/auth.c,
and src/interfaces/libpq/fe-auth.c, check_expected_areq."""

_LIMITS = ("too many connections for role", "remaining connection slots are reserved for")
"""Both are looked at once the password is taken. Source: src/backend/utils/init/postinit.c, miscinit.c."""


def _methods(login: Login) -> str:
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
    """What libpq needs to know of TLS. It reads certificates from files only, so they are anonymous ones."""
    with contextlib.ExitStack() as files:
        told = {"sslmode": _MODES[verification.mode], "sslcertmode": "disable", "sslrootcert": "", "sslcrl": ""}
        if verification.mode in (TLSMode.VERIFY_FULL, TLSMode.VERIFY_CA):
            given = verification.authorities
            told["sslrootcert"] = files.enter_context(in_memory(given)) if given is not None else _trusted()
        if login.certificate is not None:
            told["sslcertmode"] = "require"
            told["sslcert"] = files.enter_context(in_memory(login.certificate.chain))
            told["sslkey"] = files.enter_context(in_memory(login.certificate.key))
        yield told


def _trusted() -> str:
    """The authorities that the machine trusts. Not libpq's `system`: its OpenSSL comes along and looks elsewhere."""
    return ssl.get_default_verify_paths().cafile or "/etc/ssl/certs/ca-certificates.crt"


_PINNED = {
    "search_path": "pg_catalog",
    # Owners of databases may have set others for all who come.
    "role": "none",
    "idle_session_timeout": "0",
    "idle_in_transaction_session_timeout": "60s",
    "default_transaction_read_only": "off",
    # What is looked at behind a lock is to be what others have committed by then.
    "default_transaction_isolation": "read committed",
    "standard_conforming_strings": "on",
    # As long as one logs in it has no other bound, and who waits there goes on when its client is gone.
    "lock_timeout": "5s",
}


def _options(values: Mapping[str, str]) -> str:
    """As the startup packet has them. Source: `pg_split_opts` in src/backend/utils/init/postinit.c."""
    return " ".join(f"-c {name}=" + _SEPARATING.sub(r"\\\g<0>", value) for name, value in values.items())


_SEPARATING = re.compile(r"[\\\s]")
