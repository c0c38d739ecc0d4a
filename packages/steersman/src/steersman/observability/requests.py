"""What transports count, a thousand times a second: plain numbers, turned into metrics when somebody scrapes.

Each thread counts for itself, since an addition is only safe from one.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

from steersman.observability.instruments import Distribution
from steersman.observability.metrics import LATENCY_BUCKETS, collected

if TYPE_CHECKING:
    from prometheus_client.core import Metric

_SIZES = tuple(float(size) for size in (64, 256, 512, 2**10, 2**12, 2**14, 2**16, 2**18, 2**20, 2**22, 2**24))


class _Measured:
    """What is measured of the requests with one HTTP method."""

    __slots__ = ("received", "seconds", "sent")

    def __init__(self) -> None:
        self.seconds = Distribution(LATENCY_BUCKETS)
        self.sent = Distribution(_SIZES)
        self.received = Distribution(_SIZES)


class _Tally:
    """The counts of one host and one thread."""

    def __init__(self) -> None:
        self.codes: Counter[tuple[str, int | str]] = Counter()
        self.methods: dict[str, _Measured] = {}


# They outlive their transports, as counters must never go back.
_tallies: dict[tuple[str, int], _Tally] = {}


class RequestMetrics:
    """Measures the requests to ``host``, such as ``10.0.0.1:6443``, of one transport on one thread."""

    def __init__(self, host: str) -> None:
        self._host = host
        self._counts: _Tally | None = None

    def count(self, method: str, code: int | str) -> None:
        """Counts a request, or a stream, which has no duration; ``code`` is ``<error>`` where no answer came."""
        self._tally.codes[method, code] += 1

    def observe(self, method: str, code: int | str, seconds: float, sent: int, received: int) -> None:
        """Counts a request that took ``seconds``, ``sent`` and ``received`` so many bytes of body."""
        tally = self._tally
        tally.codes[method, code] += 1
        measured = tally.methods.get(method)
        if measured is None:
            measured = tally.methods[method] = _Measured()
        measured.seconds.observe(seconds)
        measured.sent.observe(sent)
        measured.received.observe(received)

    @property
    def _tally(self) -> _Tally:
        # A transport may be made on another thread than it is used.
        tally = self._counts
        if tally is None:
            tally = self._counts = _tallies.setdefault((self._host, threading.get_ident()), _Tally())
        return tally


def _families() -> Iterator[Metric]:
    hosts: dict[str, list[_Tally]] = {}
    for (host, _), tally in tuple(_tallies.items()):
        hosts.setdefault(host, []).append(tally)
    yield _totals(hosts)
    yield from _histograms(hosts)


def _totals(hosts: dict[str, list[_Tally]]) -> Metric:
    from prometheus_client.core import CounterMetricFamily

    family = CounterMetricFamily(
        "rest_client_requests", "Requests by status code.", labels=["code", "method", "host"]
    )
    for host, tallies in hosts.items():
        codes = sum((Counter(dict(tally.codes)) for tally in tallies), Counter[tuple[str, int | str]]())
        for (method, code), count in codes.items():
            family.add_metric([str(code), method, host], count)
    return family


def _histograms(hosts: dict[str, list[_Tally]]) -> Iterator[Metric]:
    from prometheus_client.core import HistogramMetricFamily

    for name, text, attribute in (
        ("rest_client_request_duration_seconds", "Duration of a request.", "seconds"),
        ("rest_client_request_size_bytes", "Size of a request's body.", "sent"),
        ("rest_client_response_size_bytes", "Size of an answer.", "received"),
    ):
        family = HistogramMetricFamily(name, text, labels=["verb", "host"])
        for host, tallies in hosts.items():
            for method in sorted({method for tally in tallies for method in tuple(tally.methods)}):
                parts = [getattr(t.methods[method], attribute) for t in tallies if method in t.methods]
                whole = Distribution.sum(parts)
                family.add_metric([method, host], whole.buckets(), whole.total)
        yield family


collected(_families)
