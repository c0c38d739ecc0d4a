"""Queries about the whole server. They take no lock on a table of a user.

Source: PostgreSQL 17 documentation, "The Cumulative Statistics System", "System Views".
"""

from __future__ import annotations

from collections.abc import Sequence

from ..catalog import Metric, counter
from ..query import Query

_P = "steersman_postgresql"

SERVER = Query(
    name="server",
    interval_seconds=10,
    sql="""
        SELECT NOT pg_is_in_recovery() AS is_primary, pg_postmaster_start_time() AS started,
            current_setting('max_connections')::int AS max_connections,
            current_setting('autovacuum_freeze_max_age')::bigint AS freeze_max_age,
            current_setting('synchronous_standby_names') <> '' AS synchronous,
            current_setting('server_version_num')::int AS version,
            (SELECT count(*) FROM pg_settings WHERE pending_restart) AS pending_restart
    """,
    values={
        "is_primary": Metric(f"{_P}_is_primary", "1 if the server is not in recovery."),
        "started": Metric(f"{_P}_start_time_seconds", "Start of the server, in seconds since 1970."),
        "max_connections": Metric(f"{_P}_max_connections", "Parameter max_connections."),
        "freeze_max_age": Metric(f"{_P}_autovacuum_freeze_max_age", "Parameter autovacuum_freeze_max_age."),
        "synchronous": Metric(f"{_P}_synchronous_replication", "1 if synchronous_standby_names is set."),
        "version": Metric(f"{_P}_version_number", "Version, such as 170005 for 17.5."),
        "pending_restart": Metric(f"{_P}_settings_pending_restart", "Parameters that take effect after a restart."),
    },
)

SESSIONS_BY_STATE = Query(
    name="sessions",
    interval_seconds=10,
    sql="""
        SELECT state, count(pid) AS sessions
        FROM unnest(ARRAY['active', 'idle', 'idle in transaction', 'idle in transaction (aborted)',
            'fastpath function call', 'disabled']) AS state
        LEFT JOIN pg_stat_activity a USING (state)
        WHERE a.backend_type = 'client backend' OR a.pid IS NULL
        GROUP BY state
    """,
    values={"sessions": Metric(f"{_P}_sessions", "Sessions of clients, by state.", ("state",))},
)

ACTIVITY = Query(
    name="activity",
    interval_seconds=10,
    sql="""
        SELECT count(*) FILTER (WHERE backend_type = 'client backend') AS connections,
            coalesce(max(extract(epoch FROM clock_timestamp() - xact_start))
                FILTER (WHERE backend_type = 'client backend'), 0) AS longest_transaction,
            coalesce(max(extract(epoch FROM clock_timestamp() - state_change))
                FILTER (WHERE state LIKE 'idle in transaction%'), 0) AS longest_idle,
            count(*) FILTER (WHERE wait_event_type = 'Lock') AS waiting,
            (SELECT coalesce(max(extract(epoch FROM clock_timestamp() - waitstart)), 0) FROM pg_locks
                WHERE NOT granted) AS longest_wait,
            count(*) FILTER (WHERE backend_type = 'autovacuum worker') AS autovacuum,
            count(*) FILTER (WHERE backend_type = 'autovacuum worker' AND wait_event = 'VacuumDelay') AS delayed
        FROM pg_stat_activity WHERE pid <> pg_backend_pid()
    """,
    values={
        "connections": Metric(f"{_P}_connections", "Connections of clients."),
        "longest_transaction": Metric(f"{_P}_longest_transaction_seconds", "Age of the oldest transaction."),
        "longest_idle": Metric(
            f"{_P}_longest_idle_in_transaction_seconds", "Longest time that a session is idle in a transaction."
        ),
        "waiting": Metric(f"{_P}_sessions_waiting_for_lock", "Sessions that wait for a lock."),
        "longest_wait": Metric(f"{_P}_longest_lock_wait_seconds", "Longest time that a session waits for a lock."),
        "autovacuum": Metric(f"{_P}_autovacuum_workers", "Running autovacuum workers."),
        "delayed": Metric(f"{_P}_autovacuum_workers_delayed", "Autovacuum workers that pause at the cost limit."),
    },
)

