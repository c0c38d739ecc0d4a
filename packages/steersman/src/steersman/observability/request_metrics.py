"""Metrics of HTTP requests to API servers.

They are plain numbers per thread, which a collector adds up at scrape, so that a request takes no lock.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

from steersman.observability.histogram import HistogramValue
from steersman.observability.metrics import LATENCY_BUCKETS, register_collector

if TYPE_CHECKING:
    from prometheus_client.core import Metric

_SIZE_BUCKETS = tuple(float(size) for size in (64, 256, 512, 2**10, 2**12, 2**14, 2**16, 2**18, 2**20, 2**22, 2**24))


class _MethodMetrics:
    """Histograms of one HTTP method."""

    __slots__ = ("received", "seconds", "sent")

    def __init__(self) -> None:
        self.seconds = HistogramValue(LATENCY_BUCKETS)
        self.sent = HistogramValue(_SIZE_BUCKETS)
        self.received = HistogramValue(_SIZE_BUCKETS)


class _HostMetrics:
    """Metrics of one host and one thread."""

    def __init__(self) -> None:
        self.codes: Counter[tuple[str, int | str]] = Counter()
        self.methods: dict[str, _MethodMetrics] = {}


# They outlive their transports, since counters must not decrease.
_host_metrics: dict[tuple[str, int], _HostMetrics] = {}


class RequestMetrics:
    """Metrics of one transport, used by one thread.

    Args:
        host: host and port, such as ``10.0.0.1:6443``.
    """

    def __init__(self, host: str) -> None:
        self._host = host
        self._cached_host_metrics: _HostMetrics | None = None

    def count(self, method: str, code: int | str) -> None:
        """Count a request without duration, such as a stream.

        Args:
            code: status code, or ``<error>`` if there was no response.
        """
        self._host_metrics.codes[method, code] += 1

    def observe(self, method: str, code: int | str, seconds: float, sent: int, received: int) -> None:
        """Count a complete request.

        Args:
            seconds: duration.
            sent: size of the request body in bytes.
            received: size of the response body in bytes.
        """
        host_metrics = self._host_metrics
        host_metrics.codes[method, code] += 1
        method_metrics = host_metrics.methods.get(method)
        if method_metrics is None:
            method_metrics = host_metrics.methods[method] = _MethodMetrics()
        method_metrics.seconds.observe(seconds)
        method_metrics.sent.observe(sent)
        method_metrics.received.observe(received)

    @property
    def _host_metrics(self) -> _HostMetrics:
        # A transport may be created in another thread than the one that uses it.
        host_metrics = self._cached_host_metrics
        if host_metrics is None:
            host_metrics = self._cached_host_metrics = _host_metrics.setdefault(
                (self._host, threading.get_ident()), _HostMetrics()
            )
        return host_metrics


def _metric_families() -> Iterator[Metric]:
    hosts: dict[str, list[_HostMetrics]] = {}
    for (host, _), metrics in tuple(_host_metrics.items()):
        hosts.setdefault(host, []).append(metrics)
    yield _request_family(hosts)
    yield from _histogram_families(hosts)


def _request_family(hosts: dict[str, list[_HostMetrics]]) -> Metric:
    from prometheus_client.core import CounterMetricFamily

    family = CounterMetricFamily(
        "rest_client_requests", "Requests by status code.", labels=["code", "method", "host"]
    )
    for host, per_thread in hosts.items():
        codes = sum((Counter(dict(tally.codes)) for tally in per_thread), Counter[tuple[str, int | str]]())
        for (method, code), count in codes.items():
            family.add_metric([str(code), method, host], count)
    return family


def _histogram_families(hosts: dict[str, list[_HostMetrics]]) -> Iterator[Metric]:
    from prometheus_client.core import HistogramMetricFamily

    for name, text, attribute in (
        ("rest_client_request_duration_seconds", "Duration of a request.", "seconds"),
        ("rest_client_request_size_bytes", "Size of a request body.", "sent"),
        ("rest_client_response_size_bytes", "Size of a response body.", "received"),
    ):
        family = HistogramMetricFamily(name, text, labels=["verb", "host"])
        for host, per_thread in hosts.items():
            for method in sorted({method for tally in per_thread for method in tuple(tally.methods)}):
                parts = [getattr(t.methods[method], attribute) for t in per_thread if method in t.methods]
                combined = HistogramValue.merge(parts)
                family.add_metric([method, host], combined.buckets(), combined.total)
        yield family


register_collector(_metric_families)
