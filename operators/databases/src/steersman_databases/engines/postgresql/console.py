"""PgBouncer's administrator's console: commands, each over a connection of its own."""

from __future__ import annotations

import asyncio
from typing import Literal

import psycopg
from psycopg import sql
from psycopg.conninfo import make_conninfo

from ..errors import CertificateRefused, ServerUnreachable
from ..server import ClientCertificate, Endpoint, Login, Server, TLSMode, Verification
from .hba import OPERATOR
from .pgbouncer import CONSOLE
from .session import Session, tls_parameters

Command = Literal["PAUSE", "RESUME", "RECONNECT", "RELOAD"]

_SECONDS = 5.0


async def command(endpoint: Endpoint, login: ClientCertificate, authorities: bytes, text: Command) -> None:
    """Has the PgBouncer at ``endpoint``, a pod's address, carry ``text`` out.

    Args:
        login: the operator's.
        authorities: PEM; they sign for this cluster only, so the name, which a pod has none of, is not asked for.

    Raises:
        EngineError: it does not answer in 5 s, or refuses. A ``PAUSE`` that waited for a transaction holds on.
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
                )
    except (TimeoutError, psycopg.Error) as error:
        words = " ".join(str(error).split()) or "no answer in time"
        raise (CertificateRefused if "SSL error:" in words else ServerUnreachable)(endpoint, words) from None
    session = Session(server, connection)
    alarm = asyncio.get_running_loop().call_later(_SECONDS, session.sever)
    try:
        await session.run(text, sql.Composed([sql.SQL(text)]))
    finally:
        alarm.cancel()
        await session.close()
