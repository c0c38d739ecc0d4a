"""Writes to PostgreSQL as the account of user queries."""

from __future__ import annotations

from contextlib import closing, suppress
from dataclasses import dataclass
from typing import Any

import psycopg2

from .check import WriteNotTried, WriteRejected

_APPLICATION = "steersman_write_check"
_CONNECT_SECONDS = 10
_SHORTAGES = ("too many clients already", "remaining connection slots", "timeout expired")
"""Messages of rejected logins that applications get as well.

libpq passes no SQLSTATE.

Source: src/backend/storage/lmgr/proc.c, src/backend/utils/init/postinit.c.
"""
_OWN_CLASSES = ("08", "28", "3D", "3F", "42", "57P")
"""SQLSTATE prefixes of lost connections and of a changed account or table."""
_WRITE = """
    INSERT INTO steersman.heartbeat AS t (id, at) SELECT 1, pg_catalog.now() WHERE %s
    ON CONFLICT (id) DO UPDATE SET at = EXCLUDED.at
"""
_POSITION = "SELECT pg_catalog.pg_snapshot_xmax(pg_catalog.pg_current_snapshot())::pg_catalog.text"
_WAITS = "SELECT wait_event FROM pg_stat_activity WHERE application_name = %s AND state = 'active'"
_REASONS = {"SyncRep": "no synchronous replica confirms it"}


@dataclass(frozen=True, slots=True)
class ServerAddress:
    """Parameters of libpq. Defaults to the socket of the pod, which admits both users without a password."""

    host: str = "/run/steersman"
    user: str = "steersman_queries"
    superuser: str = "postgres"
    port: int = 5432


class Writer:
    """A session in the maintenance database. It has all settings of an ordinary one."""

    def __init__(self, address: ServerAddress) -> None:
        try:
            self._connection: Any = _connect(address, address.user)
        except psycopg2.OperationalError as error:
            message = " ".join(str(error).split())
            if any(each in message for each in _SHORTAGES):
                raise WriteRejected(message.partition("FATAL: ")[2].strip() or message) from error
            raise WriteNotTried(message) from error

    def position(self) -> str:
        """See `WriterSession.position`."""
        return str(self._run(_POSITION)[0])

    def write(self, *, with_row: bool) -> None:
        """See `WriterSession.write`."""
        self._run(_WRITE, with_row)

    def close(self) -> None:
        """See `WriterSession.close`."""
        with suppress(psycopg2.Error):
            self._connection.close()

    def _run(self, statement: str, *values: object) -> Any:
        try:
            with self._connection.cursor() as cursor:
                cursor.execute(statement, values or None)
                return cursor.fetchone() if cursor.description else None
        except psycopg2.Error as error:
            if error.pgcode is None or error.pgcode.startswith(_OWN_CLASSES):
                raise WriteNotTried(str(error)) from error
            raise WriteRejected(error.diag.message_primary or str(error)) from error


def describe_wait(address: ServerAddress) -> str:
    """Return what the write of this pod waits for, or ""."""
    try:
        with closing(_connect(address, address.superuser)) as connection, connection.cursor() as cursor:
            cursor.execute("SET statement_timeout = '5s'")
            cursor.execute(_WAITS, (_APPLICATION,))
            row = cursor.fetchone()
    except psycopg2.Error as error:
        return " ".join(str(error).split())
    event = "" if row is None or row[0] is None else str(row[0])
    return _REASONS.get(event, f"it waits for {event}" if event else "")


def _connect(address: ServerAddress, user: str) -> Any:
    connection = psycopg2.connect(
        host=address.host,
        port=address.port,
        user=user,
        dbname="postgres",
        application_name=_APPLICATION if user == address.user else f"{_APPLICATION}_reader",
        connect_timeout=_CONNECT_SECONDS,
    )
    connection.autocommit = True
    return connection
