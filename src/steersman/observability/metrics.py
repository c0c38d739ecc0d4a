"""Prometheus metrics under controller-runtime's own names, so that existing dashboards and alerts work unchanged."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector

registry = CollectorRegistry()
"""Everything Steersman measures; operators register their own metrics here too."""

ProcessCollector(registry=registry)

_LATENCY = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)

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
