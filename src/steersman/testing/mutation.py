"""Finds out who changes what the cache shares.

The objects of a cache are deeply immutable as Python goes: assignments raise. What remains are back doors:
``force_setattr``, ``dict.__setitem__`` on a read-only mapping, a transform that puts a plain dict into an object.
Whoever goes through one changes what all other readers see, until the next event undoes it.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

from steersman.cache import Cache, Change
from steersman.meta import Object, encode


class CacheMutated(AssertionError):
    """An object of the cache is not what it was when it came; names kind and key."""


@contextmanager
def detect_mutations(cache: Cache) -> Generator[None]:
    """Watches the objects of ``cache`` during the block, and compares them with what they were at its end.

    It keeps a copy of every object that the informers asked for so far hold or get to hold: a tool for tests. As
    client-go's ``KUBE_CACHE_MUTATION_DETECTOR``.

    Raises:
        CacheMutated: one was changed.
    """
    seen: dict[int, tuple[Object, bytes]] = {}

    def remember(change: Change[Any]) -> None:
        if change.new is not None:
            # The object is kept, so its id is not given to another.
            seen.setdefault(id(change.new), (change.new, encode(change.new)))

    for informer in cache.informers:
        informer.subscribe(remember)
    yield
    for obj, was in seen.values():
        now = encode(obj)
        if now != was:
            resource = type(obj).api_resource
            raise CacheMutated(
                f"{resource.kind} {obj.key} of the cache was changed: build a new object by msgspec.structs.replace; "
                f"it was {was.decode()} and is {now.decode()}"
            )
