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

_REMEMBERED = 1024
# A token of the API server has a thousand characters or so.
_LONGEST_TOKEN = 16_384

log = get_logger("manager")


class Verdict(Struct, frozen=True):
    """An HTTP status code and why: 200, 401 (who is it?), 403 (may not), 500 (the API server did not say)."""

    status: int
    reason: str = ""


class TokenAuthorizer:
    """Decides by bearer token and path. Answers are remembered for a short time, by a digest of the token.

    Args:
        client: not the fenced one: replicas that stand by have metrics too.
        allowed_for: seconds that a yes is remembered: so long does a withdrawn right still work.
        refused_for: seconds that a no is remembered.
    """

    def __init__(
        self, client: Client, runtime: Runtime, *, allowed_for: float = 60.0, refused_for: float = 10.0
    ) -> None:
        self._client = client
        self._runtime = runtime
        self._allowed_for = allowed_for
        self._refused_for = refused_for
        self._known: OrderedDict[tuple[bytes, str], tuple[float, Verdict]] = OrderedDict()

    async def decide(self, authorization: str, path: str) -> Verdict:
        """Whether the bearer of the header ``authorization`` may ``get`` the non-resource URL ``path``."""
        scheme, _, token = authorization.partition(" ")
        if scheme.lower() != "bearer" or not token.strip() or len(token) > _LONGEST_TOKEN:
            return Verdict(401, "a bearer token is required")
        token = token.strip()
        key, now = (hashlib.sha256(token.encode()).digest(), path), self._runtime.clock.monotonic()
        known = self._known.get(key)
        if known is not None and now < known[0]:
            return known[1]
        try:
            verdict = await self._ask(token, path)
        except SteersmanError as error:
            log.warning("cannot ask the API server who reads the metrics", error=str(error))
            return Verdict(500, "the API server did not say who you are")
        self._remember(key, verdict, now)
        return verdict

    async def _ask(self, token: str, path: str) -> Verdict:
        review = await self._client.create(TokenReview(spec=TokenReviewSpec(token=token)))
        if not review.status.authenticated:
            return Verdict(401, "the token is not valid")
        user = review.status.user
        if await self._may(user, path):
            return Verdict(200)
        return Verdict(403, f"{user.username or 'this user'} may not get {path}")

    async def _may(self, user: UserInfo, path: str) -> bool:
        spec = SubjectAccessReviewSpec(
            user=user.username,
            groups=user.groups,
            uid=user.uid,
            extra=user.extra,
            non_resource_attributes=NonResourceAttributes(path=path, verb="get"),
        )
        review = await self._client.create(SubjectAccessReview(spec=spec))
        return bool(review.status.allowed)

    def _remember(self, key: tuple[bytes, str], verdict: Verdict, now: float) -> None:
        until = now + (self._allowed_for if verdict.status == 200 else self._refused_for)
        self._known[key] = (until, verdict)
        self._known.move_to_end(key)
        if len(self._known) > _REMEMBERED:
            self._known.popitem(last=False)
