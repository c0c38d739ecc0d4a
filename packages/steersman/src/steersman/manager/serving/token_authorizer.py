"""Authentication and authorization of metrics clients by the API server.

The rules are those of controller-runtime's ``WithAuthenticationAndAuthorization``. Source: "TokenReview"
(authentication.k8s.io/v1), "SubjectAccessReview" (authorization.k8s.io/v1).
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
# Service account tokens have about 1,000 characters.
_MAX_TOKEN_LENGTH = 16_384

log = get_logger("manager")


class TokenReviewResult(Struct, frozen=True):
    """HTTP status code and reason: 200, 401 Unauthorized, 403 Forbidden or 500."""

    status: int
    reason: str = ""


class TokenAuthorizer:
    """Authorizes requests by bearer token and path.

    Results are cached by a digest of the token.

    Args:
        client: client without a fence, since replicas on standby serve metrics too.
        allow_cache_ttl: seconds that a positive result is cached. A revoked permission is valid for that long.
        deny_cache_ttl: seconds that a negative result is cached.
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
        """Check that the client may ``get`` the non-resource URL ``path``.

        Args:
            authorization: value of the Authorization header.
        """
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
            log.warning("failed to authenticate metrics client", error=str(error))
            return TokenReviewResult(500, "the API server cannot authenticate the request")
        self._cache_result(key, result, now)
        return result

    async def _review(self, token: str, path: str) -> TokenReviewResult:
        review = await self._client.create(TokenReview(spec=TokenReviewSpec(token=token)))
        if not review.status.authenticated:
            return TokenReviewResult(401, "the token is not valid")
        user = review.status.user
        if await self._is_allowed(user, path):
            return TokenReviewResult(200)
        return TokenReviewResult(403, f"user {user.username!r} is not allowed to get {path}")

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
