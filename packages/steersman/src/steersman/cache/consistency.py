"""How a new leader's cache comes to what the former one has done last."""

from __future__ import annotations

import asyncio
from typing import Any

from steersman.cache.resource_version import parse_resource_version
from steersman.cache.sink import InformerSink
from steersman.client import Client
from steersman.meta import ObjectKey, ObjectMeta, metadata_only

# The watch is given this long before what is late is read object by object.
_WATCH_GRACE_SECONDS = 0.5


async def catch_up(sink: InformerSink[Any], client: Client) -> None:
    """Returns when ``part``, which has synced, is at least as new as the server is now.

    A consistent list of metadata says what there is. Mostly all of it is in the store already. What is older there is
    awaited for a moment, since the watch is about to bring it, and then read.

    Raises:
        ApiError, ConnectionFailed: the server could not be asked.
    """
    listed, version = await _list_metadata(sink, client)
    outdated = _outdated_keys(sink, listed, version)
    try:
        async with asyncio.timeout(_WATCH_GRACE_SECONDS):
            while outdated:
                await sink.progress.wait()
                outdated = {key for key in outdated if _is_outdated(sink, key, listed.get(key), version)}
    except TimeoutError:
        pass
    await sink.resolve_all(sorted(outdated))


async def _list_metadata(sink: InformerSink[Any], client: Client) -> tuple[dict[ObjectKey, ObjectMeta], str]:
    selection = sink.scope.selection
    pages = client.pages(
        metadata_only(sink.kind),
        namespace=sink.scope.namespace,
        label_selector=selection.label_selector,
        field_selector=selection.field_selector,
        on_decode_error=lambda key, error: None,
    )
    listed: dict[ObjectKey, ObjectMeta] = {}
    version = ""
    async for page in pages:
        version = page.resource_version
        for obj in page.items:
            listed[obj.key] = obj.metadata
    return listed, version


def _outdated_keys(sink: InformerSink[Any], listed: dict[ObjectKey, ObjectMeta], version: str) -> set[ObjectKey]:
    cached_keys = {obj.key for obj in sink.cached_objects()}
    return {key for key in cached_keys | set(listed) if _is_outdated(sink, key, listed.get(key), version)}


def _is_outdated(sink: InformerSink[Any], key: ObjectKey, meta: ObjectMeta | None, version: str) -> bool:
    """Whether the store knows less of ``key`` than a list at ``version``, which has it as ``meta`` or not at all."""
    if sink.has_observed(version):
        return False
    cached = sink.store.get(key)
    if meta is None:
        return cached is not None and sink.write_through.missing_from_list(cached, version)
    if sink.write_through.has_tombstone(meta.uid):
        return False
    if cached is None:
        return True
    cached_version, listed_version = (
        parse_resource_version(cached.metadata.resource_version),
        parse_resource_version(meta.resource_version),
    )
    if cached_version is None or listed_version is None:
        return cached.metadata.resource_version != meta.resource_version
    return cached_version < listed_version
