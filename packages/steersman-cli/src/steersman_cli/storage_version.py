"""Rewrites stored objects in the current storage version.

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

_CUSTOM_RESOURCE_DEFINITION = ApiResource(
    "apiextensions.k8s.io", "v1", "CustomResourceDefinition", "customresourcedefinitions", namespaced=False
)

_STORAGE_VERSION_TIMEOUT_SECONDS = 30.0
_POLL_INTERVAL_SECONDS = 0.2


class MigrationResult(Struct, frozen=True):
    """Result of ``migrate_storage_version``.

    Attributes:
        storage_version: version in which all objects are stored.
        objects_written: number of objects that were rewritten.
        removed_versions: versions that were removed from ``status.storedVersions``.
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
    """Rewrite all objects of a custom kind in its storage version.

    The writes do not change objects and do not overwrite concurrent changes. An interrupted migration can be
    repeated. It needs RBAC permissions to get the CRD and patch its status, and to list and patch the objects.

    Args:
        kind: the kind, in any version.
        dry_run: sends all writes as dry run.
        on_progress: called with the numbers of completed and of all objects, at the start and after each object.

    Raises:
        SteersmanError: the storage version changed during the migration, or the API server does not use it yet.
        ApiError: an object cannot be written, for example because a webhook denies it.
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
        raise SteersmanError(
            f"CRD {key}: the storage version changed from {storage} during the migration: run it again"
        )
    # Fails if the CRD has changed since it was read.
    patch = {
        "metadata": {"resourceVersion": after.metadata.resource_version},
        "status": {"storedVersions": [storage]},
    }
    await client.patch(crd_type, key, MergePatch(patch), subresource="status")
    return MigrationResult(storage, written, old_versions)


def _versions(definition: Unstructured) -> tuple[str, tuple[str, ...]]:
    content: Any = definition.content
    storage = next(v["name"] for v in content["spec"]["versions"] if v["storage"])
    return storage, tuple(content.get("status", {}).get("storedVersions", ()))


async def _wait_for_storage_version(client: Client, resource: ApiResource, version: str) -> None:
    """Wait until the API server stores objects in ``version``.

    Discovery shows the storage version as a hash. Source: ``discovery.StorageVersionHash`` of ``k8s.io/apiserver``.
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
            f"CRD {resource.plural}.{resource.group}: the API server does not use storage version {version} after "
            f"{_STORAGE_VERSION_TIMEOUT_SECONDS:g} s"
        )
        raise SteersmanError(text) from None


class _APIResource(FrozenStruct):
    name: str
    storage_version_hash: str = ""


class _APIResourceList(FrozenStruct):
    resources: tuple[_APIResource, ...] = ()


async def _rewrite_object(client: Client, kind: type[Any], obj: Object, dry_run: bool) -> int:
    """Write ``obj`` without changes. Return the number of writes.

    It is 0 if another client has written or deleted the object.
    """
    precondition = {"metadata": {"resourceVersion": obj.metadata.resource_version}}
    try:
        await client.patch(kind, obj.key, MergePatch(precondition), dry_run=dry_run)
    except (Conflict, NotFound):
        return 0
    return 1
