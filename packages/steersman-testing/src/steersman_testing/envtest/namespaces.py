"""Temporary namespaces for tests."""

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
    """Create a namespace with a sanitized prefix and a random suffix. Return its name."""
    suffix = f"-{secrets.token_hex(4)}"
    prefix = re.sub(r"[^a-z0-9]+", "-", name_prefix.lower()).strip("-") or "test"
    name = f"{prefix[: _MAX_NAME_LENGTH - len(suffix)].rstrip('-')}{suffix}"
    await client.create(Namespace(metadata=ObjectMeta(name=name)))
    return name


async def delete_namespace(client: Client, name: str, discovery: Discovery | None) -> None:
    """Delete a namespace.

    Args:
        client: client of an administrator.
        name: name of the namespace.
        discovery: discovery of the API server, if there is no controller manager. All objects are then deleted before
            this function returns, including those with finalizers. None leaves the deletion to the controller
            manager.

    Raises:
        ApiError, ConnectionFailed: if a request fails.
    """
    key = ObjectKey("", name)
    try:
        # A terminating namespace rejects new objects.
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
    """Namespaced resources that support deletecollection, each in all versions."""
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
            # The conversion webhook stopped with the test. The storage version needs no conversion.
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
        # The CustomResourceDefinition was deleted after discovery.
        return


async def _remove_finalizers(client: Client, resource: ApiResource, key: ObjectKey) -> None:
    try:
        await client.patch(metadata_only(resource), key, MergePatch({"metadata": {"finalizers": None}}))
    except NotFound:
        return


async def _finalize(client: Client, key: ObjectKey) -> None:
    """Remove the finalizer of the namespace."""
    kind = unstructured(Namespace.api_resource)
    document = (await client.get(kind, key)).to_dict()
    document["spec"]["finalizers"] = []
    await client.update(kind.of(document), subresource="finalize")