TRANSACTION_IDS = Query(
    name="transaction_ids",
    interval_seconds=30,
    sql="SELECT max(age(datfrozenxid)) AS xid, max(mxid_age(datminmxid)) AS mxid FROM pg_database",
    values={
        "xid": Metric(f"{_P}_transaction_id_age", "Age of the oldest transaction ID that is not frozen."),
        "mxid": Metric(f"{_P}_multixact_id_age", "Age of the oldest multixact ID."),
    },
)

XMIN_HOLDERS = Query(
    name="xmin_holders",
    interval_seconds=30,
    sql="""
        SELECT holder, coalesce(max(age(xmin)), 0) AS xmin_age FROM (
            SELECT 'session' AS holder, backend_xmin AS xmin FROM pg_stat_activity
                WHERE backend_type <> 'walsender' AND pid <> pg_backend_pid()
            UNION ALL SELECT 'slot', xmin FROM pg_replication_slots
            UNION ALL SELECT 'slot', catalog_xmin FROM pg_replication_slots
            UNION ALL SELECT 'prepared transaction', transaction FROM pg_prepared_xacts
            UNION ALL SELECT 'standby', backend_xmin FROM pg_stat_replication
            UNION ALL SELECT unnest(ARRAY['session', 'slot', 'prepared transaction', 'standby']), NULL
        ) AS holders GROUP BY holder
    """,
    values={"xmin_age": Metric(f"{_P}_xmin_age", "Age of the oldest xmin that prevents cleanup.", ("holder",))},
)

WAL = Query(
    name="wal",
    sql="""
        SELECT pg_wal_lsn_diff(CASE WHEN pg_is_in_recovery() THEN coalesce(pg_last_wal_replay_lsn(), '0/0')
                ELSE pg_current_wal_lsn() END, '0/0') AS position,
            (SELECT sum(size) FROM pg_ls_waldir()) AS directory
    """,
    values={
        "position": counter(f"{_P}_wal_bytes_total", "WAL written on a primary, replayed on a replica, in bytes."),
        "directory": Metric(f"{_P}_wal_directory_bytes", "Size of the WAL that the server keeps."),
    },
)

REPLICAS = Query(
    name="replicas",
    interval_seconds=5,
    limit=20,
    sql="""
        SELECT application_name AS replica, bool_or(state = 'streaming') AS streaming,
            bool_or(sync_state IN ('sync', 'quorum')) AS synchronous,
            min(pg_wal_lsn_diff(CASE WHEN pg_is_in_recovery() THEN pg_last_wal_receive_lsn()
                ELSE pg_current_wal_lsn() END, replay_lsn)) AS lag,
            coalesce(min(extract(epoch FROM replay_lag)), 0) AS lag_time
        FROM pg_stat_replication WHERE application_name <> 'pg_basebackup'
        GROUP BY application_name ORDER BY 1
    """,
    values={
        "streaming": Metric(f"{_P}_replica_streaming", "1 if the replica streams.", ("replica",)),
        "synchronous": Metric(f"{_P}_replica_synchronous", "1 if commits can wait for the replica.", ("replica",)),
        "lag": Metric(f"{_P}_replica_lag_bytes", "WAL that the replica has not replayed.", ("replica",)),
        "lag_time": Metric(f"{_P}_replica_lag_seconds", "Time that the last WAL took to be replayed.", ("replica",)),
    },
)

RECEIVER = Query(
    name="receiver",
    interval_seconds=5,
    sql="""
        SELECT (SELECT count(*) FROM pg_stat_wal_receiver WHERE status = 'streaming') AS streaming,
            CASE WHEN pg_last_wal_receive_lsn() = pg_last_wal_replay_lsn() THEN 0
                ELSE greatest(extract(epoch FROM clock_timestamp() - pg_last_xact_replay_timestamp()), 0)
            END AS lag
        WHERE pg_is_in_recovery()
    """,
    values={
        "streaming": Metric(f"{_P}_wal_receiver_streaming", "1 if this replica streams from another instance."),
        "lag": Metric(f"{_P}_replay_lag_seconds", "Time since the last replayed commit, 0 if all WAL is replayed."),
    },
)

