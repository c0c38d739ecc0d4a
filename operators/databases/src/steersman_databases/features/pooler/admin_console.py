"""Commands of PgBouncer's admin console, each over its own connection."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Generator, Sequence
from contextlib import contextmanager
from typing import Any, Literal, LiteralString, Protocol

import psycopg
from psycopg import sql
from psycopg.conninfo import make_conninfo
from psycopg.rows import namedtuple_row

from steersman_databases.engines.errors import CertificateRefused, ServerUnreachable
from steersman_databases.engines.postgresql.config.hba import OPERATOR_ROLE
from steersman_databases.engines.postgresql.sql.session import PostgreSQLSession, tls_parameters
from steersman_databases.engines.server import (
    ClientKeyPair,
    DatabaseServer,
    Login,
    ServerEndpoint,
    TLSMode,
    Verification,
)

from .pgbouncer import ADMIN_DATABASE

Command = Literal["PAUSE", "RESUME", "RECONNECT", "RELOAD"]

_TIMEOUT_SECONDS = 5.0
_RACES_WITH_LOGINS: Collection[Command] = ("PAUSE", "RECONNECT")
_LOGIN_WAIT_SECONDS = 4.0
_POLL_SECONDS = 0.02


class AdminConnection(Protocol):
    """A connection to the console, as in `PostgreSQLSession`.

    Rows have attributes named like their columns.
    """

    async def rows(self, operation: str, query: LiteralString, *values: object) -> Sequence[Any]:
        """Return the rows of a command."""
        ...

    async def run(self, operation: str, statement: sql.Composed) -> None:
        """Run a command."""
        ...

    def abort(self) -> None:
        """Abort the connection."""
        ...


async def run_command(endpoint: ServerEndpoint, login: ClientKeyPair, ca_bundle: bytes, text: Command) -> None:
    """Run a command on the PgBouncer at `endpoint`, a pod's address.

    Args:
        login: the operator's certificate.
        ca_bundle: PEM certificates. They sign for this cluster only, so the name, which a pod lacks, is not
            verified.

    Raises:
        EngineError: it does not respond within 5 s after pending logins, or refuses. A `PAUSE` that waited for a
            transaction stays in effect.
    """
    verification = Verification(TLSMode.VERIFY_CA, ca_bundle)
    server = DatabaseServer("postgresql", endpoint, Login(OPERATOR_ROLE, certificate=login), verification)
    try:
        with tls_parameters(verification, server.login) as tls:
            async with asyncio.timeout(_TIMEOUT_SECONDS):
                connection = await psycopg.AsyncConnection.connect(
                    make_conninfo(
                        host=endpoint.host,
                        port=endpoint.port,
                        user=OPERATOR_ROLE,
                        dbname=ADMIN_DATABASE,
                        gssencmode="disable",
                        require_auth="none",
                        **tls,
                    ),
                    autocommit=True,
                    row_factory=namedtuple_row,
                    # The console does not support prepared statements, which psycopg would use for repeated queries.
                    prepare_threshold=None,
                )
    except (TimeoutError, psycopg.Error) as error:
        message = " ".join(str(error).split()) or "no response in time"
        raise (CertificateRefused if "SSL error:" in message else ServerUnreachable)(endpoint, message) from None
    session = PostgreSQLSession(server, connection)
    try:
        await execute(session, text)
    finally:
        await session.close()


async def execute(console: AdminConnection, text: Command) -> None:
    """Run a command.

    Commands that would interrupt logins to servers wait for these.

    The wait ends after some seconds. PgBouncer treats a login that it interrupted as refused by the server. Until
    another login succeeds, a second later, it disconnects each client that sends a query in a pool without another
    connection. Source: PgBouncer 1.24, objects.c, `tag_pool_dirty`, `disconnect_server` and `check_fast_fail`;
    observed with 1.24.1.
    """
    if text in _RACES_WITH_LOGINS:
        with _with_deadline(console):
            await _wait_for_logins(console)
    with _with_deadline(console):
        await console.run(text, sql.Composed([sql.SQL(text)]))


async def _wait_for_logins(console: AdminConnection) -> None:
    loop = asyncio.get_running_loop()
    until = loop.time() + _LOGIN_WAIT_SECONDS
    while loop.time() < until:
        if not any(pool.sv_login for pool in await console.rows("inspecting the pools", "SHOW POOLS")):
            return
        await asyncio.sleep(_POLL_SECONDS)


@contextmanager
def _with_deadline(console: AdminConnection) -> Generator[None]:
    """Abort the connection at the deadline.

    Cancellation does not suffice, see `PostgreSQLSession.abort`.
    """
    alarm = asyncio.get_running_loop().call_later(_TIMEOUT_SECONDS, console.abort)
    try:
        yield
    finally:
        alarm.cancel()
