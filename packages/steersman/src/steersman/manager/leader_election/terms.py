"""Terms: numbers of leaderships that only grow, for stores outside Kubernetes.

A store that keeps the highest term it has seen can refuse a write with a lower one. It then rejects a leader that was
frozen and does not know yet that it was replaced. Source: M. Kleppmann, "How to do distributed locking" (2016), which
calls the number a fencing token.
"""

from __future__ import annotations

from typing import Protocol


class TermStore(Protocol):
    """Durable store of the highest term, outside the Lease.

    The Lease has the current term in ``leaseTransitions``. It is not enough: if the Lease is deleted, terms would
    start again at 1. The status of a custom resource is a good store.

    A ``SteersmanError`` or ``TimeoutError`` of a method is logged, and the attempt is repeated. Any other exception
    ends the manager: convert the errors of other libraries to ``SteersmanError``. A method is cancelled when the
    attempt times out, after at most ``renew_deadline`` seconds.
    """

    async def highest(self) -> int:
        """Read the highest recorded term, and not from a cache.

        Returns:
            0 if no term has ever been recorded.
        """
        ...

    async def record(self, term: int) -> bool:
        """Record ``term``, by a compare-and-swap.

        Returns:
            False if ``term`` is not higher than the recorded one, since another candidate may use it.
        """
        ...


def next_term(*known: int) -> int:
    """Return the term after all ``known`` ones; 1 if there are none."""
    return max(known, default=0) + 1
