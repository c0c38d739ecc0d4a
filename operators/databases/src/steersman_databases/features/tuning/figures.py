"""Figures for the rules, from the metrics that each instance exports.

Source: images/common/steersman_instance/metrics. A metric that an older image does not export is absent, and the
rules that need it are silent.
"""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime

from prometheus_client.parser import text_string_to_metric_families

from steersman_databases.engines.connection.https_get import https_get
from steersman_databases.engines.errors import ServerUnreachable
from steersman_databases.engines.server import ServerEndpoint
from steersman_databases.features.tuning.window import Sample, TableRows

GetMetrics = Callable[[ServerEndpoint, str], Awaitable[str]]
"""Request for the metrics of an instance.

Arguments are its endpoint, and the CAs of the cluster's servers in PEM.
"""
_TIMEOUT_SECONDS = 3.0
_LIMIT_BYTES = 2 << 20
_MAX_TABLES = 3
_DEAD, _LIVE = "steersman_postgresql_table_dead_rows", "steersman_postgresql_table_live_rows"


@dataclass(frozen=True, slots=True)
class Figure:
    """A figure of the rules, and the series that it sums up.

    Attributes:
        metric: name of the metric.
        labels: label values that a series must have.
        unlike: label values that a series must not have.
    """

    name: str
    metric: str
    labels: Mapping[str, str]
    unlike: Mapping[str, str]


def _figure(
    name: str, metric: str, labels: Mapping[str, str] | None = None, unlike: Mapping[str, str] | None = None
) -> Figure:
    return Figure(name, metric, labels or {}, unlike or {})


_P, _M = "steersman_postgresql", "steersman_mysql"
# The exporter and the operator use this database.
_USERS = {"database": "postgres"}
POSTGRESQL: tuple[Figure, ...] = (
    _figure("commits", f"{_P}_database_commits_total", unlike=_USERS),
    _figure("temporary_files", f"{_P}_database_temporary_files_total", unlike=_USERS),
    _figure("temporary_bytes", f"{_P}_database_temporary_bytes_total", unlike=_USERS),
    _figure("blocks_read", f"{_P}_database_blocks_read_total", unlike=_USERS),
    _figure("blocks_hit", f"{_P}_database_blocks_hit_total", unlike=_USERS),
    _figure("wal_bytes", f"{_P}_wal_bytes_total"),
    _figure("requested_checkpoints", f"{_P}_checkpoints_total", {"trigger": "requested"}),
    _figure("timed_checkpoints", f"{_P}_checkpoints_total", {"trigger": "timed"}),
    _figure("bgwriter_halts", f"{_P}_bgwriter_halts_total"),
    _figure("bgwriter_blocks", f"{_P}_bgwriter_written_blocks_total"),
    _figure("session_blocks", f"{_P}_session_written_blocks_total"),
    _figure("active_seconds", f"{_P}_active_session_seconds_total", unlike={"wait_event_type": "Client"}),
    _figure("started", f"{_P}_start_time_seconds"),
    _figure("is_primary", f"{_P}_is_primary"),
    _figure("connections", f"{_P}_connections"),
    _figure("delayed_vacuum_workers", f"{_P}_autovacuum_workers_delayed"),
    _figure("dead_rows", _DEAD),
    _figure("data_volume_bytes", "steersman_volume_size_bytes", {"volume": "data"}),
    _figure("wal_volume_bytes", "steersman_volume_size_bytes", {"volume": "wal"}),
    *(
        _figure(name, f"{_P}_parameter", {"parameter": name})
        for name in (
            *("autovacuum_vacuum_cost_limit", "bgwriter_lru_maxpages", "max_wal_size", "shared_buffers"),
            "work_mem",
        )
    ),
)
MYSQL: tuple[Figure, ...] = (
    _figure("statements", f"{_M}_statements_total"),
    _figure("table_cache_hits", f"{_M}_table_cache_hits_total"),
    _figure("table_cache_misses", f"{_M}_table_cache_misses_total"),
    _figure("table_cache_overflows", f"{_M}_table_cache_overflows_total"),
    _figure("binlog_cache_uses", f"{_M}_binlog_cache_uses_total"),
    _figure("binlog_cache_disk_uses", f"{_M}_binlog_cache_disk_uses_total"),
    _figure("buffer_pool_reads", f"{_M}_buffer_pool_reads_total"),
    _figure("buffer_pool_requests", f"{_M}_buffer_pool_read_requests_total"),
    _figure("is_primary", f"{_M}_is_primary"),
    _figure("connections", f"{_M}_connections"),
    _figure("buffer_pool_data_bytes", f"{_M}_buffer_pool_data_bytes"),
    _figure("innodb_buffer_pool_size", f"{_M}_buffer_pool_size_bytes"),
    _figure("table_open_cache", f"{_M}_table_open_cache"),
    _figure("open_files_limit", f"{_M}_open_files_limit"),
    _figure("binlog_cache_size", f"{_M}_binlog_cache_size_bytes"),
)


