"""Metrics of the cache: size, staleness and corrections."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Protocol
from weakref import WeakSet

from prometheus_client import Counter

from steersman.observability.metrics import decode_errors, framework_registry, register_collector

if TYPE_CHECKING:
    from prometheus_client.core import Metric

__all__ = [
    "decode_errors",
    "register_informer",
    "resource_version_regressions",
    "stale_events_dropped",
    "write_throughs",
]

write_throughs = Counter(
    "steersman_cache_write_through",
    "Responses to own writes that were stored before their watch events arrived.",
    ["kind"],
    registry=framework_registry,
)
stale_events_dropped = Counter(
    "steersman_cache_stale_events_dropped",
    "Watch events and list items that were dropped because the cache had a newer state.",
    ["kind"],
    registry=framework_registry,
)
resource_version_regressions = Counter(
    "steersman_cache_resource_version_regressions",
    "Times that the API server returned a lower resourceVersion than before.",
    ["kind"],
    registry=framework_registry,
)


class InformerMetricsSource(Protocol):
    """The part of an informer that the metrics read."""

    @property
    def name(self) -> str: ...

    def usage(self) -> tuple[int, int]:
        """Return the number of objects and their size in bytes of JSON."""
        ...

    def staleness(self) -> float | None:
        """Return seconds since the last response; None before the first."""
        ...


_informers: WeakSet[InformerMetricsSource] = WeakSet()


def _families() -> Iterable[Metric]:
    """Read the informers at each scrape, so that events cost nothing."""
    from prometheus_client.core import GaugeMetricFamily

    objects = GaugeMetricFamily("steersman_cache_objects", "Objects in the cache.", labels=["kind"])
    size = GaugeMetricFamily("steersman_cache_bytes", "Bytes of JSON of the objects in the cache.", labels=["kind"])
    stale = GaugeMetricFamily(
        "steersman_cache_staleness_seconds", "Seconds since the last event or bookmark.", labels=["kind"]
    )
    usage: dict[str, tuple[int, int]] = {}
    staleness: dict[str, float] = {}
    for informer in tuple(_informers):
        object_count, size_bytes = informer.usage()
        previous = usage.get(informer.name, (0, 0))
        usage[informer.name] = (previous[0] + object_count, previous[1] + size_bytes)
        seconds = informer.staleness()
        if seconds is not None:
            staleness[informer.name] = max(seconds, staleness.get(informer.name, 0.0))
    for kind, (object_count, size_bytes) in sorted(usage.items()):
        objects.add_metric([kind], object_count)
        size.add_metric([kind], size_bytes)
    for kind, seconds in sorted(staleness.items()):
        stale.add_metric([kind], seconds)
    return objects, size, stale


register_collector(_families)


def register_informer(informer: InformerMetricsSource) -> None:
    """Export ``informer`` in the metrics until it is garbage-collected."""
    _informers.add(informer)
