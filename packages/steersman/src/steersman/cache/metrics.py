"""What a cache holds, how old it is, and what it had to put right."""

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
    "Answers to own writes that were in the cache before its watch told of them.",
    ["kind"],
    registry=framework_registry,
)
stale_events_dropped = Counter(
    "steersman_cache_stale_events_dropped",
    "Events and list items that were ignored, since something newer was known.",
    ["kind"],
    registry=framework_registry,
)
resource_version_regressions = Counter(
    "steersman_cache_resource_version_regressions",
    "Times that the API server was found to have gone back in time.",
    ["kind"],
    registry=framework_registry,
)


class InformerMetricsSource(Protocol):
    """What is asked of an informer."""

    @property
    def name(self) -> str: ...

    def usage(self) -> tuple[int, int]:
        """How many objects, and how many bytes of JSON they are."""
        ...

    def staleness(self) -> float | None:
        """Seconds since the server was last heard of; None before that."""
        ...


_informers: WeakSet[InformerMetricsSource] = WeakSet()


def _families() -> Iterable[Metric]:
    """Asks the informers when somebody asks for the metrics, so that events cost nothing."""
    from prometheus_client.core import GaugeMetricFamily

    objects = GaugeMetricFamily("steersman_cache_objects", "Objects held.", labels=["kind"])
    size = GaugeMetricFamily("steersman_cache_bytes", "Bytes of JSON of the objects held.", labels=["kind"])
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
    """Shows ``informer`` in the metrics for as long as it lives."""
    _informers.add(informer)
