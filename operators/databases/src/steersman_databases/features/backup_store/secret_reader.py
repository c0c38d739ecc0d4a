"""Secrets of a ``BackupStore``. Users own them, and the cache lacks them."""

from __future__ import annotations

from steersman.api.core_v1 import Secret
from steersman.cache import CachedClient
from steersman.meta import ObjectKey, metadata_only
from steersman_databases.core.cached_reads import get_live


class SecretReader:
    """Reads Secrets again only after a change, which the cached metadata shows.

    Args:
        client: client of the controller.
    """

    def __init__(self, client: CachedClient) -> None:
        self._client = client
        self._held: dict[ObjectKey, Secret] = {}

    async def read(self, key: ObjectKey) -> Secret | None:
        """Return a Secret, or None if it does not exist."""
        held = self._held.get(key)
        if held is not None:
            cached = await self._client.get_or_none(metadata_only(Secret), key)
            if cached is not None and cached.metadata.resource_version == held.metadata.resource_version:
                return held
        secret = await get_live(self._client, Secret, key)
        if secret is None:
            self._held.pop(key, None)
        else:
            self._held[key] = secret
        return secret
