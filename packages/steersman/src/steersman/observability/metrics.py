"""Prometheus metrics, with the names that controller-runtime uses.

Its dashboards and alerts therefore apply. Metrics are ``prometheus_client`` objects of ``framework_registry``. Values
that change several times per reconciled object are plain numbers instead: a collector registered by
``register_collector`` reads them at scrape.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

LATENCY_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)

_collect_functions: list[Callable[[], Iterable[Metric]]] = []


def register_collector(collect: Callable[[], Iterable[Metric]]) -> None:
    """Expose the metrics that ``collect`` returns at each scrape.

    It may be called from another thread.
    """
    _collect_functions.append(collect)


class _FrameworkCollector(Collector):
    """Exposes the metrics of ``framework_registry`` and ``register_collector``."""

    def collect(self) -> Iterable[Metric]:
        for collect in tuple(_collect_functions):
            yield from collect()
        for family in framework_registry.collect():
            # controller-runtime has no _created series, and they would double the number of counters.
            family.samples = [sample for sample in family.samples if not sample.name.endswith("_created")]
            yield family


framework_registry = CollectorRegistry()
"""Metrics of Steersman. ``registry`` exposes them."""

registry = CollectorRegistry()
"""The registry served at ``/metrics``. Operators register their own metrics here."""

registry.register(_FrameworkCollector())
ProcessCollector(registry=registry)

watch_restarts = Counter(
    "steersman_watch_restarts",
    "Lists and watches that were restarted, by kind and cause.",
    ["kind", "cause"],
    registry=framework_registry,
)
decode_errors = Counter(
    "steersman_decode_errors",
    "Objects that were skipped because they do not match their type.",
    ["kind"],
    registry=framework_registry,
)
leader_election_master_status = Gauge(
    "leader_election_master_status",
    "1 if this process is the leader, 0 if it is on standby, by name of the Lease.",
    ["name"],
    registry=framework_registry,
)
leader_election_slowpath = Counter(
    "leader_election_slowpath",
    "Renewals that had to read the Lease first because of a conflict or a lost response.",
    ["name"],
    registry=framework_registry,
)
event_loop_lag = Histogram(
    "steersman_event_loop_lag_seconds",
    "Delay between the time a timer is due and the time the event loop runs it.",
    buckets=(0.001, 0.0025, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0),
    registry=framework_registry,
)
event_loop_longest_lag = Gauge(
    "steersman_event_loop_longest_lag_seconds",
    "Longest lag of the event loop since the start.",
    registry=framework_registry,
)
event_loop_blocks = Counter(
    "steersman_event_loop_blocks",
    "Times that the event loop was blocked for longer than the limit. The log has the stack.",
    registry=framework_registry,
)
request_retries = Counter(
    "rest_client_request_retries",
    "Requests that were retried, by status code of the previous attempt.",
    ["code", "verb", "host"],
    registry=framework_registry,
)
rate_limiter_duration = Histogram(
    "rest_client_rate_limiter_duration_seconds",
    "Time that a request waits for the client-side rate limit.",
    ["verb", "host"],
    buckets=LATENCY_BUCKETS,
    registry=framework_registry,
)
certificate_reads = Counter(
    "certwatcher_read_certificate", "Serving certificates that were read.", registry=framework_registry
)
certificate_errors = Counter(
    "certwatcher_read_certificate_errors",
    "Serving certificates that could not be read.",
    registry=framework_registry,
)
