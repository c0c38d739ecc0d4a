"""Rules: what they recommend, by which evidence, and when they are silent."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta

import pytest

from database_support.unit.tuning_samples import GIB, MIB, Figures, samples, window
from steersman_databases.features.tuning import mysql_rules, postgresql_rules
from steersman_databases.features.tuning.rules import Limits, Recommendation, RuleFunction
from steersman_databases.features.tuning.window import TableRows, periods_of

DAY = 289  # samples
LIMITS = Limits(memory=4 * GIB)
GAUGES: Figures = {
    "max_wal_size": GIB,
    "work_mem": 4 * MIB,
    "shared_buffers": GIB,
    "autovacuum_vacuum_cost_limit": 200,
    "bgwriter_lru_maxpages": 100,
    "data_volume_bytes": 100 * GIB,
    "connections": 20,
    "table_open_cache": 4000,
    "open_files_limit": 1_048_576,
    "binlog_cache_size": 32 << 10,
    "innodb_buffer_pool_size": GIB,
    "buffer_pool_data_bytes": GIB,
}
BUSY: Mapping[RuleFunction, Figures] = {
    postgresql_rules.checkpoints_requested: {"requested_checkpoints": 2, "timed_checkpoints": 0},
    postgresql_rules.temporary_files: {"temporary_files": 10, "temporary_bytes": 320 * MIB},
    postgresql_rules.bgwriter_stopped: {"bgwriter_halts": 4, "bgwriter_blocks": 5000, "session_blocks": 2000},
    postgresql_rules.buffers_too_small: {"blocks_read": 600_000, "blocks_hit": 1_200_000},
    mysql_rules.table_cache_overflows: {
        "table_cache_hits": 9000,
        "table_cache_misses": 1000,
        "table_cache_overflows": 900,
    },
    mysql_rules.binlog_cache_spills: {"binlog_cache_uses": 1000, "binlog_cache_disk_uses": 100},
    mysql_rules.buffer_pool_too_small: {"buffer_pool_reads": 60_000, "buffer_pool_requests": 600_000},
}


def recommended(rule: RuleFunction, rates: Figures, gauges: Figures = GAUGES) -> Recommendation | None:
    """The recommendation after a day at these rates."""
    return rule(window(samples(DAY, rates, gauges)), LIMITS)


@pytest.mark.parametrize(
    ("rule", "parameter", "value", "evidence"),
    [
        (
            postgresql_rules.checkpoints_requested,
            "max_wal_size",
            "2GB",
            (
                "576 of 576 checkpoints were requested, in 24 of 24 hours. WAL reached max_wal_size before"
                " checkpoint_timeout"
            ),
        ),
        (
            postgresql_rules.temporary_files,
            "work_mem",
            "8MB",
            "2880 temporary files with 90GB, 32MB on average, in 24 of 24 hours. At most 20 connections were open",
        ),
        (
            postgresql_rules.bgwriter_stopped,
            "bgwriter_lru_maxpages",
            "200",
            (
                "the background writer stopped 1152 times at its limit, in 24 of 24 hours. Sessions wrote 576000"
                " blocks themselves, and it wrote 1440000"
            ),
        ),
        (
            postgresql_rules.buffers_too_small,
            "shared_buffers",
            "1638MB",
            "2000 blocks per second were read from files in 24 hours. Only 67 % of the blocks were in shared_buffers",
        ),
        (
            mysql_rules.table_cache_overflows,
            "table_open_cache",
            "8000",
            (
                "10 % of 2880000 lookups found no open table, and 259200 tables were closed for others, in 24 of 24"
                " hours"
            ),
        ),
        (
            mysql_rules.binlog_cache_spills,
            "binlog_cache_size",
            "65536",
            "28800 of 288000 transactions exceeded the cache and used a temporary file, in 24 of 24 hours",
        ),
        (
            mysql_rules.buffer_pool_too_small,
            "innodb_buffer_pool_size",
            "2147483648",
            "200 pages per second were read from files in 24 hours, 10.0 % of all, while the buffer pool was full",
        ),
    ],
)
def test_rule_recommends_with_evidence(rule: RuleFunction, parameter: str, value: str, evidence: str) -> None:
    found = recommended(rule, BUSY[rule])
    assert found is not None
    assert (found.parameter, found.value, found.evidence) == (parameter, value, evidence)
    assert found.restart is (parameter == "shared_buffers")
    assert found.effect


@pytest.mark.parametrize("rule", BUSY)
def test_rule_is_silent_on_an_idle_server(rule: RuleFunction) -> None:
    assert recommended(rule, dict.fromkeys(BUSY[rule], 0.0)) is None


@pytest.mark.parametrize("rule", [*postgresql_rules.RULES, *mysql_rules.RULES])
def test_rule_is_silent_without_metrics(rule: RuleFunction) -> None:
    """An older image does not export them."""
    assert rule(window(samples(DAY, {}, {})), LIMITS) is None
    assert rule(window(samples(DAY, BUSY.get(rule, {}), {})), Limits()) is None


@pytest.mark.parametrize(
    ("rule", "gauges"),
    [
        (postgresql_rules.checkpoints_requested, {"data_volume_bytes": 8 * GIB}),
        (postgresql_rules.checkpoints_requested, {"wal_volume_bytes": 2 * GIB}),
        (postgresql_rules.temporary_files, {"connections": 400}),
        (postgresql_rules.bgwriter_stopped, {"bgwriter_lru_maxpages": 1000}),
        (postgresql_rules.buffers_too_small, {"shared_buffers": 1.6 * GIB}),
        (mysql_rules.table_cache_overflows, {"open_files_limit": 10_000}),
        (mysql_rules.binlog_cache_spills, {"connections": 5000, "binlog_cache_size": 40 << 10}),
        (mysql_rules.buffer_pool_too_small, {"innodb_buffer_pool_size": 2.8 * GIB}),
        (mysql_rules.buffer_pool_too_small, {"buffer_pool_data_bytes": 0.5 * GIB}),
    ],
)
def test_rule_is_silent_without_room(rule: RuleFunction, gauges: Figures) -> None:
    assert recommended(rule, BUSY[rule], {**GAUGES, **gauges}) is None


def vacuumed(dead: float, *, delayed: float, grows: bool) -> Recommendation | None:
    """The recommendation for a table whose dead rows grow to this number, or have it all the time."""

    def tables(index: int) -> Mapping[str, TableRows]:
        return {"shop.public.orders": TableRows(dead * (index + 1) / DAY if grows else dead, 1_000_000)}

    def gauges(index: int) -> Figures:
        return {**GAUGES, "delayed_vacuum_workers": float(index % 12 < 12 * delayed)}

    return postgresql_rules.autovacuum_delayed(window(samples(DAY, {}, gauges, tables=tables)), LIMITS)


def test_delayed_autovacuum_with_rising_dead_rows_is_found() -> None:
    found = vacuumed(500_000, delayed=0.5, grows=True)
    assert found is not None
    assert (found.parameter, found.value) == ("autovacuum_vacuum_cost_limit", "400")
    assert found.evidence == (
        "autovacuum was cost-limited in 24 of 24 hours while the dead rows of shop.public.orders rose"
        " from 3460 to 500000"
    )


@pytest.mark.parametrize(
    ("dead", "delayed", "grows"), [(500_000, 0.0, True), (500_000, 0.5, False), (5_000, 0.5, True)]
)
def test_autovacuum_that_keeps_up_is_left_alone(dead: float, delayed: float, grows: bool) -> None:
    assert vacuumed(dead, delayed=delayed, grows=grows) is None


def test_periods_end_at_a_restart_or_a_reset() -> None:
    before, restarted, reset = samples(3, {"commits": 10}, {}), samples(2, {"commits": 5}, {}), samples(2, {}, {})
    later = [
        replace(one, at=one.at + timedelta(hours=hours), server=server)
        for hours, server, part in ((1, "pod-1 1", restarted), (2, "pod-1 1", reset))
        for one in part
    ]
    lengths = [period.seconds for period in periods_of([*before, *later])]
    assert lengths == [300] * 4
