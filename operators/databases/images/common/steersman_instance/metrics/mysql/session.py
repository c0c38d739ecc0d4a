"""Sessions with the local MySQL server, with a time limit."""

from __future__ import annotations

import ssl
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pymysql
import pymysql.cursors

from ..catalog import CollectFailed, SessionLost

MONITOR_ACCOUNT = "steersman_monitor"
"""Account with PROCESS, REPLICATION CLIENT, and read access to performance_schema."""
QUERIES_ACCOUNT = "steersman_queries"
"""Login of user queries. It reads what users grant to it."""
_CONNECT_TIMEOUT_SECONDS = 3
_RESPONSE_TIMEOUT_SECONDS = 5
_SETTINGS = "SET SESSION max_execution_time = 2000, lock_wait_timeout = 1, sql_mode = 'STRICT_ALL_TABLES'"
_CLIENT_ERRORS = range(2000, 3000)


@dataclass(frozen=True)
class ServerAddress:
    """Parameters to reach the server.

    Defaults to the socket of the pod. The account requires the certificate of the cluster's members, which is in
    `certificates`.
    """

    certificates: Path | None = Path("/etc/steersman/peer")
    user: str = MONITOR_ACCOUNT
    more: Mapping[str, Any] = field(default_factory=lambda: {"unix_socket": "/run/steersman/mysqld.sock"})

    def for_user_queries(self) -> ServerAddress:
        """Return the address with the login of user queries."""
        return replace(self, user=QUERIES_ACCOUNT)


class MySQLSession:
    """A session of the least rights.

    Raises:
        SessionLost: it cannot be opened.
    """

    def __init__(self, address: ServerAddress) -> None:
        try:
            self._connection: Any = pymysql.connect(
                user=address.user,
                connect_timeout=_CONNECT_TIMEOUT_SECONDS,
                read_timeout=_RESPONSE_TIMEOUT_SECONDS,
                write_timeout=_RESPONSE_TIMEOUT_SECONDS,
                init_command=_SETTINGS,
                autocommit=True,
                cursorclass=pymysql.cursors.DictCursor,
                **({} if address.certificates is None else {"ssl": _tls(address.certificates)}),
                **dict(address.more),
            )
        except (pymysql.MySQLError, OSError) as error:
            raise SessionLost(str(error)) from error

    def rows(self, sql: str) -> Sequence[Mapping[str, object]]:
        """See `Session.rows`."""
        try:
            with self._connection.cursor() as cursor:
                cursor.execute(sql)
                return list(cursor.fetchall())
        except (pymysql.MySQLError, OSError) as error:
            code = error.args[0] if error.args else 0
            if isinstance(error, (OSError, pymysql.InterfaceError)) or code in _CLIENT_ERRORS:
                raise SessionLost(str(error)) from error
            raise CollectFailed(str(error)) from error

    def close(self) -> None:
        """See `ClosableSession.close`."""
        with suppress(pymysql.MySQLError, OSError):
            self._connection.close()


def _tls(certificates: Path) -> ssl.SSLContext:
    # The connection is a socket file in this pod: the server needs no proof of who it is.
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.load_cert_chain(certificates / "tls.crt", certificates / "tls.key")
    return context
