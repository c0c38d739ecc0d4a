"""Prometheus metrics under controller-runtime's own names, so that existing dashboards and alerts work unchanged."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector

registry = CollectorRegistry()
"""Everything Steersman measures; operators register their own metrics here too."""

ProcessCollector(registry=registry)

_LATENCY = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
_QUEUE = (1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1, 10, 100, 1000)

reconcile_total = Counter(
    "controller_runtime_reconcile_total", "Reconciliations by result.", ["controller", "result"], registry=registry
)
reconcile_errors = Counter(
    "controller_runtime_reconcile_errors_total", "Failed reconciliations.", ["controller"], registry=registry
)
terminal_reconcile_errors = Counter(
    "controller_runtime_terminal_reconcile_errors_total",
    "Reconciliations that raised TerminalError.",
    ["controller"],
    registry=registry,
)
reconcile_time = Histogram(
    "controller_runtime_reconcile_time_seconds",
    "Duration of a reconciliation.",
    ["controller"],
    buckets=_LATENCY,
    registry=registry,
)
max_concurrent_reconciles = Gauge(
    "controller_runtime_max_concurrent_reconciles", "Workers of a controller.", ["controller"], registry=registry
)
active_workers = Gauge(
    "controller_runtime_active_workers", "Workers that reconcile at the moment.", ["controller"], registry=registry
)
queue_depth = Gauge("workqueue_depth", "Keys that wait.", ["name", "controller", "priority"], registry=registry)
queue_adds = Counter("workqueue_adds_total", "Keys added.", ["name", "controller"], registry=registry)
queue_retries = Counter(
    "workqueue_retries_total", "Keys added again after an error.", ["name", "controller"], registry=registry
)
queue_duration = Histogram(
    "workqueue_queue_duration_seconds",
    "How long a key waits before it is worked on.",
    ["name", "controller"],
    buckets=_QUEUE,
    registry=registry,
)
work_duration = Histogram(
    "workqueue_work_duration_seconds",
    "How long a key is worked on.",
    ["name", "controller"],
    buckets=_QUEUE,
    registry=registry,
)
watch_restarts = Counter(
    "steersman_watch_restarts_total",
    "Lists and watches begun anew, by kind and cause.",
    ["kind", "cause"],
    registry=registry,
)
decode_errors = Counter(
    "steersman_decode_errors_total", "Objects skipped since they do not fit their type.", ["kind"], registry=registry
)
leader_election_master_status = Gauge(
    "leader_election_master_status",
    "Whether this process leads (1) or stands by (0), by the name of the lease.",
    ["name"],
    registry=registry,
)
leader_election_slowpath = Counter(
    "leader_election_slowpath_total",
    "Renewals that had to read the lease first, since somebody else had written it or an answer was lost.",
    ["name"],
    registry=registry,
)
event_loop_lag = Histogram(
    "steersman_event_loop_lag_seconds",
    "How much later than asked for the event loop wakes up.",
    buckets=(0.001, 0.0025, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60),
    registry=registry,
)
event_loop_longest_lag = Gauge(
    "steersman_event_loop_longest_lag_seconds", "The longest lag of the event loop so far.", registry=registry
)
event_loop_blocks = Counter(
    "steersman_event_loop_blocks_total",
    "How often the event loop was blocked for longer than the limit; the log has the stack.",
    registry=registry,
)
_requests = Counter(
    "rest_client_requests_total", "Requests by status code.", ["code", "method", "host"], registry=registry
)
_request_duration = Histogram(
    "rest_client_request_duration_seconds",
    "Duration of a request.",
    ["verb", "host"],
    buckets=_LATENCY,
    registry=registry,
)

request_retries = Counter(
    "rest_client_request_retries_total",
    "Requests that were tried again, by the status code of the try before.",
    ["code", "verb", "host"],
    registry=registry,
)
rate_limiter_duration = Histogram(
    "rest_client_rate_limiter_duration_seconds",
    "How long a request waits for the rate limit on the client's side.",
    ["verb", "host"],
    buckets=_LATENCY,
    registry=registry,
)


def observe_request(method: str, host: str | None, code: int | str, seconds: float | None) -> None:
    """Counts a request; ``seconds`` is None for a stream, which has no meaningful duration."""
    _requests.labels(str(code), method, host or "").inc()
    if seconds is not None:
        _request_duration.labels(method, host or "").observe(seconds)
