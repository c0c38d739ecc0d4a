"""Prometheus metrics under controller-runtime's own names, so that existing dashboards and alerts work unchanged."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cache
from typing import TYPE_CHECKING, Any

from steersman.observability.instruments import Counter, Gauge, Histogram

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry
    from prometheus_client.core import Metric

    registry: CollectorRegistry
    """Everything Steersman measures; operators register their own metrics here too. Made when it is asked for."""

LATENCY_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)

_collectors: list[Callable[[], Iterable[Metric]]] = []


def register_collector(collect: Callable[[], Iterable[Metric]]) -> None:
    """Shows what ``collect`` gives at each scrape, which may come from any thread."""
    _collectors.append(collect)


@cache
def _registry() -> CollectorRegistry:
    from prometheus_client import CollectorRegistry, ProcessCollector
    from prometheus_client.registry import Collector

    class CallbackCollector(Collector):
        def collect(self) -> Iterable[Metric]:
            for collect in tuple(_collectors):
                yield from collect()

    new_registry = CollectorRegistry()
    new_registry.register(CallbackCollector())
    ProcessCollector(registry=new_registry)
    return new_registry


def __getattr__(name: str) -> Any:
    if name == "registry":
        return _registry()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


watch_restarts = Counter(
    "steersman_watch_restarts", "Lists and watches begun anew, by kind and cause.", ["kind", "cause"]
)
decode_errors = Counter("steersman_decode_errors", "Objects skipped since they do not fit their type.", ["kind"])
leader_election_master_status = Gauge(
    "leader_election_master_status",
    "Whether this process leads (1) or stands by (0), by the name of the lease.",
    ["name"],
)
leader_election_slowpath = Counter(
    "leader_election_slowpath",
    "Renewals that had to read the lease first, since somebody else had written it or an answer was lost.",
    ["name"],
)
event_loop_lag = Histogram(
    "steersman_event_loop_lag_seconds",
    "How much later than asked for the event loop wakes up.",
    buckets=(0.001, 0.0025, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0),
)
event_loop_longest_lag = Gauge(
    "steersman_event_loop_longest_lag_seconds", "The longest lag of the event loop so far."
)
event_loop_blocks = Counter(
    "steersman_event_loop_blocks",
    "How often the event loop was blocked for longer than the limit; the log has the stack.",
)
request_retries = Counter(
    "rest_client_request_retries",
    "Requests that were tried again, by the status code of the try before.",
    ["code", "verb", "host"],
)
rate_limiter_duration = Histogram(
    "rest_client_rate_limiter_duration_seconds",
    "How long a request waits for the rate limit on the client's side.",
    ["verb", "host"],
    buckets=LATENCY_BUCKETS,
)
certificate_reads = Counter("certwatcher_read_certificate", "Certificates of endpoints that were read.")
certificate_errors = Counter("certwatcher_read_certificate_errors", "Certificates that could not be read.")

for _instrument in (
    watch_restarts,
    decode_errors,
    leader_election_master_status,
    leader_election_slowpath,
    event_loop_lag,
    event_loop_longest_lag,
    event_loop_blocks,
    request_retries,
    rate_limiter_duration,
    certificate_reads,
    certificate_errors,
):
    register_collector(_instrument.collect)
