"""Definitions of metrics, samples and collectors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, Protocol, TypeVar

S_contra = TypeVar("S_contra", contravariant=True)


@dataclass(frozen=True)
class Metric:
    """A metric family.

    Args:
        name: name with its unit. A counter ends with ``_total``.
        help: one sentence for people.
        labels: names of the labels.
        kind: gauge or counter.
    """

    name: str
    help: str
    labels: tuple[str, ...] = ()
    kind: Literal["gauge", "counter"] = "gauge"

    def __post_init__(self) -> None:
        if (self.kind == "counter") != self.name.endswith("_total"):
            raise ValueError(f"{self.name}: the name of a counter, and only that, ends with _total")


def counter(name: str, help: str, labels: tuple[str, ...] = ()) -> Metric:
    """Return a counter."""
    return Metric(name, help, labels, "counter")


class Sample(NamedTuple):
    """A value of a metric. `labels` has one value for each name in `metric.labels`."""

    metric: Metric
    labels: tuple[str, ...]
    value: float


class Reading(NamedTuple):
    """Samples of one run of a collector, and the omitted number."""

    samples: Sequence[Sample]
    dropped: int = 0


class TimedSamples(NamedTuple):
    """Samples of a metric. `at` is the monotonic time of the collection."""

    at: float
    samples: list[Sample]


class CollectFailed(Exception):
    """The server refused or did not complete a query in time. The session remains usable."""


class SessionLost(Exception):
    """The session cannot be opened or used any more."""


class Collector(Protocol[S_contra]):
    """Reads some metrics through a session.

    `interval_seconds` is the time between two runs. `metrics` are all that `collect` can return.
    """

    @property
    def name(self) -> str: ...

    @property
    def interval_seconds(self) -> float: ...

    @property
    def metrics(self) -> Sequence[Metric]: ...

    def collect(self, session: S_contra) -> Reading:
        """Read the values.

        Raises:
            CollectFailed: the query failed.
            SessionLost: the session is unusable.
        """
        ...
