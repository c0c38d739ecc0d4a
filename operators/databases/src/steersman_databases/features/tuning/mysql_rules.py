"""Rules for system variables of MySQL.

Source: MySQL 9.7 Reference Manual, "Server Status Variables", "How MySQL Opens and Closes Tables", "The Binary Log".
"""

from __future__ import annotations

from steersman_databases.features.tuning.rules import (
    KIB,
    MIB,
    OFTEN,
    Limits,
    Recommendation,
    RuleFunction,
    format_hours,
    raised,
    rises,
)
from steersman_databases.features.tuning.window import Window

_MAX_TABLE_CACHE = 16_384
_MAX_BINLOG_CACHE = 4 * MIB


def table_cache_overflows(window: Window, limits: Limits) -> Recommendation | None:
    """Recommend a larger `table_open_cache` if tables are closed to open others."""
    overflows, misses = window.total("table_cache_overflows"), window.total("table_cache_misses")
    lookups = misses + window.total("table_cache_hits")
    share = window.share_of_time(rises("table_cache_overflows"))
    if not lookups or misses < max(0.01 * lookups, window.seconds / 60) or share < OFTEN:
        return None
    current, files = (window.last.gauges.get(name, 0.0) for name in ("table_open_cache", "open_files_limit"))
    # A table needs up to two files, and other files remain.
    if (value := raised(current, min(_MAX_TABLE_CACHE, files / 3))) is None:
        return None
    hours = format_hours(window, rises("table_cache_overflows"))
    return Recommendation(
        rule="TableCacheOverflows",
        parameter="table_open_cache",
        current=f"{current:.0f}",
        value=f"{value:.0f}",
        evidence=f"{100 * misses / lookups:.0f} % of {lookups:.0f} lookups found no open table, and {overflows:.0f}"
        f" tables were closed for others, in {hours}",
        effect="Statements open fewer tables. Each open table uses memory and file descriptors",
    )


def binlog_cache_spills(window: Window, limits: Limits) -> Recommendation | None:
    """Recommend a larger `binlog_cache_size` if transactions often exceed it."""
    uses, spills = window.total("binlog_cache_uses"), window.total("binlog_cache_disk_uses")
    if spills < max(0.05 * uses, window.seconds / 60):
        return None
    current, connections = window.last.gauges.get("binlog_cache_size", 0.0), max(window.peak("connections"), 1.0)
    memory = _MAX_BINLOG_CACHE if limits.memory is None else 0.05 * limits.memory / connections
    if (value := raised(current, min(_MAX_BINLOG_CACHE, memory // KIB * KIB))) is None:
        return None
    hours = format_hours(window, rises("binlog_cache_disk_uses"))
    return Recommendation(
        rule="BinaryLogCacheSpills",
        parameter="binlog_cache_size",
        current=f"{current:.0f}",
        value=f"{value:.0f}",
        evidence=f"{spills:.0f} of {uses:.0f} transactions exceeded the cache and used a temporary file, in {hours}",
        effect="Large transactions write no temporary file. Each session may use this much memory",
    )


def buffer_pool_too_small(window: Window, limits: Limits) -> Recommendation | None:
    """Recommend a larger buffer pool if pages are read from files."""
    reads, requests = window.total("buffer_pool_reads"), window.total("buffer_pool_requests")
    current = window.last.gauges.get("innodb_buffer_pool_size", 0.0)
    is_full = window.last.gauges.get("buffer_pool_data_bytes", 0.0) >= 0.85 * current
    if limits.memory is None or not is_full or reads < max(0.01 * requests, 100 * window.seconds):
        return None
    # The server rounds to chunks of 128 MiB.
    chunk = 128 * MIB
    if (value := raised(current, 0.7 * limits.memory // chunk * chunk)) is None:
        return None
    return Recommendation(
        rule="BufferPoolTooSmall",
        parameter="innodb_buffer_pool_size",
        current=f"{current:.0f}",
        value=f"{value:.0f}",
        evidence=f"{reads / window.seconds:.0f} pages per second were read from files in {window.hours} hours,"
        f" {100 * reads / requests:.1f} % of all, while the buffer pool was full",
        effect="Fewer reads from files. Less memory remains for sessions",
    )


RULES: tuple[RuleFunction, ...] = (table_cache_overflows, binlog_cache_spills, buffer_pool_too_small)
