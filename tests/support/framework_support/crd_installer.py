"""Kinds that a real API server is to serve."""

from __future__ import annotations

import asyncio
from typing import Any

from steersman.api.apply.apiextensions_v1 import CustomResourceDefinitionApply
from steersman.client import Client
from steersman.errors import NotFound
from steersman.meta import Object, decode_builtins


async def apply_crd(client: Client, kind: type[Object], document: dict[str, Any]) -> None:
    """Makes the API server know ``kind`` by its definition; returns once it serves it."""
    await client.apply(decode_builtins(document, CustomResourceDefinitionApply))
    async with asyncio.timeout(60):
        while not await _is_served(client, kind):
            await asyncio.sleep(0.05)


async def _is_served(client: Client, kind: type[Object]) -> bool:
    try:
        await client.list(kind)
    except NotFound:
        return False
    return True
