"""SQL queries and commands about the group, on any of its servers.

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

from steersman_instance.gtids import GtidSet

REPLICATION = "steersman_replication"
"""Account that members use at each other, with a certificate."""
_REPLICATION_CHANNELS = ("group_replication_applier", "group_replication_recovery")
_PINNED_SETTINGS = ", ".join(
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
"""Settings that would restrict the agent.

Users may have set other values for all sessions.
"""
_CONNECT_TIMEOUT_SECONDS = 3.0
_RESPONSE_TIMEOUT_SECONDS = 5.0


class ServerQueryFailed(Exception):
    """A server did not respond, or refused.

    After a refusal `code` is the error number, and `message` the server's message.
    """

    def __init__(self, error: Exception) -> None:
        super().__init__(str(error))
        code, *rest = error.args or (0,)
        self.code = code if isinstance(code, int) else 0
        self.message = str(rest[0]) if rest else str(error)

    @property
    def has_responded(self) -> bool:
        """Return True if the server refused. Other numbers are the client's own."""
        return self.code != 0 and self.code not in range(2000, 3000)


@dataclass(frozen=True, kw_only=True)
class GroupPeer:
    """A member of the group as the local one reports it."""

    uuid: str
    host: str
    port: int
    state: str
    primary: bool


@dataclass(frozen=True, kw_only=True)
class ServerStatus:
    """Status of a server and its group.

    Attributes:
        view: name of the group's present view.
        executed: executed transactions, and received ones that are not applied yet.
        apply_queue: number of those that wait.
        applied: counter of applied transactions.
        purged: transactions without binary logs.
        certified: transactions without conflict, which the primary may be about to execute.
        uncertified: number of received transactions that wait for certification.
    """

    uuid: str
    version: str
    state: str
    view: str
    members: Sequence[GroupPeer]
    executed: GtidSet
    apply_queue: int
    applied: int
    purged: GtidSet = field(default_factory=GtidSet)
    certified: GtidSet = field(default_factory=GtidSet)
    uncertified: int = 0

    @property
    def is_primary(self) -> bool:
        return any(m.uuid == self.uuid and m.primary for m in self.members)

    @property
    def has_majority(self) -> bool:
        """Return True if it reaches more than half of its group."""
        reachable = [m for m in self.members if m.state in ("ONLINE", "RECOVERING")]
        return self.state in ("ONLINE", "RECOVERING") and len(reachable) * 2 > len(self.members)


def is_older_view(view: str, reference: str) -> bool:
    """Return True if a view precedes another one of the group.

    The name of a view has the start of the group and a number: `17637331:4`.
    """
    (group, _, number), (reference_group, _, reference_number) = view.rpartition(":"), reference.rpartition(":")
    return (
        group == reference_group
        and number.isdecimal()
        and reference_number.isdecimal()
        and int(number) < int(reference_number)
    )


def is_different_group(view: str, reference: str) -> bool:
    """Return True if two views belong to different groups.

    False if one of them is invalid.
    """
    (group, _, number), (reference_group, _, same_group) = view.rpartition(":"), reference.rpartition(":")
    return number.isdecimal() and same_group.isdecimal() and group != reference_group


