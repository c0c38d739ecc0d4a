"""What a cache holds, how old it is, and what it had to put right."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Protocol
from weakref import WeakSet

from steersman.observability.instruments import Counter
from steersman.observability.metrics import collected, decode_errors

if TYPE_CHECKING:
    from prometheus_client.core import Metric

__all__ = ["decode_errors", "observe", "own_writes", "rollbacks", "stale_news"]

own_writes = Counter(
    "steersman_cache_own_writes",
    "Answers to own writes that were in the cache before its watch told of them.",
    ["kind"],
)
stale_news = Counter(
    "steersman_cache_stale_news",
    "Events and list items that were ignored, since something newer was known.",
    ["kind"],
)
rollbacks = Counter(
    "steersman_cache_rollbacks",
    "Times that the API server was found to have gone back in time.",
    ["kind"],
)


class Observed(Protocol):
    """What is asked of an informer."""

    @property
    def name(self) -> str: ...

    def held(self) -> tuple[int, int]:
        """How many objects, and how many bytes of JSON they are."""
        ...

    def staleness(self) -> float | None:
        """Seconds since the server was last heard of; None before that."""
        ...


_informers: WeakSet[Observed] = WeakSet()


def _families() -> Iterable[Metric]:
    """Asks the informers when somebody asks for the metrics, so that events cost nothing."""
    from prometheus_client.core import GaugeMetricFamily

    objects = GaugeMetricFamily("steersman_cache_objects", "Objects held.", labels=["kind"])
    size = GaugeMetricFamily("steersman_cache_bytes", "Bytes of JSON of the objects held.", labels=["kind"])
    stale = GaugeMetricFamily(
        "steersman_cache_staleness_seconds", "Seconds since the last event or bookmark.", labels=["kind"]
    )
    held: dict[str, tuple[int, int]] = {}
    ages: dict[str, float] = {}
    for informer in tuple(_informers):
        number, size_held = informer.held()
        before = held.get(informer.name, (0, 0))
        held[informer.name] = (before[0] + number, before[1] + size_held)
        age = informer.staleness()
        if age is not None:
            ages[informer.name] = max(age, ages.get(informer.name, 0.0))
    for kind, (number, size_held) in sorted(held.items()):
        objects.add_metric([kind], number)
        size.add_metric([kind], size_held)
    for kind, age in sorted(ages.items()):
        stale.add_metric([kind], age)
    return objects, size, stale


for _counter in (own_writes, stale_news, rollbacks):
    collected(_counter.collect)
collected(_families)


def observe(informer: Observed) -> None:
    """Shows ``informer`` in the metrics for as long as it lives."""
    _informers.add(informer)