async def get_metrics(endpoint: ServerEndpoint, authorities: str) -> str:
    """Return the metrics of an instance as text.

    Raises:
        ServerUnreachable: it does not respond in 3 s, or with more than 2 MiB.
    """
    body = await https_get(
        endpoint, "/metrics", authorities, limit_bytes=_LIMIT_BYTES, timeout_seconds=_TIMEOUT_SECONDS
    )
    try:
        return body.decode()
    except UnicodeDecodeError as error:
        raise ServerUnreachable(endpoint, "the metrics are not UTF-8") from error


def parse_sample(text: str, pod_uid: str, at: datetime, figures: Iterable[Figure]) -> Sample | None:
    """Return the sample in the metrics of an instance.

    None if it is not the primary.

    Raises:
        ValueError: the text is malformed.
    """
    by_metric: dict[str, list[Figure]] = {}
    for figure in figures:
        by_metric.setdefault(figure.metric, []).append(figure)
    counters, gauges, tables = dict[str, float](), dict[str, float](), dict[str, dict[str, float]]()
    for name, labels, value in _series(text, {*by_metric, _DEAD, _LIVE}):
        for figure in by_metric.get(name, ()):
            if _matches(figure, labels):
                target = counters if name.endswith("_total") else gauges
                target[figure.name] = target.get(figure.name, 0.0) + value
        if name in (_DEAD, _LIVE):
            table = ".".join(labels.get(part, "") for part in ("database", "schema", "table"))
            tables.setdefault(table, {})[name] = value
    if gauges.get("is_primary") != 1:
        return None
    server = f"{pod_uid} {gauges.get('started', 0.0):.0f}"
    return Sample(at=at, server=server, counters=counters, gauges=gauges, tables=dict(_largest(tables)))


def _series(text: str, metrics: Collection[str]) -> Iterator[tuple[str, Mapping[str, str], float]]:
    """Yield the series of some metrics.

    The parser is slow, and the queries of users may have thousands of series.
    """
    known = [line for line in text.split("\n") if line.partition("{")[0].partition(" ")[0] in metrics]
    for family in text_string_to_metric_families("\n".join(known)):
        for sample in family.samples:
            yield sample.name, sample.labels, sample.value


def _matches(figure: Figure, labels: Mapping[str, str]) -> bool:
    required = all(labels.get(name) == value for name, value in figure.labels.items())
    return required and not any(labels.get(name) == value for name, value in figure.unlike.items())


def _largest(tables: Mapping[str, Mapping[str, float]]) -> Iterator[tuple[str, TableRows]]:
    ordered = sorted(tables.items(), key=lambda item: -item[1].get(_DEAD, 0.0))
    for name, rows in ordered[:_MAX_TABLES]:
        # The name is the same in hundreds of samples.
        yield sys.intern(name), TableRows(rows.get(_DEAD, 0.0), rows.get(_LIVE, 0.0))
