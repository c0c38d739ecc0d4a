"""Finds out who changes what the cache shares.

The objects of a cache are deeply immutable as Python goes: assignments raise. What remains are back doors:
``force_setattr``, ``dict.__setitem__`` on a read-only mapping, a transform that puts a plain dict into an object.
Whoever goes through one changes what all other readers see, until the next event undoes it.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any, TypeVar
from unittest.mock import patch
from weakref import WeakSet

from steersman.cache import Cache, Informer, InformerEvent
from steersman.meta import Object, encode

T = TypeVar("T", bound=Object)


class CacheMutated(AssertionError):
    """An object of the cache is not what it was when it came; names kind and key."""


class _MutationDetector:
    """Knows what objects were when they came."""

    def __init__(self) -> None:
        self._snapshots: dict[int, tuple[Object, bytes]] = {}
        self._mutations: list[str] = []
        # Weakly: a sweep of a simulation makes thousands, each with an API server behind it.
        self._watched: WeakSet[Informer[Any]] = WeakSet()

    def watch(self, informer: Informer[Any]) -> None:
        if informer not in self._watched:
            self._watched.add(informer)
            informer.subscribe(self._remember)

    def _remember(self, change: InformerEvent[Any]) -> None:
        if change.new is not None:
            # The object is kept, so its id is not given to another.
            self._snapshots.setdefault(id(change.new), (change.new, encode(change.new)))
        if change.old is not None and change.old is not change.new:
            # Nobody shares it any more.
            self._check(*self._snapshots.pop(id(change.old), (change.old, None)))

    def verify(self) -> None:
        """Raises CacheMutated."""
        for obj, snapshot in self._snapshots.values():
            self._check(obj, snapshot)
        if self._mutations:
            raise CacheMutated(self._mutations[0])

    def _check(self, obj: Object, snapshot: bytes | None) -> None:
        if snapshot is None or (now := encode(obj)) == snapshot:
            return
        resource = type(obj).api_resource
        self._mutations.append(
            f"{resource.kind} {obj.key} of the cache was changed: build a new object by "
            f"msgspec.structs.replace; it was {snapshot.decode()} and is {now.decode()}"
        )


@contextmanager
def detect_mutations(cache: Cache) -> Generator[None]:
    """Watches the objects of ``cache`` during the block, and compares them with what they were at its end.

    It keeps a copy of every object that the informers asked for so far hold: a tool for tests. As client-go's
    ``KUBE_CACHE_MUTATION_DETECTOR``.

    Raises:
        CacheMutated: one was changed.
    """
    detector = _MutationDetector()
    for informer in cache.informers:
        detector.watch(informer)
    yield
    detector.verify()


@contextmanager
def detect_mutations_in_all_caches() -> Generator[Callable[[], None]]:
    """Watches every cache whose informers are asked for during the block, such as a manager's.

    Gives a function that compares their objects with what they were, and raises CacheMutated.
    """
    detector, original_informer = _MutationDetector(), Cache.informer

    def informer(self: Cache, kind: type[T]) -> Informer[T]:
        created = original_informer(self, kind)
        detector.watch(created)
        return created

    with patch.object(Cache, "informer", informer):
        yield detector.verify
