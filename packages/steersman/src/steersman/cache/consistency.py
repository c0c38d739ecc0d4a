"""Brings a new leader's cache up to date.

The watches of a standby may lag behind the last writes of the previous leader.
"""

from __future__ import annotations

import asyncio
from typing import Any

from steersman.cache.resource_version import parse_resource_version
from steersman.cache.sink import InformerSink
from steersman.client import Client
from steersman.meta import ObjectKey, ObjectMeta, metadata_only

# Time for the watch to deliver missing events, before outdated objects are read one by one.
_WATCH_GRACE_SECONDS = 0.5


async def catch_up(sink: InformerSink[Any], client: Client) -> None:
    """Wait until ``sink`` has reached the server's current state.

    The sink must have synced.

    A consistent list of metadata shows which objects are outdated in the store; usually none. The watch is about to
    deliver their events, so the function waits for them half a second, and then reads the rest.

    Raises:
        ApiError, ConnectionFailed: a request failed.
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
    """Return True if the store is older than a list.

    The list is at ``version`` and contains ``key`` as ``meta`` (None: does not contain it).
    """
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
