"""The local server, and others, asked by SQL about the group.

Source: MySQL 9.7 Reference Manual, "Performance Schema Replication Tables", "Group Replication Functions".
"""

from __future__ import annotations

import contextlib
import ssl
from collections.abc import Callable, Collection, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pymysql

from .gtids import GtidSet

REPLICATION = "steersman_replication"
"""Who members are to each other: by the certificate of the cluster's members, without a password."""
_CHANNELS = ("group_replication_applier", "group_replication_recovery")
_PINNED = ", ".join(
    f"{name} = {value}"
    for name, value in {
        "sql_mode": "'STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION'",
        "sql_select_limit": "18446744073709551615",
        "sql_big_selects": "ON",
        "max_execution_time": "0",
        "transaction_read_only": "OFF",
        "completion_type": "'NO_CHAIN'",
        "wait_timeout": "28800",
    }.items()
)
"""What a user may have set for all sessions, and by which an agent would see less than there is, or lose its own."""
_CONNECT = 3.0
_ANSWER = 5.0


class Unreachable(Exception):
    """A server did not answer, or refused; then `code` is its error number, and `words` are its own."""

    def __init__(self, error: Exception) -> None:
        super().__init__(str(error))
        code, *rest = error.args or (0,)
        self.code = code if isinstance(code, int) else 0
        self.words = str(rest[0]) if rest else str(error)

    @property
    def answered(self) -> bool:
        """Whether the server did answer, and refused: other numbers are the client's own."""
        return self.code != 0 and self.code not in range(2000, 3000)


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
    """What a server says of itself and of its group.

    `view` is the name of the group's present view. `has`: transactions executed, or received and not applied yet;
    of those, `queued` wait, and `applied` counts what has been applied. Binary logs are gone of what is `purged`.
    `certified` are those in which no conflict was found, the primary may be about to execute them; `uncertified`
    counts what came from the group and waits for that.
    """

    uuid: str
    version: str
    state: str
    view: str
    members: Sequence[Other]
    has: GtidSet
    queued: int
    applied: int
    purged: GtidSet = field(default_factory=GtidSet)
    certified: GtidSet = field(default_factory=GtidSet)
    uncertified: int = 0

    @property
    def primary(self) -> bool:
        return any(m.uuid == self.uuid and m.primary for m in self.members)

    @property
    def majority(self) -> bool:
        """Whether it reaches more than half of its group."""
        reached = [m for m in self.members if m.state in ("ONLINE", "RECOVERING")]
        return self.state in ("ONLINE", "RECOVERING") and len(reached) * 2 > len(self.members)


def older(view: str, than: str) -> bool:
    """Whether a group's view came before another one of the same group.

    A view is called by the group's beginning and its number: `17637331:4`.
    """
    (group, _, number), (other, _, another) = view.rpartition(":"), than.rpartition(":")
    return group == other and number.isdecimal() and another.isdecimal() and int(number) < int(another)


def another(view: str, than: str) -> bool:
    """Whether two views are of different groups; not where one of them is none."""
    (group, _, number), (other, _, counted) = view.rpartition(":"), than.rpartition(":")
    return number.isdecimal() and counted.isdecimal() and group != other


