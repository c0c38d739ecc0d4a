"""Sets of slots. A table names all 16384 for each node of a cluster, so that they are bits of one number here."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import reduce

SLOT_COUNT = 16384
"""How many slots a cluster has, always. A key's slot is its CRC16 modulo this."""


@dataclass(frozen=True, slots=True)
class Slots:
    """An immutable set of slots; ``mask`` has a bit for each."""

    mask: int = 0

    @classmethod
    def of(cls, numbers: Iterable[int]) -> Slots:
        """From numbers."""
        return cls(reduce(lambda mask, slot: mask | 1 << slot, numbers, 0))

    @classmethod
    def from_range(cls, first: int, last: int) -> Slots:
        """All from ``first`` to ``last``, both included."""
        return cls(((1 << (last - first + 1)) - 1) << first)

    def ranges(self) -> Iterator[tuple[int, int]]:
        """First and last of each run of neighbours, in their order."""
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
        """All that are in any of them."""
        return reduce(Slots.__or__, sets, Slots())


ALL_SLOTS = Slots.from_range(0, SLOT_COUNT - 1)
