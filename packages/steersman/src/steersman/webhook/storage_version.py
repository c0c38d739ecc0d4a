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

_CUSTOM_RESOURCE_DEFINITION = ApiResource(
    "apiextensions.k8s.io", "v1", "CustomResourceDefinition", "customresourcedefinitions", namespaced=False
)

_STORAGE_VERSION_TIMEOUT_SECONDS = 30.0
_POLL_INTERVAL_SECONDS = 0.2

log = get_logger("webhook")


class MigrationResult(Struct, frozen=True):
    """What ``migrate_storage_version`` did.

    Attributes:
        storage_version: in which all objects are stored now.
        written: how many objects were written.
        dropped: versions that were struck from ``status.storedVersions``.
    """

    storage_version: str
    objects_written: int
    removed_versions: tuple[str, ...]


async def migrate_storage_version(
    client: Client,
    kind: type[Object] | ApiResource,
    *,
    dry_run: bool = False,
    on_progress: Callable[[int, int], None] = lambda done, total: None,
) -> MigrationResult:
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
    crd_type = unstructured(_CUSTOM_RESOURCE_DEFINITION)
    key = ObjectKey("", f"{resource.plural}.{resource.group}")
    before = await client.get(crd_type, key)
    storage, stored = _versions(before)
    old_versions = tuple(v for v in stored if v != storage)
    if not old_versions:
        return MigrationResult(storage, 0, ())
    await _wait_for_storage_version(client, resource, storage)
    written = 0
    current = metadata_only(resource._replace(version=storage))
    objects = (await client.list(current)).items
    on_progress(0, len(objects))
    for done, obj in enumerate(objects, start=1):
        written += await _rewrite_object(client, current, obj, dry_run)
        on_progress(done, len(objects))
    if dry_run:
        return MigrationResult(storage, written, old_versions)
    after = await client.get(crd_type, key)
    if _versions(after)[0] != storage:
        raise SteersmanError(f"{key}: the storage version was changed from {storage} meanwhile: begin again")
    # The version that was read: whatever is done to the definition meanwhile, it is not done unseen.
    patch = {
        "metadata": {"resourceVersion": after.metadata.resource_version},
        "status": {"storedVersions": [storage]},
    }
    await client.patch(crd_type, key, MergePatch(patch), subresource="status")
    log.info(
        "storage version migrated", kind=key.name, storage_version=storage, objects=written, dropped=old_versions
    )
    return MigrationResult(storage, written, old_versions)


def _versions(definition: Unstructured) -> tuple[str, tuple[str, ...]]:
    content: Any = definition.content
    storage = next(v["name"] for v in content["spec"]["versions"] if v["storage"])
    return storage, tuple(content.get("status", {}).get("storedVersions", ()))


async def _wait_for_storage_version(client: Client, resource: ApiResource, version: str) -> None:
    """Waits until the API server stores in ``version``, which it does a moment after the definition says so.

    Discovery tells it by a hash. Source: ``discovery.StorageVersionHash`` of ``k8s.io/apiserver``.
    """
    digest = hashlib.sha256(f"{resource.group}/{version}/{resource.kind}".encode()).digest()
    expected = base64.b64encode(digest[:8]).decode()
    try:
        async with asyncio.timeout(_STORAGE_VERSION_TIMEOUT_SECONDS):
            while True:
                resource_list = msgspec.json.decode(
                    await client.raw(f"/apis/{resource.group}/{version}"), type=_APIResourceList
                )
                served_hash = next(
                    (r.storage_version_hash for r in resource_list.resources if r.name == resource.plural), ""
                )
                if served_hash in (expected, ""):
                    return
                await asyncio.sleep(_POLL_INTERVAL_SECONDS)
    except TimeoutError:
        text = (
            f"{resource.plural}.{resource.group}: the API server does not store in {version} after "
            f"{_STORAGE_VERSION_TIMEOUT_SECONDS:g} s"
        )
        raise SteersmanError(text) from None


class _APIResource(FrozenStruct):
    name: str
    storage_version_hash: str = ""


class _APIResourceList(FrozenStruct):
    resources: tuple[_APIResource, ...] = ()


async def _rewrite_object(client: Client, kind: type[Any], obj: Object, dry_run: bool) -> int:
    """Whether ``obj`` had to be written: who changed it or deleted it meanwhile has done it."""
    precondition = {"metadata": {"resourceVersion": obj.metadata.resource_version}}
    try:
        await client.patch(kind, obj.key, MergePatch(precondition), dry_run=dry_run)
    except (Conflict, NotFound):
        return 0
    return 1