class LocalServer:
    """The server below this agent, over its socket."""

    def __init__(self, socket: str) -> None:
        self._socket = socket
        self._watching: Any = None

    def look(self) -> Look:
        """Over a connection that is kept: clients may have taken all others. From one thread. Raises Unreachable."""
        try:
            return _look(self._kept())
        except Unreachable:
            self.forget()
            raise

    def forget(self) -> None:
        """Give up the connection that `look` keeps."""
        if self._watching is not None:
            with contextlib.suppress(pymysql.MySQLError, OSError):
                self._watching.close()
        self._watching = None

    def do(self, *statements: str, seconds: float = _ANSWER) -> None:
        """Carry statements out, one after another. Raises Unreachable, with the server's words."""
        with _asking(self._connect(seconds)) as ask:
            for statement in statements:
                ask(statement)

    def set_global(self, name: str, value: int | float | str | None) -> None:
        """Give a system variable a value, None its default. Raises Unreachable."""
        with _asking(self._connect(_ANSWER)) as ask:
            _set_global(ask, name, value)

    def adjust(self, name: str, value: int | float | str | None) -> None:
        """As `set_global`, over the connection that `look` keeps, and from its thread."""
        _set_global(self._kept(), name, value)

    def value_of(self, name: str) -> str:
        """A system variable's global value. As `adjust` has it."""
        return self.values_of([name]).get(name, "")

    def values_of(self, names: Collection[str]) -> Mapping[str, str]:
        """Global values by the names of system variables, of those that it has. As `adjust` has it."""
        if not names:
            return {}
        found = self._kept()(
            "SELECT VARIABLE_NAME, VARIABLE_VALUE FROM performance_schema.global_variables WHERE VARIABLE_NAME IN %s",
            [*names],
        )
        return {str(name): str(value) for name, value in found}

    def start_group(self, *, founding: bool) -> None:
        """Be in the group, or found it. Raises Unreachable."""
        join = f"START GROUP_REPLICATION USER = '{REPLICATION}', PASSWORD = ''"
        # Who was put out is offline for clients, and would stay so.
        self.do("SET GLOBAL offline_mode = OFF")
        if not founding:
            return self.do(join, seconds=90)
        # Not persisted, and off again whatever happens: a server that starts with it on would found another group.
        try:
            return self.do("SET GLOBAL group_replication_bootstrap_group = ON", join, seconds=60)
        finally:
            self.do("SET GLOBAL group_replication_bootstrap_group = OFF")

    def applier_errors(self) -> frozenset[int]:
        """The numbers of the last errors in receiving and applying what the group has. Raises Unreachable.

        Not their words: they tell rows.
        """
        asked = (
            "SELECT CHANNEL_NAME, LAST_ERROR_NUMBER FROM performance_schema.replication_applier_status_by_worker"
            " UNION SELECT CHANNEL_NAME, LAST_ERROR_NUMBER"
            " FROM performance_schema.replication_applier_status_by_coordinator"
            " UNION SELECT CHANNEL_NAME, LAST_ERROR_NUMBER FROM performance_schema.replication_connection_status"
        )
        with _asking(self._connect(_ANSWER)) as ask:
            return frozenset(int(number) for channel, number in ask(asked) if channel in _CHANNELS and number)

    def leave_group(self) -> None:
        """Raises Unreachable."""
        self.do("STOP GROUP_REPLICATION", seconds=30)

    def hand_over(self, uuid: str) -> None:
        """Have another member be the primary; running transactions have 10 s to end. Raises Unreachable."""
        self.do(f"SELECT group_replication_set_as_primary('{uuid}', 10)", seconds=40)

    def clone(self, host: str, port: int, directory: str) -> None:
        """Take another server's data into a directory that is not there yet. Raises Unreachable."""
        copy = f"CLONE INSTANCE FROM '{REPLICATION}'@'{host}':{port} IDENTIFIED BY ''"
        self.do(
            f"SET GLOBAL clone_valid_donor_list = '{host}:{port}'",
            f"{copy} DATA DIRECTORY = '{directory}' REQUIRE SSL",
            seconds=24 * 3600,
        )

    def _kept(self) -> Ask:
        if self._watching is None:
            self._watching = self._connect(_ANSWER)
        asked = _asked(self._watching)

        def ask(statement: str, *arguments: Any) -> Sequence[Sequence[Any]]:
            try:
                return asked(statement, *arguments)
            except Unreachable as error:
                if not error.answered:
                    # Whoever asks next has another, and need not fail first.
                    self.forget()
                raise

        return ask

    def _connect(self, seconds: float) -> Any:
        return _connected(unix_socket=self._socket, user="root", read_timeout=seconds, write_timeout=seconds)


