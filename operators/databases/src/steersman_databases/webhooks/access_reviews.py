"""Access reviews of users: bounded, few at a time, and cached."""

from __future__ import annotations

import asyncio
import hashlib
from collections import OrderedDict

from steersman.client import Client
from steersman.meta import Object, encode
from steersman.observability.runtime import Clock
from steersman.webhook import UserInfo

MAX_CONCURRENT_REVIEWS = 8
CACHE_SECONDS = 5.0
"""A granted or revoked permission takes effect within this time."""
MAX_CACHED_REVIEWS = 4096


class AccessReviews:
    """Requests access reviews from the API server, and caches the results.

    Anybody who reaches the port can send admission reviews, so these requests need a bound.

    Args:
        client: the operator's.
        clock: of the operator.
    """

    def __init__(self, client: Client, clock: Clock) -> None:
        self._client, self._clock = client, clock
        self._slots = asyncio.Semaphore(MAX_CONCURRENT_REVIEWS)
        self._cache: OrderedDict[bytes, tuple[float, bool]] = OrderedDict()

    async def is_allowed(
        self, user: UserInfo, verb: str, kind: type[Object], *, namespace: str, name: str = ""
    ) -> bool:
        """Return True if the user may do ``verb`` on ``kind``.

        Args:
            name: empty for all objects.
        """
        resource = kind.api_resource
        # A digest, because a forged user may have groups of some MiB.
        subject = (user.username, user.uid, sorted(user.groups), sorted(user.extra.items()))
        action = (verb, resource.group, resource.plural, namespace, name)
        key = hashlib.sha256(encode((subject, action))).digest()
        if (known := self._cached(key)) is not None:
            return known
        async with self._slots:
            if (known := self._cached(key)) is not None:
                return known
            allowed = await user.is_allowed(self._client, verb, kind, namespace=namespace, name=name)
        self._cache[key] = self._clock.monotonic() + CACHE_SECONDS, allowed
        while len(self._cache) > MAX_CACHED_REVIEWS:
            self._cache.popitem(last=False)
        return allowed

    def _cached(self, key: bytes) -> bool | None:
        found = self._cache.get(key)
        if found is None or found[0] <= self._clock.monotonic():
            self._cache.pop(key, None)
            return None
        return found[1]
