"""PgBouncer's administrator's console: commands, each over a connection of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Generator, Sequence
from contextlib import contextmanager
from typing import Any, Literal, LiteralString, Protocol

import psycopg
from psycopg import sql
from psycopg.conninfo import make_conninfo
from psycopg.rows import namedtuple_row

from ..errors import CertificateRefused, ServerUnreachable
from ..server import ClientCertificate, Endpoint, Login, Server, TLSMode, Verification
from .hba import OPERATOR
from .pgbouncer import CONSOLE
from .session import Session, tls_parameters

Command = Literal["PAUSE", "RESUME", "RECONNECT", "RELOAD"]

_SECONDS = 5.0
_CUT_LOGINS_OFF: Collection[Command] = ("PAUSE", "RECONNECT")
_LONGEST_LOGINS = 4.0
_LOOK_AGAIN = 0.02


class Console(Protocol):
    """A connection to it, as `Session` has it; rows know their columns by name."""

    async def rows(self, doing: str, query: LiteralString, *values: object) -> Sequence[Any]:
        """What a command shows."""
        ...

    async def run(self, doing: str, statement: sql.Composed) -> None:
        """Runs a command."""
        ...

    def sever(self) -> None:
        """Ends it at once."""
        ...


async def command(endpoint: Endpoint, login: ClientCertificate, authorities: bytes, text: Command) -> None:
    """Has the PgBouncer at ``endpoint``, a pod's address, carry ``text`` out.

    Args:
        login: the operator's.
        authorities: PEM; they sign for this cluster only, so the name, which a pod has none of, is not asked for.

    Raises:
        EngineError: it does not answer in 5 s after others have logged in, or refuses. A ``PAUSE`` that waited for a
            transaction holds on.
    """
    verification = Verification(TLSMode.VERIFY_CA, authorities)
    server = Server("postgresql", endpoint, Login(OPERATOR, certificate=login), verification)
    try:
        with tls_parameters(verification, server.login) as tls:
            async with asyncio.timeout(_SECONDS):
                connection = await psycopg.AsyncConnection.connect(
                    make_conninfo(
                        host=endpoint.host,
                        port=endpoint.port,
                        user=OPERATOR,
                        dbname=CONSOLE,
                        gssencmode="disable",
                        require_auth="none",
                        **tls,
                    ),
                    autocommit=True,
                    row_factory=namedtuple_row,
                    # The console takes no statement that is prepared, as one that is asked again and again would be.
                    prepare_threshold=None,
                )
    except (TimeoutError, psycopg.Error) as error:
        words = " ".join(str(error).split()) or "no answer in time"
        raise (CertificateRefused if "SSL error:" in words else ServerUnreachable)(endpoint, words) from None
    session = Session(server, connection)
    try:
        await carry_out(session, text)
    finally:
        await session.close()


async def carry_out(console: Console, text: Command) -> None:
    """Runs a command; one that cuts logins to servers off when there are none, or after some seconds.

    PgBouncer takes a login that it cut off itself for a refusal of the server's: until another one succeeds, a second
    later, it ends every client that asks for something in a pool without another connection. Source: PgBouncer 1.24,
    objects.c, ``tag_pool_dirty``, ``disconnect_server`` and ``check_fast_fail``; seen with 1.24.1.
    """
    if text in _CUT_LOGINS_OFF:
        with _bounded(console):
            await _between_logins(console)
    with _bounded(console):
        await console.run(text, sql.Composed([sql.SQL(text)]))


async def _between_logins(console: Console) -> None:
    loop = asyncio.get_running_loop()
    until = loop.time() + _LONGEST_LOGINS
    while loop.time() < until:
        if not any(pool.sv_login for pool in await console.rows("looking at the pools", "SHOW POOLS")):
            return
        await asyncio.sleep(_LOOK_AGAIN)


@contextmanager
def _bounded(console: Console) -> Generator[None]:
    """Cancelling would not do, see `Session.sever`."""
    alarm = asyncio.get_running_loop().call_later(_SECONDS, console.sever)
    try:
        yield
    finally:
        alarm.cancel()
