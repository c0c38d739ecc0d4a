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

from ..addresses import addresses_of
from ..errors import (
    AdministratorRejected,
    CertificateRefused,
    LimitReached,
    LoginRejected,
    Raced,
    ServerUnreachable,
    SqlFailed,
)
from ..in_memory import in_memory
from ..server import Endpoint, Login, Server, TLSMode, Verification

RACED = frozenset(
    {
        1007,  # database exists: made meanwhile
        1008,  # database does not exist: dropped meanwhile
        1049,  # unknown database
        1133,  # no such user (MariaDB)
        1213,  # deadlock
        1396,  # CREATE or ALTER USER failed: made or dropped meanwhile
        1410,  # GRANT to a user who does not exist
    }
)
"""Error numbers that mean: somebody else was at it at the same time, look again."""

NOT_LET_IN = RACED | {1044}
"""At a login: nothing was granted on the database, or nothing yet."""

CANNOT_CONNECT = 2003

AWAY = frozenset(
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
"""Error numbers that mean: no server at the moment."""

LIMITS = frozenset({1203, 1226})
"""Too many connections of this user, or so much asked within an hour. The servers count after the password."""

EXPIRED = frozenset({1820, 1862})
"""The password is right, but nothing may be done with it before it is changed."""

WRONG_PASSWORD = frozenset({1045, 1698}) | EXPIRED
"""The password is wrong, or right but expired. Once logged in, 1045 is a right that the account does not have."""

LOCKED = frozenset({3118, 3955, 4150, 4151})
"""The account is locked: by hand or after too many failures, in MySQL's numbers and MariaDB's."""


_PINNED = {
    # What `init_connect` says comes after the driver asked for it.
    "autocommit": "ON",
    "sql_select_limit": "18446744073709551615",
    "sql_big_selects": "ON",
    "sql_safe_updates": "OFF",
    # Else a database goes with tables that others, elsewhere, refer to.
    "foreign_key_checks": "ON",
}
_PINNED_ON_MYSQL = {
    "sql_mode": "'STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION'",
    "transaction_read_only": "OFF",
    "transaction_isolation": "'REPEATABLE-READ'",
    "max_execution_time": "0",
}
_PINNED_ON_MARIADB = {
    # Without NO_AUTO_CREATE_USER, its GRANT makes the missing user, with an empty password.
    "sql_mode": "'STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION,NO_AUTO_CREATE_USER'",
    "tx_read_only": "OFF",
    # At a lower level it writes nothing where binary logs have the format STATEMENT.
    "tx_isolation": "'REPEATABLE-READ'",
    "max_statement_time": "0",
}
"""What a server may have set for all sessions, and with which the operator would see less than there is, or could not
write. Each may be set by every account: the others take rights that an administrator may not have.

Not the character set, where a server goes by its own whatever is asked for: names are then what all clients mean."""
_WAITS = ("lock_wait_timeout = ?", "innodb_lock_wait_timeout = ?")


class Session:
    """One open connection, in autocommit mode."""

    def __init__(self, endpoint: Endpoint, connection: _Connection, deadline: float) -> None:
        self._endpoint = endpoint
        self._connection = connection
        self._deadline = deadline
        self._broken = False
        self._refused = False

    @property
    def is_mariadb(self) -> bool:
        return "mariadb" in self._connection.get_server_info().lower()

    @property
    def usable(self) -> bool:
        """Whether it is open and between two statements, none of which was refused."""
        return not self._broken and not self._refused

    async def begin_use(self, deadline: float) -> bool:
        """Bound every wait from here on by the deadline (the event loop's time); whether the server answers."""
        loop = asyncio.get_running_loop()
        self._deadline = deadline
        seconds = max(1, math.ceil((deadline - loop.time()) / 2))
        pinned = _PINNED | (_PINNED_ON_MARIADB if self.is_mariadb else _PINNED_ON_MYSQL)
        setting = ", ".join([*(f"{name} = {value}" for name, value in pinned.items()), *_WAITS])
        try:
            await self.rows("setting up the session", f"SET SESSION {setting}", *[seconds] * len(_WAITS))
        except ServerUnreachable:
            if loop.time() >= deadline:
                raise
            return False
        return True

    def end_use(self) -> None:
        """Nothing to end: each statement looks at the deadline itself."""

    def sever(self) -> None:
        """Break it off."""
        self._broken = True
        self._connection.close()

    async def close(self) -> None:
        """End it."""
        self._connection.close()

    async def rows(self, doing: str, query: str, *values: object) -> list[Mapping[str, Any]]:
        """What a query finds, its `?` bound to the values, by column name. In a list, which IN takes,
        nothing is found where it is empty.
        """
        if any(value == [] for value in values):
            return []
        text, *rest = query.split("?")
        bound: list[object] = []
        for value, part in zip(values, rest, strict=True):
            listed = cast("list[object]", value) if isinstance(value, list) else None
            bound += [value] if listed is None else listed
            text += ("?" if listed is None else f"({', '.join('?' * len(listed))})") + part
        result = await self._execute(doing, text, tuple(bound))
        names = [str(column[0]) for column in result.description or ()]
        return [dict(zip(names, row, strict=True)) for row in result.rows or ()]

    async def run(self, doing: str, statement: str) -> None:
        """Run a statement that changes something. `doing` says in words what, for a possible error."""
        await self._execute(doing, statement, ())

    async def command(self, doing: str, statement: str) -> None:
        """Run one of those that cannot be prepared. Nothing of anybody's may stand in it but names, quoted."""
        async with self._bounded(doing):
            await self._connection.query(statement)

    async def _execute(self, doing: str, statement: str, values: tuple[object, ...]) -> _Result:
        async with self._bounded(doing):
            prepared = await self._connection.prepare(statement)
            try:
                return await prepared.execute(values)
            finally:
                await prepared.close()

    @contextlib.asynccontextmanager
    async def _bounded(self, doing: str) -> AsyncGenerator[None]:
        """By the deadline, and with errors of our own."""
        done = False
        try:
            async with asyncio.timeout_at(self._deadline):
                yield
            done = True
        except TimeoutError:
            raise ServerUnreachable(self._endpoint, f"no answer in time while {doing}") from None
        except OSError as error:
            raise ServerUnreachable(self._endpoint, f"while {doing}: {error}") from None
        except MySQLError as error:
            failure = self._failure(doing, error)
            done = not isinstance(failure, ServerUnreachable)
            # A right over the whole server that is given now counts from the next login on.
            self._refused = isinstance(failure, SqlFailed | Raced)
            raise failure from None
        finally:
            # Cut off in the middle, what comes next on the wire would be taken for the next answer.
            self._broken = self._broken or not done

    def _failure(self, doing: str, error: MySQLError) -> Exception:
        number, message = _told(error)
        if number in EXPIRED:
            return LoginRejected(message, number)
        if number in LIMITS:
            return LimitReached(self._endpoint, f"while {doing}: {message}")
        if number in AWAY or number == 0:
            return ServerUnreachable(self._endpoint, f"while {doing}: {message}")
        failure = SqlFailed(doing, cast("str | None", error.sqlstate), message)
        return Raced(failure) if number in RACED else failure


def identifier(name: str) -> str:
    """A quoted identifier. Between backticks the backtick alone is special, whatever the `sql_mode`."""
    return "`" + name.replace("`", "``") + "`"


def pattern(name: str) -> str:
    """What means this database alone in a GRANT, where `_` and `%` stand for any character."""
    return "".join("\\" + character if character in "\\_%" else character for character in name)


ANYWHERE = "%"
"""The host of an account that may log in from everywhere."""


def account(username: str, host: str = ANYWHERE) -> str:
    """A user, from anywhere unless a host is given, quoted."""
    return f"{identifier(username)}@{identifier(host)}"


@contextlib.asynccontextmanager
async def logged_in(server: Server, deadline: float) -> AsyncGenerator[Session]:
    """A session with the server's own login, during the block.

    Raises `AdministratorRejected`, and else as `connect` does.
    """
    try:
        session = await connect(server, server.login, None, deadline)
    except LoginRejected as refusal:
        raise AdministratorRejected(server.login.username, str(refusal)) from None
    try:
        yield session
    finally:
        await session.close()


async def connect(server: Server, login: Login, database: str | None, deadline: float) -> Session:
    """A session, by the deadline (the event loop's time, seconds). TLS always, since MySQL may ask for the password.

    Raises `LoginRejected`, `ServerUnreachable`, or `Raced` where the account may not enter the database.
    """
    endpoint = server.endpoint
    addresses = await addresses_of(endpoint, deadline)
    remaining = deadline - asyncio.get_running_loop().time()
    try:
        async with asyncio.timeout(max(remaining, 0)):
            connection = await _opened(
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
        return Session(endpoint, connection, deadline)
    except TimeoutError:
        raise ServerUnreachable(endpoint, "no answer in time while connecting") from None
    except MySQLError as error:
        number, message = _told(error)
        if number in WRONG_PASSWORD | LOCKED:
            raise LoginRejected(message, number) from None
        if number in LIMITS:
            raise LimitReached(endpoint, message) from None
        if number in NOT_LET_IN:
            raise Raced(SqlFailed(f"logging in as {login.username}", None, message)) from None
        if any(sign in message for sign in _DISTRUST):
            raise CertificateRefused(endpoint, message) from None
        raise ServerUnreachable(endpoint, _NO_TLS if "WRONG_VERSION_NUMBER" in message else message) from None
    except (OSError, ValueError) as error:
        # Of the latter kind are authorities that are no certificates.
        raise ServerUnreachable(endpoint, str(error)) from None


async def _opened(addresses: Sequence[str], **options: object) -> _Connection:
    """A connection to the first address where one can be opened."""
    failures: list[MySQLError] = []
    for address in addresses:
        try:
            return await _open(host=address, **options)
        except MySQLError as error:
            if _told(error)[0] != CANNOT_CONNECT:
                raise
            failures.append(error)
    # DNS names them in any order, and that is no news.
    raise min(failures, key=str)


_DISTRUST = ("CERTIFICATE_VERIFY_FAILED", "ALERT_UNKNOWN_CA", "ALERT_BAD_CERTIFICATE", "ALERT_CERTIFICATE")
_NO_TLS = "the server offers no TLS, without which the administrator's password is not shown to it"
"""It answers the beginning of TLS in clear text."""


class _Named(ssl.SSLContext):
    """Of a server that is known by its name, whichever address asyncmy takes for that."""

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
    context = _Named(ssl.PROTOCOL_TLS_CLIENT)
    context.host = host
    context.check_hostname = verification.mode is TLSMode.VERIFY_FULL
    if verification.mode in (TLSMode.VERIFY_FULL, TLSMode.VERIFY_CA):
        if verification.authorities is not None:
            context.load_verify_locations(cadata=verification.authorities.decode())
        else:
            context.load_default_certs()
    else:
        context.verify_mode = ssl.CERT_NONE
    if login.certificate is not None:
        with in_memory(login.certificate.chain) as chain, in_memory(login.certificate.key) as key:
            context.load_cert_chain(chain, key)
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
    async def query(self, sql: str) -> object: ...
    def get_server_info(self) -> str: ...
    def close(self) -> None: ...


class _Open(Protocol):
    async def __call__(self, **options: object) -> _Connection: ...


_open = cast(_Open, asyncmy.connect)  # pyright: ignore[reportUnknownMemberType]
