"""Sets of slots as bit masks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import reduce

SLOT_COUNT = 16384
"""Number of slots of every cluster. The slot of a key is its CRC16 modulo this number."""


@dataclass(frozen=True, slots=True)
class Slots:
    """An immutable set of slots. Bit N of ``mask`` stands for slot N."""

    mask: int = 0

    @classmethod
    def of(cls, numbers: Iterable[int]) -> Slots:
        """Return a set of the given slot numbers."""
        return cls(reduce(lambda mask, slot: mask | 1 << slot, numbers, 0))

    @classmethod
    def from_range(cls, first: int, last: int) -> Slots:
        """Return the slots from ``first`` to ``last``, both included."""
        return cls(((1 << (last - first + 1)) - 1) << first)

    def ranges(self) -> Iterator[tuple[int, int]]:
        """Yield the first and last slot of each contiguous range, in order."""
        rest, start = self.mask, 0
        while rest:
            gap = (rest & -rest).bit_length() - 1
            rest >>= gap
            run = (~rest & (rest + 1)).bit_length() - 1
            rest >>= run
            yield start + gap, start + gap + run - 1
            start += gap + run

    def __iter__(self) -> Iterator[int]:
        for first, last in self.ranges():
            yield from range(first, last + 1)

    def __len__(self) -> int:
        return self.mask.bit_count()

    def __contains__(self, slot: int) -> bool:
        return bool(self.mask >> slot & 1)

    def __or__(self, other: Slots) -> Slots:
        return Slots(self.mask | other.mask)

    def __and__(self, other: Slots) -> Slots:
        return Slots(self.mask & other.mask)

    def __sub__(self, other: Slots) -> Slots:
        return Slots(self.mask & ~other.mask)

    @staticmethod
    def union(sets: Iterable[Slots]) -> Slots:
        """Return the union of all sets."""
        return reduce(Slots.__or__, sets, Slots())


ALL_SLOTS = Slots.from_range(0, SLOT_COUNT - 1)
