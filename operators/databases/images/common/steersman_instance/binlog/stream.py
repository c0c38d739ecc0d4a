"""Reads the binary log of the local server over the replication protocol.

`mysqlbinlog --raw` would write files of unbounded size, skip purged transactions and report success. Over the
protocol memory is bounded, the server refuses when transactions are missing, and sends heartbeats while it is idle.

Source: MySQL 9.7 source, sql/rpl_source.cc (com_binlog_dump_gtid).
"""

from __future__ import annotations

import os
import struct
import uuid
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import pymysql

from ..gtids import GtidSet
from .events import Event, encode_gtid_set, parse_event

HEARTBEAT_SECONDS = 1.0
_READ_TIMEOUT_SECONDS = 30  # without even a heartbeat
_CONNECT_TIMEOUT_SECONDS = 5
_COM_BINLOG_DUMP_GTID = 0x1E
_FIRST_POSITION = 4
_OK, _END = b"\x00", b"\xfe"
_BINARY_LOG_READ_FAILED = 1236


class ServerUnavailable(Exception):
    """The local server does not respond, or the stream ended."""


class TransactionsPurged(Exception):
    """The server no longer has transactions that the stream needs."""


@dataclass(frozen=True, slots=True)
class ServerState:
    """State of the server that the collector depends on.

    Args:
        writable: True on the primary; other members are read-only.
        now: time of the server in microseconds since 1970.
    """

    server_uuid: str
    writable: bool
    executed: GtidSet
    purged: GtidSet
    now: int


_STATE_QUERY = """
    SELECT @@server_uuid, @@super_read_only, @@global.gtid_executed, @@global.gtid_purged,
        CAST(UNIX_TIMESTAMP(NOW(6)) * 1000000 AS UNSIGNED)
"""


class LocalServer:
    """The server of this pod, by its socket.

    The account of the operating system needs no password.
    """

    def __init__(self, socket: Path, user: str = "root") -> None:
        self._socket, self._user = socket, user

    def query(self, statement: str, *, unbounded: bool = False) -> list[tuple[Any, ...]]:
        """Run a statement on a connection of its own.

        Args:
            unbounded: the statement may take hours, so there is no time limit.

        Raises:
            ServerUnavailable: the server does not respond, or refuses the statement.
        """
        try:
            with (
                closing(self._connect(None if unbounded else _READ_TIMEOUT_SECONDS)) as connection,
                connection.cursor() as cursor,
            ):
                cursor.execute(statement)
                return list(cursor.fetchall())
        except (pymysql.MySQLError, OSError) as error:
            raise ServerUnavailable(_described(error)) from error

    def state(self) -> ServerState:
        """Read the server's state. Raises ServerUnavailable."""
        ((server_uuid, read_only, executed, purged, now),) = self.query(_STATE_QUERY)
        return ServerState(str(server_uuid), not read_only, GtidSet.parse(executed), GtidSet.parse(purged), int(now))

    def stream(self, exclude: GtidSet) -> Iterator[Event]:
        """Yield the events of other transactions, new ones, and heartbeats.

        Raises:
            TransactionsPurged: the server no longer has some of them.
            ServerUnavailable: the connection was lost.
        """
        try:
            with closing(self._connect()) as connection:
                _request_dump(connection, exclude)
                # The driver has no public interface for this command.
                packets = cast(Any, connection)
                while True:
                    data = bytes(packets._read_packet().get_all_data())  # noqa: SLF001
                    if data[:1] != _OK:
                        raise ServerUnavailable("the server ended the stream")
                    yield parse_event(data[1:])
        except pymysql.MySQLError as error:
            if error.args and error.args[0] == _BINARY_LOG_READ_FAILED and "purged" in str(error).lower():
                raise TransactionsPurged(_described(error)) from error
            raise ServerUnavailable(_described(error)) from error
        except OSError as error:
            raise ServerUnavailable(_described(error)) from error

    def _connect(self, seconds: int | None = _READ_TIMEOUT_SECONDS) -> pymysql.Connection[Any]:
        return pymysql.connect(
            unix_socket=str(self._socket),
            user=self._user,
            connect_timeout=_CONNECT_TIMEOUT_SECONDS,
            read_timeout=seconds,
            write_timeout=seconds,
            autocommit=True,
        )


def _request_dump(connection: pymysql.Connection[Any], exclude: GtidSet) -> None:
    with connection.cursor() as cursor:
        cursor.execute(f"SET @source_heartbeat_period = {int(HEARTBEAT_SECONDS * 1e9)}")
        cursor.execute("SET @source_binlog_checksum = @@global.binlog_checksum")
        # The server ends an earlier stream of the same replica.
        cursor.execute("SET @replica_uuid = %s", [str(uuid.uuid4())])
    gtids = encode_gtid_set(exclude)
    server_id = int.from_bytes(os.urandom(4), "little") | 0x80000000
    request = struct.pack("<HIIQI", 0, server_id, 0, _FIRST_POSITION, len(gtids)) + gtids
    cast(Any, connection)._execute_command(_COM_BINLOG_DUMP_GTID, request)  # noqa: SLF001


def _described(error: Exception) -> str:
    return str(error.args[-1]) if error.args else type(error).__name__
