"""Prometheus metrics under controller-runtime's own names, so that existing dashboards and alerts work unchanged."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector

registry = CollectorRegistry()
"""Everything Steersman measures; operators register their own metrics here too."""

ProcessCollector(registry=registry)

_LATENCY = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
_SIZES = (64, 256, 512, 1024, 4096, 16384, 65536, 262144, 1048576, 4194304, 16777216)

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


_request_size = Histogram(
    "rest_client_request_size_bytes", "Size of a request's body.", ["verb", "host"], buckets=_SIZES, registry=registry
)
_response_size = Histogram(
    "rest_client_response_size_bytes",
    "Size of an answer.",
    ["verb", "host"],
    buckets=_SIZES,
    registry=registry,
)


class RequestMetrics:
    """Measures the requests to ``host``. The labelled metrics are kept: to look them up costs more than to count."""

    def __init__(self, host: str) -> None:
        self._host = host
        self._counters: dict[tuple[str, int | str], Counter] = {}
        self._histograms: dict[str, tuple[Histogram, Histogram, Histogram]] = {}

    def count(self, method: str, code: int | str) -> None:
        """Counts a request, or a stream, which has no duration; ``code`` is ``<error>`` where no answer came."""
        counter = self._counters.get((method, code))
        if counter is None:
            counter = self._counters[method, code] = _requests.labels(str(code), method, self._host)
        counter.inc()

    def observe(self, method: str, code: int | str, seconds: float, sent: int, received: int) -> None:
        """Counts a request that took ``seconds``, ``sent`` and ``received`` so many bytes of body."""
        self.count(method, code)
        histograms = self._histograms.get(method)
        if histograms is None:
            families = (_request_duration, _request_size, _response_size)
            duration, request_size, response_size = (f.labels(method, self._host) for f in families)
            histograms = self._histograms[method] = (duration, request_size, response_size)
        for histogram, value in zip(histograms, (seconds, sent, received), strict=True):
            histogram.observe(value)
