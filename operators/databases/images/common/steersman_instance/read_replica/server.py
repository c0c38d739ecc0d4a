"""Server of a read replica: its process, and SQL reports."""

from __future__ import annotations

import signal
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..metrics.catalog import CollectFailed, SessionLost
from ..metrics.postgresql.session import PostgreSQLSession, ServerAddress
from ..recovery.server import ServerFailed, control_data
from .configuration import Upstream, is_below_primary, write_configuration
from .processes import LoggedProcess

PROGRAM = "/usr/local/bin/steersman-postgres"
_SETTINGS_SQL = "SELECT name, setting FROM pg_settings"
_STATE_SQL = r"""
    SELECT coalesce(pg_wal_lsn_diff(pg_last_wal_replay_lsn(), '0/0'), 0)::bigint AS replayed,
        -- A new WAL receiver has the status before the first message. Until then both times are that of its start.
        coalesce(r.status = 'streaming' AND r.last_msg_send_time <> r.last_msg_receipt_time, false) AS streaming,
        coalesce(extract(epoch FROM clock_timestamp() - r.last_msg_receipt_time), 0)::float AS silent,
        pg_wal_lsn_diff(r.latest_end_lsn, '0/0')::bigint AS known,
        (SELECT count(*) FROM pg_stat_activity
            WHERE backend_type = 'client backend' AND usename NOT LIKE 'steersman\_%'
                AND application_name NOT LIKE 'steersman\_%') AS connections,
        (SELECT count(*) FROM pg_settings WHERE pending_restart) AS pending,
        CASE WHEN pg_is_in_recovery() THEN pg_get_wal_replay_pause_state() = 'paused' ELSE false END AS paused,
        NOT pg_is_in_recovery() AS promoted
    FROM (VALUES (1)) AS one (row) LEFT JOIN pg_stat_wal_receiver r ON true
"""


@dataclass(frozen=True, slots=True)
class ServerState:
    """A sample. Positions are in bytes.

    Attributes:
        silent_seconds: time since the last message of the primary.
        known: end of the primary's WAL, or None without a WAL receiver.
        needs_restart: parameters wait for a restart, or replay waits for higher ones.
    """

    replayed: int
    streaming: bool
    silent_seconds: float
    known: int | None
    connections: int
    needs_restart: bool
    promoted: bool = False


class StandbyServer:
    """A server on a complete copy.

    Args:
        upstream: where it streams from.
        read: called with each line of its logs, in a thread.
        program: the server, with arguments of `postgres`.

    Raises:
        ServerFailed: the control file of the data is damaged.
    """

    def __init__(self, upstream: Upstream, read: Callable[[str], None], program: str = PROGRAM) -> None:
        self._upstream = upstream
        data = upstream.paths.postgresql_data
        main = write_configuration(upstream, data)
        # The volume's lock rules out a live server; a killed one leaves its files.
        (data / "postmaster.pid").unlink(missing_ok=True)
        for stale in upstream.paths.run.glob(".s.PGSQL.*"):
            stale.unlink()
        self._process = LoggedProcess([program, "-D", str(data), f"--config-file={main}"], read)
        self._session: PostgreSQLSession | None = None

    def poll(self) -> int | None:
        """Return the exit code, or None while it runs."""
        return self._process.poll()

    @property
    def last_line(self) -> str:
        """Its last message."""
        return self._process.last_line

    def reload(self, upstream: Upstream) -> None:
        """Rewrite the configuration, and reload it with the certificates."""
        self._upstream = upstream
        write_configuration(upstream, upstream.paths.postgresql_data)
        self._process.send(signal.SIGHUP)

    def state(self) -> ServerState | None:
        """Return a sample, or None if the server does not respond."""
        try:
            if self._session is None:
                port = {"port": str(self._upstream.port)}
                self._session = PostgreSQLSession(ServerAddress(host=str(self._upstream.paths.run), more=port))
            rows = self._session.rows(_STATE_SQL)
            # A user can pause replay, too. Only higher parameters of the primary need a restart.
            waits = bool(rows) and bool(rows[0]["paused"]) and self._is_below_primary(self._session)
        except SessionLost:
            self.close_session()
            return None
        except (CollectFailed, ServerFailed):
            return None
        return _state(rows[0], waits=waits) if rows else None

    def _is_below_primary(self, session: PostgreSQLSession) -> bool:
        settings = {str(row["name"]): str(row["setting"]) for row in session.rows(_SETTINGS_SQL)}
        return is_below_primary(settings, control_data(self._upstream.paths.postgresql_data))

    def close_session(self) -> None:
        """Close the session, so that a shutdown does not end it."""
        if self._session is not None:
            self._session.close()
            self._session = None

    def stop(self) -> None:
        """Stop it: fast, then without a checkpoint."""
        self.close_session()
        self._process.stop(signal.SIGINT)


def _state(row: Mapping[str, Any], *, waits: bool) -> ServerState:
    known = row["known"]
    return ServerState(
        replayed=int(row["replayed"]),
        streaming=bool(row["streaming"]),
        silent_seconds=float(row["silent"]),
        known=None if known is None else int(known),
        connections=int(row["connections"]),
        needs_restart=bool(row["pending"]) or waits,
        promoted=bool(row["promoted"]),
    )


def data_version(data: Path) -> str:
    """Return the major version of the data; empty if there are none."""
    try:
        return (data / "PG_VERSION").read_text().strip()
    except OSError:
        return ""