class LocalServer:
    """The local server over its socket."""

    def __init__(self, socket: str) -> None:
        self._socket = socket
        self._kept_connection: Any = None

    def query_status(self) -> ServerStatus:
        """Return the status over a kept connection. Raises ServerQueryFailed.

        Clients may have taken all other connections. Use it from one thread only.
        """
        try:
            return _query_status(self._kept_runner())
        except ServerQueryFailed:
            self.close_kept_connection()
            raise

    def close_kept_connection(self) -> None:
        """Close the connection that `query_status` keeps."""
        if self._kept_connection is not None:
            with contextlib.suppress(pymysql.MySQLError, OSError):
                self._kept_connection.close()
        self._kept_connection = None

    def execute(self, *statements: str, seconds: float = _RESPONSE_TIMEOUT_SECONDS) -> None:
        """Execute statements in order. Raises ServerQueryFailed."""
        with _closing_runner(self._connect(seconds)) as run:
            for statement in statements:
                run(statement)

    def set_global(self, name: str, value: int | float | str | None) -> None:
        """Set a system variable, or its default with None. Raises ServerQueryFailed."""
        with _closing_runner(self._connect(_RESPONSE_TIMEOUT_SECONDS)) as run:
            _set_global(run, name, value)

    def set_global_kept(self, name: str, value: int | float | str | None) -> None:
        """Set a system variable over the kept connection, from its thread."""
        _set_global(self._kept_runner(), name, value)

    def kept_rows(self, statement: str) -> Sequence[Sequence[Any]]:
        """Run a statement over the kept connection, from its thread. Raises ServerQueryFailed."""
        return self._kept_runner()(statement)

    def value_of(self, name: str) -> str:
        """Return the global value of a system variable, over the kept connection."""
        return self.values_of([name]).get(name, "")

    def values_of(self, names: Collection[str]) -> Mapping[str, str]:
        """Return the global values of existing variables, over the kept connection."""
        if not names:
            return {}
        found = self._kept_runner()(
            "SELECT VARIABLE_NAME, VARIABLE_VALUE FROM performance_schema.global_variables WHERE VARIABLE_NAME IN %s",
            [*names],
        )
        return {str(name): str(value) for name, value in found}

    def start_group(self, *, founding: bool) -> None:
        """Join the group or found it. Raises ServerQueryFailed."""
        join = f"START GROUP_REPLICATION USER = '{REPLICATION}', PASSWORD = ''"
        # An expelled member is in offline mode for clients, and would stay so.
        self.execute("SET GLOBAL offline_mode = OFF")
        if not founding:
            return self.execute(join, seconds=90)
        # Not persisted, and reset in any case: a server that starts with it would found another group.
        try:
            return self.execute("SET GLOBAL group_replication_bootstrap_group = ON", join, seconds=60)
        finally:
            self.execute("SET GLOBAL group_replication_bootstrap_group = OFF")

    def applier_errors(self) -> frozenset[int]:
        """Return the last error numbers of receiver and applier. Raises ServerQueryFailed.

        Their messages are left out, because they contain rows.
        """
        channels = (
            "SELECT CHANNEL_NAME, LAST_ERROR_NUMBER FROM performance_schema.replication_applier_status_by_worker"
            " UNION SELECT CHANNEL_NAME, LAST_ERROR_NUMBER"
            " FROM performance_schema.replication_applier_status_by_coordinator"
            " UNION SELECT CHANNEL_NAME, LAST_ERROR_NUMBER FROM performance_schema.replication_connection_status"
        )
        with _closing_runner(self._connect(_RESPONSE_TIMEOUT_SECONDS)) as run:
            return frozenset(
                int(number) for channel, number in run(channels) if channel in _REPLICATION_CHANNELS and number
            )

    def leave_group(self) -> None:
        """Leave the group. Raises ServerQueryFailed."""
        self.execute("STOP GROUP_REPLICATION", seconds=30)

    def set_primary(self, uuid: str) -> None:
        """Make another member the primary. Raises ServerQueryFailed.

        Running transactions have 10 s to end.
        """
        self.execute(f"SELECT group_replication_set_as_primary('{uuid}', 10)", seconds=40)

    def clone_from(self, host: str, port: int, directory: str) -> None:
        """Copy another server's data into a new directory. Raises ServerQueryFailed."""
        copy = f"CLONE INSTANCE FROM '{REPLICATION}'@'{host}':{port} IDENTIFIED BY ''"
        self.execute(
            f"SET GLOBAL clone_valid_donor_list = '{host}:{port}'",
            f"{copy} DATA DIRECTORY = '{directory}' REQUIRE SSL",
            seconds=24 * 3600,
        )

    def _kept_runner(self) -> RunQuery:
        if self._kept_connection is None:
            self._kept_connection = self._connect(_RESPONSE_TIMEOUT_SECONDS)
        runner = _runner_for(self._kept_connection)

        def run(statement: str, *arguments: Any) -> Sequence[Sequence[Any]]:
            try:
                return runner(statement, *arguments)
            except ServerQueryFailed as error:
                if not error.has_responded:
                    # The next caller gets a new connection, and does not fail first.
                    self.close_kept_connection()
                raise

        return run

    def _connect(self, seconds: float) -> Any:
        return _connect(unix_socket=self._socket, user="root", read_timeout=seconds, write_timeout=seconds)


