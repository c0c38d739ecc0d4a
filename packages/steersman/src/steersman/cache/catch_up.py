"""How a new leader's cache comes to what the former one has done last."""

from __future__ import annotations

import asyncio
from typing import Any

from steersman.cache.part import Part
from steersman.cache.versions import version_number
from steersman.client import Client
from steersman.meta import ObjectKey, ObjectMeta, metadata_only

# The watch is given this long before what is late is read object by object.
_PATIENCE = 0.5


async def catch_up(part: Part[Any], client: Client) -> None:
    """Returns when ``part``, which has synced, is at least as new as the server is now.

    A consistent list of metadata says what there is. Mostly all of it is in the store already. What is older there is
    awaited for a moment, since the watch is about to bring it, and then read.

    Raises:
        ApiError, ConnectionFailed: the server could not be asked.
    """
    present, version = await _present(part, client)
    late = _late(part, present, version)
    try:
        async with asyncio.timeout(_PATIENCE):
            while late:
                await part.informer.progress()
                late = {key for key in late if _is_late(part, key, present.get(key), version)}
    except TimeoutError:
        pass
    await part.settle_all(sorted(late))


async def _present(part: Part[Any], client: Client) -> tuple[dict[ObjectKey, ObjectMeta], str]:
    selection = part.scope.selection
    pages = client.pages(
        metadata_only(part.kind),
        namespace=part.scope.namespace,
        label_selector=selection.label_selector,
        field_selector=selection.field_selector,
        on_decode_error=lambda key, error: None,
    )
    present: dict[ObjectKey, ObjectMeta] = {}
    version = ""
    async for page in pages:
        version = page.resource_version
        for obj in page.items:
            present[obj.key] = obj.metadata
    return present, version


def _late(part: Part[Any], present: dict[ObjectKey, ObjectMeta], version: str) -> set[ObjectKey]:
    held = {obj.key for obj in part.informer.store if part.covers(obj.key)}
    return {key for key in held | set(present) if _is_late(part, key, present.get(key), version)}


def _is_late(part: Part[Any], key: ObjectKey, meta: ObjectMeta | None, version: str) -> bool:
    """Whether the store knows less of ``key`` than a list at ``version``, which has it as ``meta`` or not at all."""
    if part.has_reached(version):
        return False
    held = part.informer.store.get(key)
    if meta is None:
        return held is not None and part.overlay.lacks(held, version)
    if part.overlay.is_buried(meta.uid):
        return False
    if held is None:
        return True
    ours, theirs = version_number(held.metadata.resource_version), version_number(meta.resource_version)
    if ours is None or theirs is None:
        return held.metadata.resource_version != meta.resource_version
    return ours < theirs