SLOTS = Query(
    name="slots",
    limit=20,
    sql="""
        SELECT slot_name AS slot, active, wal_status = 'lost' AS lost, safe_wal_size AS safe,
            pg_wal_lsn_diff(CASE WHEN pg_is_in_recovery() THEN pg_last_wal_replay_lsn()
                ELSE pg_current_wal_lsn() END, restart_lsn) AS retained
        FROM pg_replication_slots WHERE NOT temporary ORDER BY 5 DESC NULLS LAST, 1
    """,
    values={
        "active": Metric(f"{_P}_slot_active", "1 if a client uses the slot.", ("slot",)),
        "lost": Metric(f"{_P}_slot_lost", "1 if WAL that the slot needs is removed.", ("slot",)),
        "safe": Metric(f"{_P}_slot_safe_bytes", "WAL that can be written before the slot is lost.", ("slot",)),
        "retained": Metric(f"{_P}_slot_retained_bytes", "WAL that the slot retains.", ("slot",)),
    },
)

ARCHIVER = Query(
    name="archiver",
    sql="""
        SELECT archived_count AS archived, failed_count AS failed, last_archived_time AS last_success,
            last_failed_time AS last_failure,
            (SELECT count(*) FROM pg_ls_archive_statusdir() WHERE name LIKE '%.ready') AS waiting
        FROM pg_stat_archiver
    """,
    values={
        "archived": counter(f"{_P}_archived_wal_segments_total", "WAL segments that were archived."),
        "failed": counter(f"{_P}_archive_failures_total", "Attempts to archive a WAL segment that failed."),
        "last_success": Metric(f"{_P}_last_archive_timestamp_seconds", "Time of the last archived WAL segment."),
        "last_failure": Metric(f"{_P}_last_archive_failure_timestamp_seconds", "Time of the last failed attempt."),
        "waiting": Metric(f"{_P}_wal_segments_waiting_for_archive", "WAL segments that are not archived yet."),
    },
)

_CHECKPOINTS = {
    "checkpoints": counter(f"{_P}_checkpoints_total", "Checkpoints, by trigger.", ("trigger",)),
}
CHECKPOINTS_17 = Query(
    name="checkpoints",
    sql="""
        SELECT trigger, checkpoints FROM pg_stat_checkpointer,
            LATERAL (VALUES ('timed', num_timed), ('requested', num_requested)) AS v (trigger, checkpoints)
    """,
    values=_CHECKPOINTS,
)
CHECKPOINTS_15 = Query(
    name="checkpoints",
    sql="""
        SELECT trigger, checkpoints FROM pg_stat_bgwriter,
            LATERAL (VALUES ('timed', checkpoints_timed), ('requested', checkpoints_req)) AS v (trigger, checkpoints)
    """,
    values=_CHECKPOINTS,
)

_WRITES = {
    "halts": counter(f"{_P}_bgwriter_halts_total", "Rounds that the background writer ended at its limit."),
    "cleaned": counter(f"{_P}_bgwriter_written_blocks_total", "Blocks written by the background writer."),
    "by_sessions": counter(f"{_P}_session_written_blocks_total", "Blocks that sessions of clients wrote themselves."),
}
WRITES_17 = Query(
    name="writes",
    sql="""
        SELECT maxwritten_clean AS halts, buffers_clean AS cleaned, (SELECT sum(writes) FROM pg_stat_io
            WHERE backend_type = 'client backend' AND object = 'relation' AND context = 'normal') AS by_sessions
        FROM pg_stat_bgwriter
    """,
    values=_WRITES,
)
# buffers_backend also counts blocks that extend a file.
WRITES_15 = Query(
    name="writes",
    sql="""
        SELECT maxwritten_clean AS halts, buffers_clean AS cleaned, buffers_backend AS by_sessions
        FROM pg_stat_bgwriter
    """,
    values=_WRITES,
)

