"""Contents of the cache, and reads of objects that it may lack.

The cache holds only objects with the operator's labels, and may lag behind. Foreign objects of the same name and new
objects are only visible in live reads. Code that relies on the absence of an object must use these functions.
"""

from __future__ import annotations

from typing import TypeVar

import msgspec

from steersman.api.core_v1 import ConfigMap, Secret
from steersman.cache import CachedClient
from steersman.errors import NotFound
from steersman.meta import FrozenDict, Object, ObjectKey
from steersman_databases.engines.connection.input_limits import MAX_UNOWNED_BYTES

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


def without_unowned_data(obj: ConfigMap | Secret) -> ConfigMap | Secret:
    """Return the object to cache, without large data that have no owner.

    Anybody may set the label by which the cache selects, and a few hundred objects could fill the memory. Large
    objects of the operator have owners. The garbage collector deletes objects with owners that do not exist.
    """
    if obj.metadata.owner_references or _size(obj) <= MAX_UNOWNED_BYTES:
        return obj
    if isinstance(obj, ConfigMap):
        return msgspec.structs.replace(obj, data=FrozenDict[str, str](), binary_data=FrozenDict[str, bytes]())
    return msgspec.structs.replace(obj, data=FrozenDict[str, bytes]())


def _size(obj: ConfigMap | Secret) -> int:
    binary = sum(map(len, obj.binary_data.values())) if isinstance(obj, ConfigMap) else 0
    return binary + sum(map(len, obj.data.values()))