def trust(authority: Path, certificate: Path, key: Path) -> ssl.SSLContext:
    """Members know each other by authority and not by name: they are found by address.

    No stricter than the servers themselves: what they serve with, the default context of Python 3.13 may refuse.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    context.load_verify_locations(authority)
    context.load_cert_chain(certificate, key)
    return context


def look(host: str, port: int, tls: ssl.SSLContext) -> Look:
    """What another member says. Raises Unreachable."""
    connection = _connected(
        host=host, port=port, user=REPLICATION, password="", ssl=tls, read_timeout=_ANSWER, write_timeout=_ANSWER
    )
    with _asking(connection) as ask:
        return _look(ask)


def _look(ask: Ask) -> Look:
    """In this order: each transaction goes from certification to what is received, or is at once what is executed."""
    found = ask(
        "SELECT MEMBER_ID, MEMBER_HOST, MEMBER_PORT, MEMBER_STATE, MEMBER_ROLE"
        " FROM performance_schema.replication_group_members"
    )
    members = [
        Other(uuid=m[0], host=m[1], port=int(m[2] or 0), state=m[3], primary=m[4] == "PRIMARY") for m in found if m[0]
    ]
    stats = ask(
        "SELECT VIEW_ID, COUNT_TRANSACTIONS_REMOTE_IN_APPLIER_QUEUE, COUNT_TRANSACTIONS_REMOTE_APPLIED,"
        " COUNT_TRANSACTIONS_IN_QUEUE, LAST_CONFLICT_FREE_TRANSACTION"
        " FROM performance_schema.replication_group_member_stats WHERE MEMBER_ID = @@server_uuid"
    )
    view, queued, applied, uncertified, certified = stats[0] if stats else ("", 0, 0, 0, "")
    # Not of the channel for recovery: its relay logs are thrown away, and who sent what came by it has executed it.
    received = ask(
        "SELECT RECEIVED_TRANSACTION_SET FROM performance_schema.replication_connection_status"
        " WHERE CHANNEL_NAME = 'group_replication_applier'"
    )
    [(uuid, version, executed, purged)] = ask(
        "SELECT @@server_uuid, @@version, @@GLOBAL.gtid_executed, @@GLOBAL.gtid_purged"
    )
    has = GtidSet.parse(executed)
    for (one,) in received:
        has |= GtidSet.parse(one or "")
    return Look(
        uuid=uuid,
        version=version.partition("-")[0],
        state=next((m.state for m in members if m.uuid == uuid), "OFFLINE"),
        view=str(view),
        members=members,
        has=has,
        queued=int(queued),
        applied=int(applied),
        purged=GtidSet.parse(purged),
        certified=GtidSet.until(certified or ""),
        uncertified=int(uncertified),
    )


def _set_global(ask: Ask, name: str, value: int | float | str | None) -> None:
    quoted = ".".join(f"`{part.replace('`', '``')}`" for part in name.split("."))
    if value is None:
        ask(f"SET GLOBAL {quoted} = DEFAULT")
    else:
        ask(f"SET GLOBAL {quoted.replace('%', '%%')} = %s", value)


def _connected(**how: Any) -> Any:
    try:
        return pymysql.connect(
            autocommit=True, connect_timeout=_CONNECT, init_command=f"SET SESSION {_PINNED}", **how
        )
    except (pymysql.MySQLError, OSError) as error:
        raise Unreachable(error) from error


Ask = Callable[..., Sequence[Sequence[Any]]]
"""A statement with its arguments, and the rows that come of it."""


def _asked(connection: Any) -> Ask:
    def ask(statement: str, *arguments: Any) -> Sequence[Sequence[Any]]:
        try:
            with connection.cursor() as cursor:
                cursor.execute(statement, arguments or None)
                return cursor.fetchall()
        except (pymysql.MySQLError, OSError) as error:
            raise Unreachable(error) from error

    return ask


@contextlib.contextmanager
def _asking(connection: Any) -> Generator[Ask]:
    try:
        yield _asked(connection)
    finally:
        with contextlib.suppress(pymysql.MySQLError, OSError):
            connection.close()
