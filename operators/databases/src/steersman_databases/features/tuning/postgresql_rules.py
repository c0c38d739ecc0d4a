"""Rules for parameters of PostgreSQL.

Source: PostgreSQL 17 documentation, 19.4 "Resource Consumption", 19.5 "Write Ahead Log", 19.10 "Automatic Vacuuming",
27.2 "The Cumulative Statistics System".
"""

from __future__ import annotations

from statistics import median

from steersman_databases.features.tuning.rules import (
    MIB,
    OFTEN,
    Limits,
    Recommendation,
    RuleFunction,
    format_bytes,
    format_hours,
    raised,
    rises,
)
from steersman_databases.features.tuning.window import Period, Window

_MAX_COST_LIMIT = 3200
_MAX_BGWRITER_PAGES = 1000
_MAX_WORK_MEM = 1024 * MIB


def checkpoints_requested(window: Window, limits: Limits) -> Recommendation | None:
    """Recommend a higher `max_wal_size` if WAL forces most checkpoints.

    The WAL must fit on its volume: an eighth of the data volume, or half of a volume of its own.
    """
    gauges = window.last.gauges
    requested, timed = window.total("requested_checkpoints"), window.total("timed_checkpoints")
    if requested < max(timed, window.seconds / 3600, 3):
        return None
    own_volume = gauges.get("wal_volume_bytes", 0.0)
    bound = own_volume / 2 if own_volume else gauges.get("data_volume_bytes", 0.0) / 8
    current = gauges.get("max_wal_size", 0.0)
    if (value := raised(current, bound)) is None:
        return None
    hours = format_hours(window, rises("requested_checkpoints"))
    return Recommendation(
        rule="CheckpointsRequested",
        parameter="max_wal_size",
        current=format_bytes(current),
        value=format_bytes(value),
        evidence=f"{requested:.0f} of {requested + timed:.0f} checkpoints were requested, in {hours}. WAL reached"
        " max_wal_size before checkpoint_timeout",
        effect="Fewer checkpoints and fewer full-page images, so less WAL per transaction. Recovery after a crash"
        f" takes longer, and WAL occupies up to {format_bytes(value)}",
    )


def temporary_files(window: Window, limits: Limits) -> Recommendation | None:
    """Recommend a higher `work_mem` if sorts and hashes often spill to files.

    Twice the value for each session of the peak must fit in the memory that `shared_buffers` leaves.
    """
    gauges, files, size = window.last.gauges, window.total("temporary_files"), window.total("temporary_bytes")
    share = window.share_of_time(rises("temporary_bytes", 16 * MIB))
    if limits.memory is None or not files or share < OFTEN:
        return None
    sessions = max(window.peak("connections"), 1.0)
    free = limits.memory - gauges.get("shared_buffers", 0.0)
    current = gauges.get("work_mem", 0.0)
    if (value := raised(current, min(free / (2 * sessions), _MAX_WORK_MEM))) is None:
        return None
    hours = format_hours(window, rises("temporary_bytes", 16 * MIB))
    return Recommendation(
        rule="TemporaryFiles",
        parameter="work_mem",
        current=format_bytes(current),
        value=format_bytes(value),
        evidence=f"{files:.0f} temporary files with {format_bytes(size)}, {format_bytes(size / files)} on average, in"
        f" {hours}. At most {sessions:.0f} connections were open",
        effect="Larger sorts and hashes stay in memory. Each of them may use up to this much memory in each session",
    )


def autovacuum_delayed(window: Window, limits: Limits) -> Recommendation | None:
    """Recommend a higher cost limit if autovacuum pauses while dead rows rise."""
    current = window.last.gauges.get("autovacuum_vacuum_cost_limit", 0.0)
    value = raised(current, _MAX_COST_LIMIT)
    if value is None or window.share_of_time(_is_vacuum_delayed) < OFTEN:
        return None
    rising = [(rows.dead, name) for name, rows in window.last.tables.items() if _dead_rows_rise(window, name)]
    if not rising:
        return None
    dead, table = max(rising)
    first = next(window.dead_rows(table))
    hours = format_hours(window, _is_vacuum_delayed)
    return Recommendation(
        rule="AutovacuumDelayed",
        parameter="autovacuum_vacuum_cost_limit",
        current=f"{current:.0f}",
        value=f"{value:.0f}",
        evidence=f"autovacuum was cost-limited in {hours} while the dead rows of {table} rose from {first:.0f} to"
        f" {dead:.0f}",
        effect="Autovacuum removes dead rows faster, and uses more I/O meanwhile. All workers share the limit",
    )


def _is_vacuum_delayed(period: Period) -> bool:
    return period.end.gauges.get("delayed_vacuum_workers", 0.0) > 0


def _dead_rows_rise(window: Window, table: str) -> bool:
    rows, dead = window.last.tables[table], list(window.dead_rows(table))
    third = len(dead) // 3
    if third < 2 or rows.dead < max(10_000, 0.1 * rows.live):
        return False
    return median(dead[-third:]) >= 1.5 * median(dead[:third])


def bgwriter_stopped(window: Window, limits: Limits) -> Recommendation | None:
    """Recommend a higher `bgwriter_lru_maxpages` if sessions write blocks themselves."""
    current = window.last.gauges.get("bgwriter_lru_maxpages", 0.0)
    halts, written = window.total("bgwriter_halts"), window.total("bgwriter_blocks")
    by_sessions = window.total("session_blocks")
    value = raised(current, _MAX_BGWRITER_PAGES)
    share = window.share_of_time(rises("bgwriter_halts"))
    if value is None or share < OFTEN or by_sessions < max(0.1 * (written + by_sessions), window.seconds):
        return None
    hours = format_hours(window, rises("bgwriter_halts"))
    return Recommendation(
        rule="BackgroundWriterStopped",
        parameter="bgwriter_lru_maxpages",
        current=f"{current:.0f}",
        value=f"{value:.0f}",
        evidence=f"the background writer stopped {halts:.0f} times at its limit, in {hours}. Sessions wrote"
        f" {by_sessions:.0f} blocks themselves, and it wrote {written:.0f}",
        effect="Sessions wait less for writes of other data. Blocks that change often are written more often",
    )


def buffers_too_small(window: Window, limits: Limits) -> Recommendation | None:
    """Recommend more `shared_buffers` if many blocks are read from files."""
    current = window.last.gauges.get("shared_buffers", 0.0)
    read, hit = window.total("blocks_read"), window.total("blocks_hit")
    if limits.memory is None or read < 500 * window.seconds or hit / (read + hit) >= 0.95:
        return None
    if (value := raised(current, 0.4 * limits.memory)) is None:
        return None
    return Recommendation(
        rule="BuffersTooSmall",
        parameter="shared_buffers",
        current=format_bytes(current),
        value=format_bytes(value),
        evidence=f"{read / window.seconds:.0f} blocks per second were read from files in {window.hours} hours. Only"
        f" {100 * hit / (read + hit):.0f} % of the blocks were in shared_buffers",
        effect="Fewer reads from files. Less memory remains for sessions and the file cache",
        restart=True,
    )


RULES: tuple[RuleFunction, ...] = (
    checkpoints_requested,
    temporary_files,
    autovacuum_delayed,
    bgwriter_stopped,
    buffers_too_small,
)
