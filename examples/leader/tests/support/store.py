"""A store that can check the term of each write."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Write:
    """An acknowledged write.

    Attributes:
        at: seconds of the clock of the store.
        writer: the pod.
        term: the term that the pod sent.
    """

    at: float
    writer: str
    term: int


@dataclass
class Store:
    """Keeps acknowledged writes.

    Args:
        checks_term: refuses a write with a lower term than the highest one before.

    Attributes:
        refused: writes that were refused.
    """

    checks_term: bool = True
    highest_term: int = 0
    acknowledged: list[Write] = field(default_factory=list[Write])
    refused: list[Write] = field(default_factory=list[Write])

    def write(self, at: float, writer: str, term: int) -> bool:
        """Store a write. Return True if it is acknowledged."""
        if self.checks_term and term < self.highest_term:
            self.refused.append(Write(at, writer, term))
            return False
        self.highest_term = max(self.highest_term, term)
        self.acknowledged.append(Write(at, writer, term))
        return True

    def violations(self) -> list[str]:
        """Return where terms decrease or have two writers."""
        found: list[str] = []
        highest, writers = 0, dict[int, str]()
        for write in self.acknowledged:
            if write.term < highest:
                found.append(f"{write} after term {highest}")
            if writers.setdefault(write.term, write.writer) != write.writer:
                found.append(f"{write} although {writers[write.term]} has the term")
            highest = max(highest, write.term)
        return found

    def gaps(self) -> list[float]:
        """Return the seconds without a writer between terms."""
        pairs = zip(self.acknowledged, self.acknowledged[1:], strict=False)
        return [after.at - before.at for before, after in pairs if before.term != after.term]