SETTINGS = Query(
    name="settings",
    interval_seconds=30,
    sql="""
        SELECT name AS parameter, CASE
            WHEN name = 'autovacuum_vacuum_cost_limit' AND setting = '-1'
                THEN current_setting('vacuum_cost_limit')::numeric
            ELSE setting::numeric
                * CASE unit WHEN '8kB' THEN 8192 WHEN 'kB' THEN 1024 WHEN 'MB' THEN 1048576 ELSE 1 END
            END AS value
        FROM pg_settings WHERE name IN ('max_wal_size', 'work_mem', 'shared_buffers',
            'autovacuum_vacuum_cost_limit', 'bgwriter_lru_maxpages') ORDER BY name
    """,
    values={
        "value": Metric(
            f"{_P}_parameter", "Value of a parameter with recommendations. Sizes are in bytes.", ("parameter",)
        )
    },
)

_DATABASE = ("database",)
DATABASES = Query(
    name="databases",
    sql="""
        SELECT datname AS database, numbackends, xact_commit, xact_rollback, blks_read, blks_hit, deadlocks,
            temp_files, temp_bytes, conflicts, coalesce(checksum_failures, 0) AS checksum_failures,
            tup_returned AS rows_read, tup_inserted + tup_updated + tup_deleted AS rows_written
        FROM pg_stat_database WHERE datname IS NOT NULL AND datname NOT IN ('template0', 'template1')
        ORDER BY xact_commit DESC, 1
    """,
    values={
        "numbackends": Metric(f"{_P}_database_connections", "Connections to the database.", _DATABASE),
        "xact_commit": counter(f"{_P}_database_commits_total", "Committed transactions.", _DATABASE),
        "xact_rollback": counter(f"{_P}_database_rollbacks_total", "Rolled back transactions.", _DATABASE),
        "blks_read": counter(f"{_P}_database_blocks_read_total", "Blocks read from files.", _DATABASE),
        "blks_hit": counter(f"{_P}_database_blocks_hit_total", "Blocks found in shared buffers.", _DATABASE),
        "deadlocks": counter(f"{_P}_database_deadlocks_total", "Detected deadlocks.", _DATABASE),
        "temp_files": counter(f"{_P}_database_temporary_files_total", "Temporary files.", _DATABASE),
        "temp_bytes": counter(f"{_P}_database_temporary_bytes_total", "Bytes in temporary files.", _DATABASE),
        "conflicts": counter(
            f"{_P}_database_conflicts_total", "Queries that were cancelled by conflicts with recovery.", _DATABASE
        ),
        "checksum_failures": counter(
            f"{_P}_database_checksum_failures_total", "Data pages with a wrong checksum.", _DATABASE
        ),
        "rows_read": counter(f"{_P}_database_rows_read_total", "Rows and index entries that scans read.", _DATABASE),
        "rows_written": counter(
            f"{_P}_database_rows_written_total", "Rows that were inserted, updated or deleted.", _DATABASE
        ),
    },
)

WAITS_SQL = """
    SELECT coalesce(wait_event_type, 'CPU') AS type, count(*) AS sessions FROM pg_stat_activity
    WHERE state = 'active' AND backend_type = 'client backend' AND pid <> pg_backend_pid() GROUP BY 1
"""
WAIT_TYPES = ("Activity", "BufferPin", "Client", "CPU", "Extension", "IO", "IPC", "Lock", "LWLock", "Timeout")
ACTIVE_SESSION_SECONDS = counter(
    f"{_P}_active_session_seconds_total",
    "Time of active sessions by what they wait for. Its rate is the average number of active sessions.",
    ("wait_event_type",),
)
UP = Metric(f"{_P}_up", "1 if the server responds to queries.")


def server_queries(server_version: int) -> Sequence[Query]:
    """Return the queries for a version, most important first.

    A version is a number such as 170005.
    """
    is_17 = server_version >= 170000
    checkpoints, writes = (CHECKPOINTS_17, WRITES_17) if is_17 else (CHECKPOINTS_15, WRITES_15)
    return (
        *(SERVER, ACTIVITY, SESSIONS_BY_STATE, REPLICAS, RECEIVER, SLOTS, WAL, ARCHIVER),
        *(TRANSACTION_IDS, XMIN_HOLDERS, checkpoints, writes, SETTINGS, DATABASES),
    )
