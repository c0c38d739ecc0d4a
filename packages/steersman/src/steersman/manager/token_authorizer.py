"""Who may read the metrics: asked of the API server, as controller-runtime's ``WithAuthenticationAndAuthorization``.

Source: "TokenReview" (authentication.k8s.io/v1), "SubjectAccessReview" (authorization.k8s.io/v1).
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict

from msgspec import Struct

from steersman.api.authentication_v1 import TokenReview, TokenReviewSpec, UserInfo
from steersman.api.authorization_v1 import (
    NonResourceAttributes,
    SubjectAccessReview,
    SubjectAccessReviewSpec,
)
from steersman.client import Client
from steersman.errors import SteersmanError
from steersman.observability.logging import get_logger
from steersman.observability.runtime import Runtime

_MAX_CACHE_ENTRIES = 1024
# A token of the API server has a thousand characters or so.
_MAX_TOKEN_LENGTH = 16_384

log = get_logger("manager")


class TokenReviewResult(Struct, frozen=True):
    """An HTTP status code and why: 200, 401 (who is it?), 403 (may not), 500 (the API server did not say)."""

    status: int
    reason: str = ""


class TokenAuthorizer:
    """Decides by bearer token and path. Answers are remembered for a short time, by a digest of the token.

    Args:
        client: not the fenced one: replicas that stand by have metrics too.
        allow_cache_ttl: seconds that a yes is remembered: so long does a withdrawn right still work.
        deny_cache_ttl: seconds that a no is remembered.
    """

    def __init__(
        self, client: Client, runtime: Runtime, *, allow_cache_ttl: float = 60.0, deny_cache_ttl: float = 10.0
    ) -> None:
        self._client = client
        self._runtime = runtime
        self._allow_cache_ttl = allow_cache_ttl
        self._deny_cache_ttl = deny_cache_ttl
        self._cache: OrderedDict[tuple[bytes, str], tuple[float, TokenReviewResult]] = OrderedDict()

    async def authorize(self, authorization: str, path: str) -> TokenReviewResult:
        """Whether the bearer of the header ``authorization`` may ``get`` the non-resource URL ``path``."""
        scheme, _, token = authorization.partition(" ")
        if scheme.lower() != "bearer" or not token.strip() or len(token) > _MAX_TOKEN_LENGTH:
            return TokenReviewResult(401, "a bearer token is required")
        token = token.strip()
        key, now = (hashlib.sha256(token.encode()).digest(), path), self._runtime.clock.monotonic()
        cached = self._cache.get(key)
        if cached is not None and now < cached[0]:
            return cached[1]
        try:
            result = await self._review(token, path)
        except SteersmanError as error:
            log.warning("cannot ask the API server who reads the metrics", error=str(error))
            return TokenReviewResult(500, "the API server did not say who you are")
        self._cache_result(key, result, now)
        return result

    async def _review(self, token: str, path: str) -> TokenReviewResult:
        review = await self._client.create(TokenReview(spec=TokenReviewSpec(token=token)))
        if not review.status.authenticated:
            return TokenReviewResult(401, "the token is not valid")
        user = review.status.user
        if await self._is_allowed(user, path):
            return TokenReviewResult(200)
        return TokenReviewResult(403, f"{user.username or 'this user'} may not get {path}")

    async def _is_allowed(self, user: UserInfo, path: str) -> bool:
        spec = SubjectAccessReviewSpec(
            user=user.username,
            groups=user.groups,
            uid=user.uid,
            extra=user.extra,
            non_resource_attributes=NonResourceAttributes(path=path, verb="get"),
        )
        review = await self._client.create(SubjectAccessReview(spec=spec))
        return bool(review.status.allowed)

    def _cache_result(self, key: tuple[bytes, str], result: TokenReviewResult, now: float) -> None:
        expires_at = now + (self._allow_cache_ttl if result.status == 200 else self._deny_cache_ttl)
        self._cache[key] = (expires_at, result)
        self._cache.move_to_end(key)
        if len(self._cache) > _MAX_CACHE_ENTRIES:
            self._cache.popitem(last=False)
