"""Finds and removes finalizers and annotations of Kopf on live objects.

Kopf adds a finalizer to objects with deletion handlers. Without Kopf, such an object cannot be deleted. Annotations
have the last handled configuration and the progress of handlers.

Source: Kopf 1.45 documentation, "Configuration" (finalizers, progress and diff-base storages).
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from steersman.errors import ConfigurationError, NotFound
from steersman.meta import ApiResource, ObjectKey, metadata_only
from steersman_cli.kopf.handlers import ResourceName

if TYPE_CHECKING:
    from steersman.api.apiextensions_v1 import CustomResourceDefinition
    from steersman.client import Client
    from steersman.meta import ObjectMetadata

DEFAULT_FINALIZERS = ("kopf.zalando.org/KopfFinalizerMarker", "KopfFinalizerMarker")
DEFAULT_PREFIXES = ("kopf.zalando.org", "kopf.dev")


@dataclass(frozen=True)
class Marks:
    """Names that an operator has configured.

    Attributes:
        finalizers: finalizers to remove.
        prefixes: annotations with such a domain are removed.
    """

    finalizers: tuple[str, ...] = DEFAULT_FINALIZERS
    prefixes: tuple[str, ...] = DEFAULT_PREFIXES


@dataclass(frozen=True)
class Leftover:
    """Marks on one object."""

    resource: ApiResource
    key: ObjectKey
    finalizers: tuple[str, ...]
    annotations: tuple[str, ...]


async def find_leftovers(client: Client, resources: Iterable[ApiResource], marks: Marks) -> AsyncGenerator[Leftover]:
    """Yield the objects with marks.

    Raises:
        SteersmanError: objects cannot be listed.
    """
    for resource in resources:
        for obj in (await client.list(metadata_only(resource))).items:
            if (found := _leftover(resource, obj, marks)) is not None:
                yield found


async def remove(client: Client, leftover: Leftover, marks: Marks, *, dry_run: bool) -> bool:
    """Remove the marks of an object. Return False if it is gone or has none any more.

    Raises:
        SteersmanError: the API server rejects the update.
    """
    from steersman.client import MergePatch, retry_on_conflict

    kind = metadata_only(leftover.resource)

    async def patch_once() -> bool:
        present = await client.get(kind, leftover.key)
        found = _leftover(leftover.resource, present, marks)
        if found is None:
            return False
        patch = {
            # The list of finalizers is replaced, so a finalizer that another client adds meanwhile must not be lost.
            "resourceVersion": present.metadata.resource_version,
            "finalizers": [name for name in present.metadata.finalizers if name not in found.finalizers],
            "annotations": dict.fromkeys(found.annotations),
        }
        await client.patch(kind, leftover.key, MergePatch({"metadata": patch}), dry_run=dry_run)
        return True

    try:
        return await retry_on_conflict(patch_once)
    except NotFound:
        return False


async def resolve_resources(client: Client, names: Iterable[ResourceName]) -> list[ApiResource]:
    """Return the resources of a cluster that the names of handlers select.

    Raises:
        ConfigurationError: the cluster has no such resource, or several.
    """
    from steersman.api.apiextensions_v1 import CustomResourceDefinition
    from steersman_cli.kopf.skeleton import builtin_class

    definitions = (await client.list(CustomResourceDefinition)).items
    found: dict[ApiResource, None] = {}
    for name in names:
        matching = [d for d in definitions if _selects(name, d)]
        builtin = builtin_class(name)
        if len(matching) > 1:
            raise ConfigurationError(f"{name} is ambiguous: {', '.join(d.metadata.name for d in matching)}")
        if matching and not (builtin is not None and not name.group):
            spec = matching[0].spec
            version = next(v.name for v in spec.versions if v.storage)
            namespaced = spec.scope == "Namespaced"
            found[ApiResource(spec.group, version, spec.names.kind, spec.names.plural, namespaced)] = None
        elif builtin is not None:
            found[builtin.api_resource] = None
        else:
            raise ConfigurationError(
                f"the cluster has no resource {name}: install its CRD, or select another cluster"
            )
    return list(found)


def _selects(name: ResourceName, definition: CustomResourceDefinition) -> bool:
    names = definition.spec.names
    return name.selects(definition.spec.group, (names.plural, names.kind, names.singular or "", *names.short_names))


def _leftover(resource: ApiResource, obj: ObjectMetadata, marks: Marks) -> Leftover | None:
    meta = obj.metadata
    finalizers = tuple(name for name in meta.finalizers if name in marks.finalizers)
    annotations = tuple(sorted(name for name in meta.annotations if name.partition("/")[0] in marks.prefixes))
    if not finalizers and not annotations:
        return None
    return Leftover(resource, ObjectKey(meta.namespace, meta.name), finalizers, annotations)
