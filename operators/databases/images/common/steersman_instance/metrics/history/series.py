"""Series of each engine. They contain no name and no text of users."""

from __future__ import annotations

from collections.abc import Sequence

from .sources import HitRatio, Level, Rate, Series, Used

_PG, _MYSQL = "steersman_postgresql", "steersman_mysql"


def _host_series() -> Sequence[Series]:
    return (
        Series("data_volume_used", "bytes", Used(volume="data")),
        Series("cpu", "cores", Level(metrics=("steersman_server_cpu_cores",))),
        Series("memory", "bytes", Level(metrics=("steersman_server_memory_bytes",))),
    )


def postgresql_series() -> Sequence[Series]:
    """Return the series of a PostgreSQL instance."""

    def states(*names: str) -> Level:
        return Level(metrics=(f"{_PG}_sessions",), label=names)

    def per_database(*names: str) -> Rate:
        return Rate(metrics=[f"{_PG}_database_{name}_total" for name in names])

    def most(*names: str) -> Level:
        return Level(metrics=[f"{_PG}_{name}" for name in names], combine="max")

    return (
        Series("connections", "count", most("connections")),
        Series("sessions_active", "count", states("active")),
        Series(
            "sessions_idle_in_transaction", "count", states("idle in transaction", "idle in transaction (aborted)")
        ),
        Series("sessions_waiting_for_lock", "count", most("sessions_waiting_for_lock")),
        Series("longest_lock_wait", "seconds", most("longest_lock_wait_seconds")),
        Series("longest_transaction", "seconds", most("longest_transaction_seconds")),
        Series("transactions", "per_second", per_database("commits", "rollbacks")),
        Series("rows_read", "per_second", per_database("rows_read")),
        Series("rows_written", "per_second", per_database("rows_written")),
        Series("deadlocks", "per_second", per_database("deadlocks")),
        Series(
            "cache_hit_ratio",
            "ratio",
            HitRatio(misses=per_database("blocks_read"), requests=per_database("blocks_read", "blocks_hit")),
        ),
        Series("temporary_files", "bytes_per_second", per_database("temporary_bytes")),
        Series("lag", "seconds", most("replica_lag_seconds", "replay_lag_seconds")),
        Series("lag_bytes", "bytes", most("replica_lag_bytes")),
        Series("wal", "bytes_per_second", Rate(metrics=(f"{_PG}_wal_bytes_total",))),
        Series("wal_retained_by_slot", "bytes", most("slot_retained_bytes")),
        *_host_series(),
    )


def mysql_series() -> Sequence[Series]:
    """Return the series of a MySQL instance."""

    def gauge(name: str) -> Level:
        return Level(metrics=(f"{_MYSQL}_{name}",))

    def rate(*names: str) -> Rate:
        return Rate(metrics=[f"{_MYSQL}_{name}_total" for name in names])

    return (
        Series("connections", "count", gauge("connections")),
        Series("sessions_active", "count", gauge("threads_running")),
        Series("sessions_idle_in_transaction", "count", gauge("sessions_idle_in_transaction")),
        Series("sessions_waiting_for_lock", "count", gauge("row_lock_waits")),
        Series("longest_lock_wait", "seconds", gauge("longest_lock_wait_seconds")),
        Series("longest_transaction", "seconds", gauge("longest_transaction_seconds")),
        Series("statements", "per_second", rate("statements")),
        Series("transactions", "per_second", rate("commits", "rollbacks")),
        Series("rows_read", "per_second", rate("rows_read")),
        Series("rows_written", "per_second", rate("rows_inserted", "rows_updated", "rows_deleted")),
        Series(
            "cache_hit_ratio",
            "ratio",
            HitRatio(misses=rate("buffer_pool_reads"), requests=rate("buffer_pool_read_requests")),
        ),
        Series("temporary_disk_tables", "per_second", rate("temporary_disk_tables")),
        Series("lag", "seconds", gauge("apply_lag_seconds")),
        Series("apply_queue", "count", gauge("apply_queue")),
        # The size of the files that are kept. It decreases when the server purges one, like a counter that is reset.
        Series("binary_log", "bytes_per_second", Rate(metrics=(f"{_MYSQL}_binary_log_bytes",))),
        Series("redo_log", "bytes_per_second", rate("redo_log_bytes")),
        Series("undo_history_length", "count", gauge("undo_history_length")),
        *_host_series(),
    )
