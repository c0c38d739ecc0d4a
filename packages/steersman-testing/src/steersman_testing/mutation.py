"""Detection of mutated cache objects.

Cache objects are immutable: assignments raise. Exceptions are ``force_setattr``, ``dict.__setitem__`` on a read-only
mapping, and a transform that stores a plain dict in an object. Such a mutation is visible to all readers until the
next event. Corresponds to client-go's ``KUBE_CACHE_MUTATION_DETECTOR``.
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
    """A cache object differs from its state on arrival. Contains kind and key."""


class _MutationDetector:
    """Encoded copies of cache objects on arrival."""

    def __init__(self) -> None:
        self._snapshots: dict[int, tuple[Object, bytes]] = {}
        self._mutations: list[str] = []
        # Weak references, because a fault simulation creates thousands of informers.
        self._watched: WeakSet[Informer[Any]] = WeakSet()

    def watch(self, informer: Informer[Any]) -> None:
        if informer not in self._watched:
            self._watched.add(informer)
            informer.subscribe(self._remember)

    def _remember(self, change: InformerEvent[Any]) -> None:
        if change.new is not None:
            # The reference keeps the id unique.
            self._snapshots.setdefault(id(change.new), (change.new, encode(change.new)))
        if change.old is not None and change.old is not change.new:
            # The cache no longer shares the object.
            self._check(*self._snapshots.pop(id(change.old), (change.old, None)))

    def verify(self) -> None:
        """Raise CacheMutated if an object was mutated."""
        for obj, snapshot in self._snapshots.values():
            self._check(obj, snapshot)
        if self._mutations:
            raise CacheMutated(self._mutations[0])

    def _check(self, obj: Object, snapshot: bytes | None) -> None:
        if snapshot is None or (now := encode(obj)) == snapshot:
            return
        resource = type(obj).api_resource
        self._mutations.append(
            f"{resource.kind} {obj.key} of the cache was mutated: create a new object with "
            f"msgspec.structs.replace; it was {snapshot.decode()} and is {now.decode()}"
        )


@contextmanager
def detect_mutations(cache: Cache) -> Generator[None]:
    """Compare the objects of ``cache`` before and after the block.

    Copies every object of the existing informers. Use it in tests only.

    Raises:
        CacheMutated: if an object was mutated.
    """
    detector = _MutationDetector()
    for informer in cache.informers:
        detector.watch(informer)
    yield
    detector.verify()


@contextmanager
def detect_mutations_in_all_caches() -> Generator[Callable[[], None]]:
    """Compare the objects of all caches before and after the block.

    Watches informers created in the block. Yields a function that raises CacheMutated if an object was mutated.
    """
    detector, original_informer = _MutationDetector(), Cache.informer

    def informer(self: Cache, kind: type[T], *, optional: bool | None = None) -> Informer[T]:
        created = original_informer(self, kind, optional=optional)
        detector.watch(created)
        return created

    with patch.object(Cache, "informer", informer):
        yield detector.verify
