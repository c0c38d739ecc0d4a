"""Looking for what may not be in the cache: it holds only what carries our labels, and may be a moment behind.

So a stranger of the same name, and what has just been made, are seen only live. Whoever concludes something from
the absence of an object asks here.
"""

from __future__ import annotations

from typing import TypeVar

from steersman.cache import CachedClient
from steersman.errors import NotFound
from steersman.meta import Object, ObjectKey

T = TypeVar("T", bound=Object)


async def find(client: CachedClient, kind: type[T], key: ObjectKey) -> T | None:
    """The object ``key`` as the cache has it, or else as the API server has it."""
    return await client.get_or_none(kind, key) or await find_live(client, kind, key)


async def find_live(client: CachedClient, kind: type[T], key: ObjectKey) -> T | None:
    """The object ``key`` as the API server has it."""
    try:
        return await client.live.get(kind, key)
    except (NotFound, ValueError):
        # The latter of names that no object can have, as a/b: whoever has one in a spec is told as of any other.
        return None