def member_ssl_context(authority: Path, certificate: Path, key: Path) -> ssl.SSLContext:
    """Return a TLS context that verifies the authority, but not the name.

    Members use addresses. It is not stricter than the servers: the default context of Python 3.13 may refuse their
    certificates.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    context.load_verify_locations(authority)
    context.load_cert_chain(certificate, key)
    return context


def query_member(host: str, port: int, tls: ssl.SSLContext) -> ServerStatus:
    """Return the status of another member. Raises ServerQueryFailed."""
    connection = _connect(
        host=host,
        port=port,
        user=REPLICATION,
        password="",
        ssl=tls,
        read_timeout=_RESPONSE_TIMEOUT_SECONDS,
        write_timeout=_RESPONSE_TIMEOUT_SECONDS,
    )
    with _closing_runner(connection) as run:
        return _query_status(run)


def _query_status(run: RunQuery) -> ServerStatus:
    """Run the queries in this order.

    A transaction moves from certification to the received or executed ones.
    """
    found = run(
        "SELECT MEMBER_ID, MEMBER_HOST, MEMBER_PORT, MEMBER_STATE, MEMBER_ROLE"
        " FROM performance_schema.replication_group_members"
    )
    members = [
        GroupPeer(uuid=m[0], host=m[1], port=int(m[2] or 0), state=m[3], primary=m[4] == "PRIMARY")
        for m in found
        if m[0]
    ]
    stats = run(
        "SELECT VIEW_ID, COUNT_TRANSACTIONS_REMOTE_IN_APPLIER_QUEUE, COUNT_TRANSACTIONS_REMOTE_APPLIED,"
        " COUNT_TRANSACTIONS_IN_QUEUE, LAST_CONFLICT_FREE_TRANSACTION"
        " FROM performance_schema.replication_group_member_stats WHERE MEMBER_ID = @@server_uuid"
    )
    declared, apply_queue, applied, uncertified, certified = stats[0] if stats else ("", 0, 0, 0, "")
    # Without the channel for recovery: its relay logs are dropped, and their senders have executed the transactions.
    received = run(
        "SELECT RECEIVED_TRANSACTION_SET FROM performance_schema.replication_connection_status"
        " WHERE CHANNEL_NAME = 'group_replication_applier'"
    )
    [(uuid, version, executed, purged)] = run(
        "SELECT @@server_uuid, @@version, @@GLOBAL.gtid_executed, @@GLOBAL.gtid_purged"
    )
    all_executed = GtidSet.parse(executed)
    for (one,) in received:
        all_executed |= GtidSet.parse(one or "")
    return ServerStatus(
        uuid=uuid,
        version=version.partition("-")[0],
        state=next((m.state for m in members if m.uuid == uuid), "OFFLINE"),
        view=str(declared),
        members=members,
        executed=all_executed,
        apply_queue=int(apply_queue),
        applied=int(applied),
        purged=GtidSet.parse(purged),
        certified=GtidSet.up_to(certified or ""),
        uncertified=int(uncertified),
    )


def _set_global(run: RunQuery, name: str, value: int | float | str | None) -> None:
    quoted = ".".join(f"`{part.replace('`', '``')}`" for part in name.split("."))
    if value is None:
        run(f"SET GLOBAL {quoted} = DEFAULT")
    else:
        run(f"SET GLOBAL {quoted.replace('%', '%%')} = %s", value)


def _connect(**how: Any) -> Any:
    try:
        return pymysql.connect(
            autocommit=True,
            connect_timeout=_CONNECT_TIMEOUT_SECONDS,
            init_command=f"SET SESSION {_PINNED_SETTINGS}",
            **how,
        )
    except (pymysql.MySQLError, OSError) as error:
        raise ServerQueryFailed(error) from error


RunQuery = Callable[..., Sequence[Sequence[Any]]]
"""Runs a statement with arguments and returns rows."""


def _runner_for(connection: Any) -> RunQuery:
    def run(statement: str, *arguments: Any) -> Sequence[Sequence[Any]]:
        try:
            with connection.cursor() as cursor:
                cursor.execute(statement, arguments or None)
                return cursor.fetchall()
        except (pymysql.MySQLError, OSError) as error:
            raise ServerQueryFailed(error) from error

    return run


@contextlib.contextmanager
def _closing_runner(connection: Any) -> Generator[RunQuery]:
    try:
        yield _runner_for(connection)
    finally:
        with contextlib.suppress(pymysql.MySQLError, OSError):
            connection.close()
