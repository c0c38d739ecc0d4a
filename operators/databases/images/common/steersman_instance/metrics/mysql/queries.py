"""Queries about the whole server. They open no table of a user.

Source: MySQL 9.7 Reference Manual, "Server Status Variables", "Performance Schema Replication Tables",
"INFORMATION_SCHEMA InnoDB Tables".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ..catalog import Metric, Reading, Sample, counter
from ..query import Query, Session, number

_P = "steersman_mysql"
UP = Metric(f"{_P}_up", "1 if the server responds to queries.")

_STATUS: Mapping[str, Metric] = {
    "Uptime": Metric(f"{_P}_uptime_seconds", "Time since the start of the server."),
    "Threads_connected": Metric(f"{_P}_connections", "Connections of clients."),
    "Threads_running": Metric(f"{_P}_threads_running", "Threads that run a statement."),
    "Connections": counter(f"{_P}_connection_attempts_total", "Attempts to connect."),
    "Aborted_connects": counter(f"{_P}_aborted_connects_total", "Attempts to connect that failed."),
    "Connection_errors_max_connections": counter(
        f"{_P}_connections_refused_total", "Connections that max_connections refused."
    ),
    "Questions": counter(f"{_P}_statements_total", "Statements of clients."),
    "Com_commit": counter(f"{_P}_commits_total", "Statements COMMIT."),
    "Com_rollback": counter(f"{_P}_rollbacks_total", "Statements ROLLBACK."),
    "Slow_queries": counter(f"{_P}_slow_statements_total", "Statements slower than long_query_time."),
    "Created_tmp_disk_tables": counter(f"{_P}_temporary_disk_tables_total", "Temporary tables on disk."),
    "Innodb_buffer_pool_bytes_data": Metric(f"{_P}_buffer_pool_data_bytes", "Bytes of data in the buffer pool."),
    "Innodb_buffer_pool_bytes_dirty": Metric(
        f"{_P}_buffer_pool_dirty_bytes", "Bytes in the buffer pool that are not written yet."
    ),
    "Innodb_buffer_pool_read_requests": counter(
        f"{_P}_buffer_pool_read_requests_total", "Pages read from the buffer pool."
    ),
    "Innodb_buffer_pool_reads": counter(f"{_P}_buffer_pool_reads_total", "Pages read from files."),
    "Table_open_cache_hits": counter(f"{_P}_table_cache_hits_total", "Lookups of open tables that found one."),
    "Table_open_cache_misses": counter(f"{_P}_table_cache_misses_total", "Lookups of open tables that found none."),
    "Table_open_cache_overflows": counter(
        f"{_P}_table_cache_overflows_total", "Tables that were closed because too many were open."
    ),
    "Binlog_cache_use": counter(f"{_P}_binlog_cache_uses_total", "Transactions that used the binary log cache."),
    "Binlog_cache_disk_use": counter(
        f"{_P}_binlog_cache_disk_uses_total", "Transactions that exceeded the binary log cache."
    ),
    "Innodb_row_lock_current_waits": Metric(f"{_P}_row_lock_waits", "Transactions that wait for a row lock."),
    "Innodb_row_lock_waits": counter(f"{_P}_row_lock_waits_total", "Waits for row locks."),
    "Innodb_rows_read": counter(f"{_P}_rows_read_total", "Rows that were read."),
    "Innodb_rows_inserted": counter(f"{_P}_rows_inserted_total", "Rows that were inserted."),
    "Innodb_rows_updated": counter(f"{_P}_rows_updated_total", "Rows that were updated."),
    "Innodb_rows_deleted": counter(f"{_P}_rows_deleted_total", "Rows that were deleted."),
    "Innodb_os_log_written": counter(f"{_P}_redo_log_bytes_total", "Bytes written to the redo log."),
    "Innodb_data_read": counter(f"{_P}_data_read_bytes_total", "Bytes read from files."),
    "Innodb_data_written": counter(f"{_P}_data_written_bytes_total", "Bytes written to files."),
}
_VARIABLES: Mapping[str, Metric] = {
    "max_connections": Metric(f"{_P}_max_connections", "Variable max_connections."),
    "innodb_buffer_pool_size": Metric(f"{_P}_buffer_pool_size_bytes", "Variable innodb_buffer_pool_size."),
    "table_open_cache": Metric(f"{_P}_table_open_cache", "Variable table_open_cache."),
    "open_files_limit": Metric(f"{_P}_open_files_limit", "Variable open_files_limit."),
    "binlog_cache_size": Metric(f"{_P}_binlog_cache_size_bytes", "Variable binlog_cache_size."),
    "super_read_only": Metric(f"{_P}_super_read_only", "1 if the server refuses all writes of clients."),
    "offline_mode": Metric(f"{_P}_offline_mode", "1 if the server refuses clients."),
}
_SWITCH = {"ON": 1.0, "OFF": 0.0}


@dataclass(frozen=True)
class Status:
    """Status and system variables of the server."""

    name: str = "server"
    interval_seconds: float = 10.0
    metrics: Sequence[Metric] = (*_STATUS.values(), *_VARIABLES.values())

    def collect(self, session: Session) -> Reading:
        """See `Collector.collect`."""
        samples: list[Sample] = []
        for table, metrics in (("global_status", _STATUS), ("global_variables", _VARIABLES)):
            names = ", ".join(f"'{name}'" for name in metrics)
            sql = (
                "SELECT VARIABLE_NAME AS name, VARIABLE_VALUE AS value FROM"  # noqa: S608
                f" performance_schema.{table} WHERE VARIABLE_NAME IN ({names})"
            )
            for row in session.rows(sql):
                value = _SWITCH.get(str(row["value"]), number(row["value"]))
                metric = {name.lower(): one for name, one in metrics.items()}.get(str(row["name"]).lower())
                if metric is not None and value is not None:
                    samples.append(Sample(metric, (), value))
        return Reading(samples)


GROUP = Query(
    name="group",
    interval_seconds=5,
    sql="""
        SELECT (SELECT COUNT(*) FROM performance_schema.replication_group_members WHERE MEMBER_STATE <> 'OFFLINE')
                AS members,
            (SELECT COUNT(*) FROM performance_schema.replication_group_members
                WHERE MEMBER_STATE IN ('ONLINE', 'RECOVERING')) AS reachable,
            (SELECT COUNT(*) FROM performance_schema.replication_group_members
                WHERE MEMBER_ID = @@server_uuid AND MEMBER_STATE = 'ONLINE') AS online,
            (SELECT COUNT(*) FROM performance_schema.replication_group_members
                WHERE MEMBER_ID = @@server_uuid AND MEMBER_STATE = 'ONLINE' AND MEMBER_ROLE = 'PRIMARY')
                AS is_primary,
            (SELECT COALESCE(SUM(COUNT_TRANSACTIONS_REMOTE_IN_APPLIER_QUEUE), 0)
                FROM performance_schema.replication_group_member_stats WHERE MEMBER_ID = @@server_uuid) AS queue,
            (SELECT COALESCE(MAX(TIMESTAMPDIFF(MICROSECOND, APPLYING_TRANSACTION_ORIGINAL_COMMIT_TIMESTAMP,
                    SYSDATE(6)) / 1e6), 0)
                FROM performance_schema.replication_applier_status_by_worker
                WHERE APPLYING_TRANSACTION_ORIGINAL_COMMIT_TIMESTAMP > 0) AS behind
    """,
    values={
        "members": Metric(f"{_P}_group_members", "Members of the group, as this server sees it."),
        "reachable": Metric(f"{_P}_group_members_reachable", "Members that this server reaches."),
        "online": Metric(f"{_P}_group_online", "1 if this server is an online member."),
        "is_primary": Metric(f"{_P}_is_primary", "1 if this server is the primary of its group."),
        "queue": Metric(f"{_P}_apply_queue", "Transactions that this server has received and not applied."),
        "behind": Metric(
            f"{_P}_apply_lag_seconds", "Time since the commit of the transaction that is being applied."
        ),
    },
)

TRANSACTIONS = Query(
    name="transactions",
    interval_seconds=10,
    sql="""
        SELECT COALESCE(MAX(TIMESTAMPDIFF(SECOND, trx_started, NOW())), 0) AS longest,
            COALESCE(MAX(TIMESTAMPDIFF(SECOND, trx_wait_started, NOW())), 0) AS longest_wait, COUNT(*) AS running,
            COALESCE(SUM(trx_mysql_thread_id IN
                (SELECT ID FROM performance_schema.processlist WHERE COMMAND = 'Sleep')), 0) AS idle
        FROM information_schema.INNODB_TRX
    """,
    values={
        "longest": Metric(f"{_P}_longest_transaction_seconds", "Age of the oldest transaction."),
        "longest_wait": Metric(
            f"{_P}_longest_lock_wait_seconds", "Longest time that a transaction waits for a lock."
        ),
        "running": Metric(f"{_P}_transactions", "Running transactions."),
        "idle": Metric(f"{_P}_sessions_idle_in_transaction", "Sessions that are idle in a transaction."),
    },
)

HISTORY = Query(
    name="history",
    sql="SELECT COUNT AS length FROM information_schema.INNODB_METRICS WHERE NAME = 'trx_rseg_history_len'",
    values={"length": Metric(f"{_P}_undo_history_length", "Undo log entries that are not purged.")},
)

DATABASES = Query(
    name="database_sizes",
    interval_seconds=60,
    sql="""
        SELECT SUBSTRING_INDEX(NAME, '/', 1) AS `database`, SUM(FILE_SIZE) AS bytes
        FROM information_schema.INNODB_TABLESPACES WHERE NAME LIKE '%/%' GROUP BY 1 ORDER BY 2 DESC, 1
    """,
    values={"bytes": Metric(f"{_P}_database_bytes", "Size of the files of the database.", ("database",))},
)


@dataclass(frozen=True)
class BinaryLogs:
    """Number and size of the binary logs."""

    name: str = "binary_logs"
    interval_seconds: float = 15.0
    metrics: Sequence[Metric] = (
        Metric(f"{_P}_binary_log_bytes", "Size of the binary logs that the server keeps."),
        Metric(f"{_P}_binary_logs", "Binary logs that the server keeps."),
    )

    def collect(self, session: Session) -> Reading:
        """See `Collector.collect`."""
        rows = session.rows("SHOW BINARY LOGS")
        size, count = self.metrics
        total = sum(number(row["File_size"]) or 0 for row in rows)
        return Reading([Sample(size, (), total), Sample(count, (), len(rows))])


COLLECTORS = (Status(), GROUP, TRANSACTIONS, HISTORY, BinaryLogs(), DATABASES)
"""The most important ones first."""
