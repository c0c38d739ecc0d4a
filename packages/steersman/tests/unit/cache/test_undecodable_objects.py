"""An object that cannot be decoded affects no other object."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from framework_support.transports import ScriptedTransport
from steersman.cache import Cache, Informer
from steersman.client import Client
from steersman.client.transport import HttpResponse
from steersman.meta import (
    Duration,
    FrozenDict,
    FrozenStruct,
    ObjectKey,
    Quantity,
    Resource,
    Spec,
    Status,
    metadata_only,
    resource,
)
from steersman_testing.virtual_clock import virtual_runtime, virtual_time

LEVELS = 3000


class Trap(FrozenStruct):
    """Raises an exception of the class that its field names."""

    error: str = ""

    def __post_init__(self) -> None:
        if self.error:
            raise {"assertion": AssertionError, "key": KeyError, "cancelled": asyncio.CancelledError, "bad": BadText}[
                self.error
            ]


class BadText(Exception):
    """An exception without a message."""

    def __str__(self) -> str:
        raise BadText


class BoxSpec(Spec):
    """Desired state."""

    content: FrozenDict[str, Any] = FrozenDict()
    amount: Quantity | None = None
    time: Duration | None = None
    trap: Trap = Trap()


@resource(group="shop.example.com", version="v1")
class Box(Resource[BoxSpec, Status]):
    """A kind with free-form content."""


def deep_json(levels: int) -> str:
    return '{"x":' * levels + "1" + "}" * levels


def box_json(name: str, spec: str, version: int = 1, *, managed_levels: int = 0) -> bytes:
    managed = f',"managedFields":[{{"manager":"kubectl","fieldsV1":{deep_json(managed_levels)}}}]'
    return (
        f'{{"metadata":{{"name":"{name}","namespace":"orders","uid":"uid-{name}","resourceVersion":"{version}"'
        f'{managed if managed_levels else ""}}},"spec":{spec}}}'
    ).encode()


POISON = {
    "deep": f'{{"content":{deep_json(LEVELS)}}}',
    "deeper than Python recurses": f'{{"content":{deep_json(400)}}}',
    "deep and unknown": f'{{"unknown":{deep_json(LEVELS)}}}',
    "quantity": f'{{"amount":"{"9" * 1_000_000}"}}',
    "exponent": f'{{"amount":"1e{"9" * 1_000_000}"}}',
    "duration": f'{{"time":"{"9" * 1_000_000}h"}}',
    "assertion": '{"trap":{"error":"assertion"}}',
    "key": '{"trap":{"error":"key"}}',
    "cancelled": '{"trap":{"error":"cancelled"}}',
    "message": '{"trap":{"error":"bad"}}',
}


@asynccontextmanager
async def running_cache(transport: ScriptedTransport, kind: Any) -> AsyncGenerator[Informer[Any]]:
    cache = Cache(Client(transport), runtime=virtual_runtime())
    informer = cache.informer(kind)
    cache.start()
    try:
        yield informer
    finally:
        await cache.stop()


def raw_page(*items: bytes) -> HttpResponse:
    return HttpResponse(200, b'{"metadata":{"resourceVersion":"5"},"items":[' + b",".join(items) + b"]}")


@pytest.mark.parametrize("spec", POISON.values(), ids=POISON)
@pytest.mark.parametrize("kind", [Box, metadata_only(Box)], ids=["typed", "metadata"])
@virtual_time
async def test_list_skips_an_undecodable_object(kind: Any, spec: str) -> None:
    page = raw_page(box_json("a", "{}"), box_json("poison", spec, managed_levels=LEVELS), box_json("b", "{}"))
    async with running_cache(ScriptedTransport([page], [[600.0]]), kind) as informer:
        await asyncio.sleep(1)
        assert informer.has_synced
        assert {"a", "b"} <= {obj.metadata.name for obj in informer.store}


@pytest.mark.parametrize("spec", POISON.values(), ids=POISON)
@virtual_time
async def test_watch_skips_an_undecodable_object(spec: str) -> None:
    poison = box_json("poison", spec, 6)
    lines = [
        b'{"type":"ADDED","object":' + poison + b"}",
        # Another API server may write the members in another order.
        b'{"object":' + poison.replace(b'"6"', b'"7"') + b',"type":"MODIFIED"}',
        b'{"type":"ADDED","object":' + box_json("b", "{}", 8) + b"}",
        b'{"type":"DELETED","object":' + poison.replace(b'"6"', b'"9"') + b"}",
        600.0,
    ]
    transport = ScriptedTransport([raw_page(box_json("a", "{}"))], [lines])
    async with running_cache(transport, Box) as informer:
        await asyncio.sleep(1)
        assert [obj.metadata.name for obj in informer.store] == ["a", "b"]
        assert informer.is_complete(ObjectKey("orders", "poison"))
        assert informer.reflectors[0].resource_version == "9"
