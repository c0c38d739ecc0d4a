"""The local server, and others, asked by SQL about the group.

Source: MySQL 9.7 Reference Manual, "Performance Schema Replication Tables", "Group Replication Functions".
"""

from __future__ import annotations

import ssl
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pymysql

from .gtids import GtidSet

REPLICATION = "steersman_replication"
"""Who members are to each other: by the certificate of the cluster's members, without a password."""
_CONNECT = 3.0
_ANSWER = 5.0
_NOT_MANAGED = 3707  # ER_RESTART_SERVER_FAILED


class Unreachable(Exception):
    """A server did not answer, or refused; then `code` is its error number."""

    def __init__(self, error: Exception) -> None:
        super().__init__(str(error))
        self.code = error.args[0] if error.args and isinstance(error.args[0], int) else 0


@dataclass(frozen=True, kw_only=True)
class Other:
    """A member of the group as the local one sees it."""

    uuid: str
    host: str
    port: int
    state: str
    primary: bool


@dataclass(frozen=True, kw_only=True)
class Look:
    """What the local server says. `has`: transactions executed, or received and not applied yet."""

    uuid: str
    version: str
    state: str
    view: str
    members: Sequence[Other]
    has: GtidSet
    queued: int

    @property
    def primary(self) -> bool:
        return any(m.uuid == self.uuid and m.primary for m in self.members)

    @property
    def majority(self) -> bool:
        """Whether it reaches more than half of its group."""
        reached = [m for m in self.members if m.state in ("ONLINE", "RECOVERING")]
        return self.state in ("ONLINE", "RECOVERING") and len(reached) * 2 > len(self.members)


class LocalServer:
    """The server below this agent, over its socket."""

    def __init__(self, socket: str) -> None:
        self._socket = socket

    def look(self) -> Look:
        """Raises Unreachable."""
        with _asking(self._connect(_ANSWER)) as ask:
            [(uuid, version, executed)] = ask("SELECT @@server_uuid, @@version, @@GLOBAL.gtid_executed")
            found = ask(
                "SELECT MEMBER_ID, MEMBER_HOST, MEMBER_PORT, MEMBER_STATE, MEMBER_ROLE"
                " FROM performance_schema.replication_group_members"
            )
            members = [
                Other(uuid=m[0], host=m[1], port=int(m[2] or 0), state=m[3], primary=m[4] == "PRIMARY")
                for m in found
                if m[0]
            ]
            received = ask(
                "SELECT RECEIVED_TRANSACTION_SET FROM performance_schema.replication_connection_status"
                " WHERE CHANNEL_NAME = 'group_replication_applier'"
            )
            stats = ask(
                "SELECT VIEW_ID, COUNT_TRANSACTIONS_REMOTE_IN_APPLIER_QUEUE"
                " FROM performance_schema.replication_group_member_stats WHERE MEMBER_ID = @@server_uuid"
            )
        has = GtidSet.parse(executed)
        for (one,) in received:
            has |= GtidSet.parse(one or "")
        return Look(
            uuid=uuid,
            version=version.partition("-")[0],
            state=next((m.state for m in members if m.uuid == uuid), "OFFLINE"),
            view=str(stats[0][0]) if stats else "",
            members=members,
            has=has,
            queued=int(stats[0][1]) if stats else 0,
        )

    def do(self, *statements: str, seconds: float = _ANSWER) -> None:
        """Carry statements out, one after another. Raises Unreachable, with the server's words."""
        with _asking(self._connect(seconds)) as ask:
            for statement in statements:
                ask(statement)

    def start_group(self, *, founding: bool) -> None:
        """Be in the group, or found it. Raises Unreachable."""
        join = f"START GROUP_REPLICATION USER = '{REPLICATION}', PASSWORD = ''"
        # Who was put out is offline for clients, and would stay so.
        self.do("SET GLOBAL offline_mode = OFF")
        if not founding:
            return self.do(join, seconds=300)
        # Not persisted, and off again whatever happens: a server that starts with it on would found another group.
        try:
            return self.do("SET GLOBAL group_replication_bootstrap_group = ON", join, seconds=60)
        finally:
            self.do("SET GLOBAL group_replication_bootstrap_group = OFF")

    def leave_group(self) -> None:
        """Raises Unreachable."""
        self.do("STOP GROUP_REPLICATION", seconds=60)

    def hand_over(self, uuid: str) -> None:
        """Have another member be the primary; running transactions have 10 s to end. Raises Unreachable."""
        self.do(f"SELECT group_replication_set_as_primary('{uuid}', 10)", seconds=40)

    def clone(self, host: str, port: int) -> None:
        """Take another server's data in place of the own, and end. Raises Unreachable."""
        copy = f"CLONE INSTANCE FROM '{REPLICATION}'@'{host}':{port} IDENTIFIED BY '' REQUIRE SSL"
        try:
            self.do(f"SET GLOBAL clone_valid_donor_list = '{host}:{port}'", copy, seconds=24 * 3600)
        except Unreachable as error:
            # The copy is complete; the server cannot start itself again, and ends.
            if error.code != _NOT_MANAGED:
                raise

    def _connect(self, seconds: float) -> Any:
        return _connected(unix_socket=self._socket, user="root", read_timeout=seconds, write_timeout=seconds)


def has(host: str, port: int, tls: ssl.SSLContext) -> GtidSet:
    """All that another member has. Raises Unreachable."""
    connection = _connected(
        host=host, port=port, user=REPLICATION, password="", ssl=tls, read_timeout=_ANSWER, write_timeout=_ANSWER
    )
    with _asking(connection) as ask:
        [(executed,)] = ask("SELECT @@GLOBAL.gtid_executed")
    return GtidSet.parse(executed)


def _connected(**how: Any) -> Any:
    try:
        return pymysql.connect(autocommit=True, connect_timeout=_CONNECT, **how)
    except (pymysql.MySQLError, OSError) as error:
        raise Unreachable(error) from error


class _asking:  # noqa: N801 - a context manager, read as a verb
    def __init__(self, connection: Any) -> None:
        self._connection = connection

    def __enter__(self) -> Any:
        def ask(statement: str) -> Sequence[Sequence[Any]]:
            try:
                with self._connection.cursor() as cursor:
                    cursor.execute(statement)
                    return cursor.fetchall()
            except (pymysql.MySQLError, OSError) as error:
                raise Unreachable(error) from error

        return ask

    def __exit__(self, *_: object) -> None:
        self._connection.close()
