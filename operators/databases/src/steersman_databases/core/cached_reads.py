"""Reads of objects that the cache may lack.

The cache holds only objects with the operator's labels, and may lag behind. Foreign objects of the same name and new
objects are only visible in live reads. Code that relies on the absence of an object must use these functions.
"""

from __future__ import annotations

from typing import TypeVar

from steersman.cache import CachedClient
from steersman.errors import NotFound
from steersman.meta import Object, ObjectKey

T = TypeVar("T", bound=Object)


async def get_cached_or_live(client: CachedClient, kind: type[T], key: ObjectKey) -> T | None:
    """Return the object from the cache, or else from the API server."""
    return await client.get_or_none(kind, key) or await get_live(client, kind, key)


async def get_live(client: CachedClient, kind: type[T], key: ObjectKey) -> T | None:
    """Return the object from the API server, or None."""
    try:
        return await client.live.get(kind, key)
    except (NotFound, ValueError):
        # ValueError occurs for impossible names such as a/b. They are reported as any missing object.
        return None
