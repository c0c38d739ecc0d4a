"""Share of the workers that one namespace may use.

Servers of `serverRef` belong to tenants and may respond slowly. A quarter of the workers is far more than a healthy
namespace needs, since a reconcile takes milliseconds.
"""

from __future__ import annotations

from collections import Counter, defaultdict

from steersman.meta import ObjectKey
from steersman_databases.core.outcome import MAX_CONCURRENT_RECONCILES

Subject = tuple[str, ObjectKey]
"""Kind and key of an object."""
# With fewer, the waiting objects of a recovered server would return one after the other.
_CALLED_PER_RELEASE = 2


class NamespaceSlots:
    """Slots of all namespaces. Dropped with the process.

    Args:
        limit: slots of each namespace.
    """

    def __init__(self, limit: int = MAX_CONCURRENT_RECONCILES // 4) -> None:
        self._limit = limit
        self._active = Counter[str]()
        self._waiting: dict[str, dict[Subject, None]] = defaultdict(dict)

    def acquire(self, subject: Subject) -> bool:
        """Reserve a slot. Without a free one, remember the object and return False."""
        namespace = subject[1].namespace
        if self._active[namespace] >= self._limit:
            self._waiting[namespace][subject] = None
            return False
        self._active[namespace] += 1
        self._waiting[namespace].pop(subject, None)
        return True

    def release(self, namespace: str) -> list[Subject]:
        """Free a slot, and return the objects to call."""
        self._active[namespace] -= 1
        waiting = self._waiting[namespace]
        called = list(waiting)[:_CALLED_PER_RELEASE]
        for subject in called:
            del waiting[subject]
        if not waiting:
            del self._waiting[namespace]
        if not self._active[namespace]:
            del self._active[namespace]
        return called
