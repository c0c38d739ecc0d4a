"""Histograms whose samples lose half of their weight in a week."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

HALF_LIFE_HOURS = 168.0
_LEAST_WEIGHT = 0.01
"""Weight below which a sample is forgotten: after 46 days."""
_WEIGHT_DIGITS = 4
"""Significant digits of stored weights. A fixed resolution would keep small weights for ever."""


@dataclass(frozen=True, slots=True)
class Scale:
    """Exponential buckets. The bound of a bucket is its largest value.

    Attributes:
        first: bound of the first bucket.
        ratio: of the bounds of two neighbours.
        buckets: their number. Larger values count in the last one.
    """

    first: float
    ratio: float
    buckets: int

    def bucket(self, value: float) -> int:
        """Return the bucket of a value."""
        if value <= self.first:
            return 0
        exact = math.log(value / self.first) / math.log(self.ratio)
        # A value that is a bound belongs to its own bucket, whatever the rounding of the logarithm.
        return min(math.ceil(exact - 1e-9), self.buckets - 1)

    def bound(self, bucket: int) -> float:
        """Return the largest value of a bucket."""
        return self.first * self.ratio**bucket


@dataclass(frozen=True, slots=True)
class Histogram:
    """Weights by bucket."""

    scale: Scale
    weights: Mapping[int, float] = field(default_factory=dict[int, float])

    def decayed(self, hours: float) -> Histogram:
        """Return the histogram after this time."""
        factor = 0.5 ** (hours / HALF_LIFE_HOURS)
        return replace(self, weights={bucket: weight * factor for bucket, weight in self.weights.items()})

    def with_sample(self, value: float, weight: float = 1.0) -> Histogram:
        """Return the histogram with another sample."""
        bucket = self.scale.bucket(value)
        return replace(self, weights={**self.weights, bucket: self.weights.get(bucket, 0.0) + weight})

    def percentile(self, part: float) -> float | None:
        """Return the bound below which this part of the samples is. None without samples."""
        remaining = part * sum(self.weights.values())
        for bucket in sorted(self.weights):
            remaining -= self.weights[bucket]
            if remaining <= 1e-9:
                return self.scale.bound(bucket)
        return None

    def highest(self, half_lives: float) -> float | None:
        """Return the bound of the largest sample of weight 1.

        Args:
            half_lives: largest age of the sample.
        """
        least = 0.5**half_lives
        return max((self.scale.bound(b) for b, w in self.weights.items() if w >= least - 1e-9), default=None)

    def to_json(self) -> Mapping[str, float]:
        """Return the weights that still count."""
        rounded = {str(b): float(f"{w:.{_WEIGHT_DIGITS}g}") for b, w in sorted(self.weights.items())}
        return {bucket: weight for bucket, weight in rounded.items() if weight >= _LEAST_WEIGHT}
