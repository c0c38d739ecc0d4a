"""Writes to MySQL as an account that `read_only` and `offline_mode` restrict."""

from __future__ import annotations

import ssl
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pymysql

from .check import WriteNotTried, WriteRejected

ACCOUNT = "steersman_queries"
_CONNECT_SECONDS = 10
_SHORTAGES = frozenset({1040, 3032})  # too many connections, offline mode
_OWN_ERRORS = frozenset({1044, 1045, 1049, 1053, 1142, 1143, 1146, 1226, 3118, 4094})
"""Error numbers that do not concern applications.

The server stops or switches over, or the account or table was changed.
"""
_CLIENT_ERRORS = range(2000, 3000)
# Otherwise sessions would wait for a lock that a person holds for a year.
_SETTINGS = "SET SESSION lock_wait_timeout = 5, innodb_lock_wait_timeout = 5"
_WRITE = (
    "INSERT INTO steersman.heartbeat (id, at) SELECT 1, CURRENT_TIMESTAMP FROM DUAL WHERE {}"
    " ON DUPLICATE KEY UPDATE at = CURRENT_TIMESTAMP"
)
WAITS = (
    "SELECT STATE FROM performance_schema.processlist WHERE USER = 'steersman_queries' AND COMMAND = 'Query'"
    " AND INFO LIKE 'INSERT INTO steersman.heartbeat%'"
)
"""Query for the state of a write."""


@dataclass(frozen=True, slots=True)
class ServerAddress:
    """Socket of the server, and the certificate that the account requires."""

    socket: Path
    certificates: Path


class Writer:
    """An ordinary session with limits on waits for locks."""

    def __init__(self, address: ServerAddress) -> None:
        try:
            self._connection: Any = pymysql.connect(
                unix_socket=str(address.socket),
                user=ACCOUNT,
                ssl=_tls(address.certificates),
                connect_timeout=_CONNECT_SECONDS,
                autocommit=True,
            )
        except (pymysql.MySQLError, OSError) as error:
            code, message = _details(error)
            if code in _SHORTAGES:
                raise WriteRejected(message) from error
            raise WriteNotTried(str(error)) from error

    def position(self) -> str:
        """See `WriterSession.position`."""
        self._run(_SETTINGS)
        return str(self._run("SELECT @@GLOBAL.gtid_executed")[0])

    def write(self, *, with_row: bool) -> None:
        """See `WriterSession.write`."""
        self._run(_WRITE.format("TRUE" if with_row else "FALSE"))

    def close(self) -> None:
        """See `WriterSession.close`."""
        with suppress(pymysql.MySQLError, OSError):
            self._connection.close()

    def _run(self, statement: str) -> Any:
        try:
            with self._connection.cursor() as cursor:
                cursor.execute(statement)
                return cursor.fetchone()
        except (pymysql.MySQLError, OSError) as error:
            code, message = _details(error)
            if not code or code in _OWN_ERRORS or code in _CLIENT_ERRORS:
                raise WriteNotTried(str(error)) from error
            raise WriteRejected(message) from error


def _details(error: Exception) -> tuple[int, str]:
    code, *rest = error.args or (0,)
    return (code if isinstance(code, int) else 0), " ".join(str(rest[0] if rest else error).split())


def _tls(certificates: Path) -> ssl.SSLContext:
    # The connection is a socket file in this pod: the server needs no proof of who it is.
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.load_cert_chain(certificates / "tls.crt", certificates / "tls.key")
    return context
