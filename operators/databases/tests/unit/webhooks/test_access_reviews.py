"""Access reviews of users: how many reach the API server."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from msgspec.structs import replace

from steersman.api.authorization_v1 import SubjectAccessReview
from steersman.api.core_v1 import Pod, Secret
from steersman.client import Client, HttpRequest, HttpResponse
from steersman.errors import ConnectionFailed
from steersman.meta import FrozenDict
from steersman.webhook import UserInfo
from steersman_databases.webhooks.access_reviews import (
    CACHE_SECONDS,
    MAX_CACHED_REVIEWS,
    MAX_CONCURRENT_REVIEWS,
    AccessReviews,
)
from steersman_testing import InMemoryApiServer, virtual_runtime, virtual_time

JANE = UserInfo(username="jane", groups=("staff",), extra=FrozenDict({"scopes": ("read",)}))


class CountingTransport:
    """Counts requests, of which ``most_concurrent`` were in flight at once."""

    def __init__(self) -> None:
        self.runtime = virtual_runtime()
        self.server = InMemoryApiServer(self.runtime)
        self.count = self.in_flight = self.most_concurrent = 0
        self.fails = False

    async def request(self, request: HttpRequest) -> HttpResponse:
        assert request.path == SubjectAccessReview.api_resource.path()
        self.count += 1
        self.in_flight += 1
        self.most_concurrent = max(self.most_concurrent, self.in_flight)
        await asyncio.sleep(0)
        self.in_flight -= 1
        if self.fails:
            raise ConnectionFailed("connection refused")
        return await self.server.request(request)

    def stream(self, request: HttpRequest) -> Any:
        raise NotImplementedError(request)

    async def close(self) -> None:
        return

    def reviews(self) -> AccessReviews:
        return AccessReviews(Client(self), self.runtime.clock)


@virtual_time
async def test_access_review_is_cached_for_seconds() -> None:
    transport = CountingTransport()
    reviews = transport.reviews()
    for _ in range(3):
        assert not await reviews.is_allowed(JANE, "get", Secret, namespace="shop", name="rds")
    assert transport.count == 1
    await transport.runtime.clock.sleep(CACHE_SECONDS)
    await reviews.is_allowed(JANE, "get", Secret, namespace="shop", name="rds")
    assert transport.count == 2


@pytest.mark.parametrize(
    ("user", "request_"),
    [
        ({"username": "ada"}, {}),
        ({"groups": ("staff", "admins")}, {}),
        ({"extra": FrozenDict({"scopes": ("write",)})}, {}),
        ({"uid": "7"}, {}),
        ({}, {"verb": "list"}),
        ({}, {"kind": Pod}),
        ({}, {"namespace": "stock"}),
        ({}, {"name": "other"}),
    ],
)
@virtual_time
async def test_access_review_of_other_request_is_sent(user: dict[str, Any], request_: dict[str, Any]) -> None:
    transport = CountingTransport()
    reviews = transport.reviews()
    asked: dict[str, Any] = {"verb": "get", "kind": Secret, "namespace": "shop", "name": "rds"}
    await reviews.is_allowed(JANE, **asked)
    await reviews.is_allowed(replace(JANE, **user), **{**asked, **request_})
    assert transport.count == 2


@virtual_time
async def test_concurrent_access_reviews_are_bounded() -> None:
    transport = CountingTransport()
    reviews = transport.reviews()
    names = [f"secret-{number % 100}" for number in range(300)]
    await asyncio.gather(*(reviews.is_allowed(JANE, "get", Secret, namespace="shop", name=n) for n in names))
    assert transport.most_concurrent == MAX_CONCURRENT_REVIEWS
    assert 100 <= transport.count < 100 + MAX_CONCURRENT_REVIEWS, "equal ones may be in flight together"


@virtual_time
async def test_failed_access_review_is_not_cached() -> None:
    transport = CountingTransport()
    reviews = transport.reviews()
    transport.fails = True
    with pytest.raises(ConnectionFailed):
        await reviews.is_allowed(JANE, "get", Secret, namespace="shop", name="rds")
    transport.fails = False
    assert not await reviews.is_allowed(JANE, "get", Secret, namespace="shop", name="rds")


@virtual_time
async def test_access_review_cache_drops_oldest() -> None:
    transport = CountingTransport()
    reviews = transport.reviews()

    async def ask(number: int) -> None:
        await reviews.is_allowed(JANE, "get", Secret, namespace="shop", name=f"secret-{number}")

    for number in range(MAX_CACHED_REVIEWS + 1):
        await ask(number)
    count = transport.count
    await ask(MAX_CACHED_REVIEWS)
    assert transport.count == count
    await ask(0)
    assert transport.count == count + 1
