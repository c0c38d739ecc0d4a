"""Rewrites stored objects in the version in which their kind is stored now.

Source: "Versions in CustomResourceDefinitions", "Upgrade existing objects to a new stored version".
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
from collections.abc import Callable
from typing import Any

import msgspec
from msgspec import Struct

from steersman.client import Client, MergePatch
from steersman.errors import Conflict, NotFound, SteersmanError
from steersman.meta import ApiResource, FrozenStruct, Object, ObjectKey, Unstructured, metadata_only, unstructured
from steersman.observability.logging import get_logger

_DEFINITIONS = ApiResource(
    "apiextensions.k8s.io", "v1", "CustomResourceDefinition", "customresourcedefinitions", namespaced=False
)

_PATIENCE = 30.0
_LOOK_EVERY = 0.2

log = get_logger("webhook")


class Migration(Struct, frozen=True):
    """What ``migrate_storage_version`` did.

    Attributes:
        storage_version: in which all objects are stored now.
        written: how many objects were written.
        dropped: versions that were struck from ``status.storedVersions``.
    """

    storage_version: str
    written: int
    dropped: tuple[str, ...]


async def migrate_storage_version(
    client: Client,
    kind: type[Object] | ApiResource,
    *,
    dry_run: bool = False,
    on_progress: Callable[[int, int], None] = lambda done, total: None,
) -> Migration:
    """Writes every object of a custom kind once, so that it is stored in its storage version.

    The writes change nothing, and lose nothing that others write meanwhile. Ended half-way, it is begun again; where
    all is done, it only reads the definition. It needs get of the CustomResourceDefinition and patch of its status,
    list and patch of the objects.

    Args:
        kind: the kind in any version.
        dry_run: the API server checks each write and stores nothing; what is returned is what would be done.
        on_progress: called before the first object and after each with how many are done, and how many there are.

    Raises:
        SteersmanError: the storage version was changed meanwhile: begin again; or the API server has not taken it up.
        ApiError: an object cannot be written, as where a webhook refuses it; the message names it.
    """
    resource = kind if isinstance(kind, ApiResource) else kind.api_resource
    definitions = unstructured(_DEFINITIONS)
    key = ObjectKey("", f"{resource.plural}.{resource.group}")
    before = await client.get(definitions, key)
    storage, stored = _versions(before)
    former = tuple(v for v in stored if v != storage)
    if not former:
        return Migration(storage, 0, ())
    await _is_stored_so(client, resource, storage)
    written = 0
    current = metadata_only(resource._replace(version=storage))
    objects = (await client.list(current)).items
    on_progress(0, len(objects))
    for done, obj in enumerate(objects, start=1):
        written += await _rewrite(client, current, obj, dry_run)
        on_progress(done, len(objects))
    if dry_run:
        return Migration(storage, written, former)
    after = await client.get(definitions, key)
    if _versions(after)[0] != storage:
        raise SteersmanError(f"{key}: the storage version was changed from {storage} meanwhile: begin again")
    # The version that was read: whatever is done to the definition meanwhile, it is not done unseen.
    patch = {
        "metadata": {"resourceVersion": after.metadata.resource_version},
        "status": {"storedVersions": [storage]},
    }
    await client.patch(definitions, key, MergePatch(patch), subresource="status")
    log.info("storage version migrated", kind=key.name, storage_version=storage, objects=written, dropped=former)
    return Migration(storage, written, former)


def _versions(definition: Unstructured) -> tuple[str, tuple[str, ...]]:
    content: Any = definition.content
    storage = next(v["name"] for v in content["spec"]["versions"] if v["storage"])
    return storage, tuple(content.get("status", {}).get("storedVersions", ()))


async def _is_stored_so(client: Client, resource: ApiResource, version: str) -> None:
    """Waits until the API server stores in ``version``, which it does a moment after the definition says so.

    Discovery tells it by a hash. Source: ``discovery.StorageVersionHash`` of ``k8s.io/apiserver``.
    """
    digest = hashlib.sha256(f"{resource.group}/{version}/{resource.kind}".encode()).digest()
    expected = base64.b64encode(digest[:8]).decode()
    try:
        async with asyncio.timeout(_PATIENCE):
            while True:
                listed = msgspec.json.decode(await client.raw(f"/apis/{resource.group}/{version}"), type=_Listed)
                found = next((r.storage_version_hash for r in listed.resources if r.name == resource.plural), "")
                if found in (expected, ""):
                    return
                await asyncio.sleep(_LOOK_EVERY)
    except TimeoutError:
        text = f"{resource.plural}.{resource.group}: the API server does not store in {version} after {_PATIENCE:g} s"
        raise SteersmanError(text) from None


class _Resource(FrozenStruct):
    name: str
    storage_version_hash: str = ""


class _Listed(FrozenStruct):
    resources: tuple[_Resource, ...] = ()


async def _rewrite(client: Client, kind: type[Any], obj: Object, dry_run: bool) -> int:
    """Whether ``obj`` had to be written: who changed it or deleted it meanwhile has done it."""
    precondition = {"metadata": {"resourceVersion": obj.metadata.resource_version}}
    try:
        await client.patch(kind, obj.key, MergePatch(precondition), dry_run=dry_run)
    except (Conflict, NotFound):
        return 0
    return 1
