"""Namespaces that are a test's own, and go after it."""

from __future__ import annotations

import asyncio
import re
import secrets

from steersman.api.core_v1 import Namespace
from steersman.client import Client, Discovery, MergePatch
from steersman.errors import InternalError, MethodNotAllowed, NotFound
from steersman.meta import ApiResource, ObjectKey, ObjectMeta, metadata_only, unstructured

_MAX_NAME_LENGTH = 63
_MAX_CONCURRENT = 8


async def create_namespace(client: Client, name_prefix: str) -> str:
    """Creates a namespace whose name begins with what of ``words`` can be in a name, and returns the name."""
    suffix = f"-{secrets.token_hex(4)}"
    prefix = re.sub(r"[^a-z0-9]+", "-", name_prefix.lower()).strip("-") or "test"
    name = f"{prefix[: _MAX_NAME_LENGTH - len(suffix)].rstrip('-')}{suffix}"
    await client.create(Namespace(metadata=ObjectMeta(name=name)))
    return name


async def delete_namespace(client: Client, name: str, discovery: Discovery | None) -> None:
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
    semaphore = asyncio.Semaphore(_MAX_CONCURRENT)

    async def delete_limited(versions: list[ApiResource]) -> None:
        async with semaphore:
            await _delete_contents(client, versions, name)

    async with asyncio.TaskGroup() as tasks:
        for versions in await _deletable_resources(discovery):
            tasks.create_task(delete_limited(versions))
    await _finalize(client, key)


async def _deletable_resources(discovery: Discovery) -> list[list[ApiResource]]:
    """What can be in a namespace, each in all of its versions."""
    found: dict[tuple[str, str], list[ApiResource]] = {}
    for served in await discovery.resources():
        if served.resource.namespaced and "deletecollection" in served.verbs:
            found.setdefault((served.resource.group, served.resource.plural), []).append(served.resource)
    return list(found.values())


async def _delete_contents(client: Client, versions: list[ApiResource], namespace: str) -> None:
    *alternatives, stored_version = versions
    for resource in alternatives:
        try:
            await _delete_all(client, resource, namespace)
        except InternalError:
            # The webhook that converts has gone with the test. In the version that is stored nothing is converted.
            continue
        return
    await _delete_all(client, stored_version, namespace)


async def _delete_all(client: Client, resource: ApiResource, namespace: str) -> None:
    kind = metadata_only(resource)
    try:
        for obj in await client.delete_collection(kind, namespace=namespace, grace_period_seconds=0):
            if obj.metadata.finalizers:
                await _remove_finalizers(client, kind.api_resource, obj.key)
    except (NotFound, MethodNotAllowed):
        # Its definition has just been deleted.
        return


async def _remove_finalizers(client: Client, resource: ApiResource, key: ObjectKey) -> None:
    try:
        await client.patch(metadata_only(resource), key, MergePatch({"metadata": {"finalizers": None}}))
    except NotFound:
        return


async def _finalize(client: Client, key: ObjectKey) -> None:
    """Says that nothing is left, which the namespace waits for."""
    kind = unstructured(Namespace.api_resource)
    document = (await client.get(kind, key)).to_dict()
    document["spec"]["finalizers"] = []
    await client.update(kind.of(document), subresource="finalize")
