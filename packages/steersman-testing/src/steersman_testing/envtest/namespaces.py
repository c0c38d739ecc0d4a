"""Namespaces that are a test's own, and go after it."""

from __future__ import annotations

import asyncio
import re
import secrets

from steersman.api.core_v1 import Namespace
from steersman.client import Client, Discovery, MergePatch
from steersman.errors import InternalError, MethodNotAllowed, NotFound
from steersman.meta import ApiResource, ObjectKey, ObjectMeta, metadata_only, unstructured

_LONGEST_NAME = 63
_AT_ONCE = 8


async def make_namespace(client: Client, words: str) -> str:
    """Creates a namespace whose name begins with what of ``words`` can be in a name, and returns the name."""
    end = f"-{secrets.token_hex(4)}"
    begin = re.sub(r"[^a-z0-9]+", "-", words.lower()).strip("-") or "test"
    name = f"{begin[: _LONGEST_NAME - len(end)].rstrip('-')}{end}"
    await client.create(Namespace(metadata=ObjectMeta(name=name)))
    return name


async def remove_namespace(client: Client, name: str, discovery: Discovery | None) -> None:
    """Deletes a namespace.

    Args:
        discovery: what the server serves, if nobody else empties namespaces: then everything in it is gone when this
            returns, whatever finalizers it had. Otherwise the cluster's controller manager does it in its own time.

    Raises:
        ApiError, ConnectionFailed: the server refuses it, or does not answer.
    """
    key = ObjectKey("", name)
    try:
        # Nothing can be created in it from now on.
        await client.delete(Namespace, key)
    except NotFound:
        return
    if discovery is None:
        return
    await discovery.refresh()
    turns = asyncio.Semaphore(_AT_ONCE)

    async def empty(versions: list[ApiResource]) -> None:
        async with turns:
            await _empty(client, versions, name)

    async with asyncio.TaskGroup() as tasks:
        for versions in await _deletable(discovery):
            tasks.create_task(empty(versions))
    await _finalize(client, key)


async def _deletable(discovery: Discovery) -> list[list[ApiResource]]:
    """What can be in a namespace, each in all of its versions."""
    found: dict[tuple[str, str], list[ApiResource]] = {}
    for served in await discovery.resources():
        if served.resource.namespaced and "deletecollection" in served.verbs:
            found.setdefault((served.resource.group, served.resource.plural), []).append(served.resource)
    return list(found.values())


async def _empty(client: Client, versions: list[ApiResource], namespace: str) -> None:
    *others, last = versions
    for resource in others:
        try:
            await _empty_in(client, resource, namespace)
        except InternalError:
            # The webhook that converts has gone with the test. In the version that is stored nothing is converted.
            continue
        return
    await _empty_in(client, last, namespace)


async def _empty_in(client: Client, resource: ApiResource, namespace: str) -> None:
    kind = metadata_only(resource)
    try:
        for obj in await client.delete_collection(kind, namespace=namespace, grace_period_seconds=0):
            if obj.metadata.finalizers:
                await _release(client, kind.api_resource, obj.key)
    except (NotFound, MethodNotAllowed):
        # Its definition has just been deleted.
        return


async def _release(client: Client, resource: ApiResource, key: ObjectKey) -> None:
    try:
        await client.patch(metadata_only(resource), key, MergePatch({"metadata": {"finalizers": None}}))
    except NotFound:
        return


async def _finalize(client: Client, key: ObjectKey) -> None:
    """Says that nothing is left, which the namespace waits for."""
    kind = unstructured(Namespace.api_resource)
    found = (await client.get(kind, key)).to_dict()
    found["spec"]["finalizers"] = []
    await client.update(kind.of(found), subresource="finalize")
