"""Objects that pods need to archive.

They are the store's Secret, the catalog, and the path on the PVCs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import msgspec

from steersman.api.apply import core, meta
from steersman.api.core_v1 import ConfigMap, PersistentVolumeClaim, Secret
from steersman.client import MergePatch
from steersman.errors import AlreadyExists
from steersman.meta import Object, to_builtins
from steersman_databases.api.backups.backup_common import ARCHIVE_PATH_ANNOTATION
from steersman_databases.api.group import GROUP
from steersman_databases.core.cached_reads import get_cached_or_live
from steersman_databases.core.context import ClusterContext
from steersman_databases.core.labels import belongs_to, data_labels
from steersman_databases.features.backup_store.layout import archive_path
from steersman_databases.specs.data_secrets import cluster_secret, data_owners, owned_by

STORE_KEY = "store.json"
ARCHIVE_UID_ANNOTATION = f"{GROUP}/archive-uid"
"""Annotation of data PVCs: UID of the cluster that archived them."""


@dataclass(frozen=True, slots=True)
class ArchiveLocation:
    """Location of a cluster's archive.

    Args:
        path: below the prefix of the store.
    """

    path: str
    uid: str


class ArchiveObjects:
    """Ensures these objects for one cluster.

    Args:
        pvcs: of the data that the cluster uses. They own the objects.
    """

    def __init__(self, context: ClusterContext, pvcs: Sequence[PersistentVolumeClaim]) -> None:
        self._context = context
        self._pvcs = pvcs
        self._names = context.declared.names
        self._labels = data_labels(context.declared)

    async def ensure_location(self) -> ArchiveLocation:
        """The archive of the data, written to all PVCs. The lowest ordinal that has one decides."""
        declared = self._context.declared
        location = ArchiveLocation(archive_path(declared.kind, declared.key, declared.uid), declared.uid)
        ordered = sorted(self._pvcs, key=lambda pvc: pvc.metadata.name)
        for pvc in ordered:
            annotations = pvc.metadata.annotations
            path, uid = annotations.get(ARCHIVE_PATH_ANNOTATION), annotations.get(ARCHIVE_UID_ANNOTATION)
            if path and uid:
                location = ArchiveLocation(path, uid)
                break
        annotations = {ARCHIVE_PATH_ANNOTATION: location.path, ARCHIVE_UID_ANNOTATION: location.uid}
        for pvc in ordered:
            if not annotations.items() <= pvc.metadata.annotations.items():
                patch = MergePatch({"metadata": {"annotations": annotations}})
                await self._context.client.patch(PersistentVolumeClaim, pvc.key, patch)
        return location

    async def ensure_catalog(self) -> ConfigMap:
        """The ConfigMap of the catalog. Its data belong to the pods."""
        key = self._names.backup_catalog
        present = await get_cached_or_live(self._context.client, ConfigMap, key)
        if present is None:
            metadata = meta.ObjectMeta(
                name=key.name,
                namespace=key.namespace,
                labels=self._labels,
                owner_references=[owned_by(pvc) for pvc in self._pvcs],
            )
            try:
                present = await self._context.client.create(core.ConfigMap(metadata=metadata))
            except AlreadyExists:
                present = await self._context.client.live.get(ConfigMap, key)
                self._context.require_labels(present, self._pvcs)
            else:
                self._context.emit_created(ConfigMap, key)
            return present
        self._context.require_labels(present, self._pvcs)
        if owners := _missing_owners(present, [owned_by(pvc) for pvc in self._pvcs]):
            await self._context.client.patch(ConfigMap, key, owners)
        return present

    async def present_store(self) -> Mapping[str, object]:
        """The document in the Secret of the store, or ""."""
        secret = await get_cached_or_live(self._context.client, Secret, self._names.backup_secret)
        if secret is None:
            return {}
        self._context.require_labels(secret, self._pvcs)
        try:
            return msgspec.json.decode(secret.data.get(STORE_KEY, b""), type=dict[str, object])
        except (msgspec.DecodeError, RecursionError):
            return {}

    async def ensure_store(self, document: Mapping[str, object]) -> None:
        """The Secret of the store. It is mounted optionally: creating it restarts no pod."""
        key = self._names.backup_secret
        data = {STORE_KEY: msgspec.json.encode(document, order="deterministic")}
        owners = data_owners(self._context.declared, self._pvcs)
        present = await get_cached_or_live(self._context.client, Secret, key)
        if present is None:
            await self._context.client.create(cluster_secret(key, self._labels, data, owners))
            self._context.emit_created(Secret, key)
            return
        self._context.require_labels(present, self._pvcs)
        if present.data != data:
            patch = {"data": to_builtins(data), "metadata": {"resourceVersion": present.metadata.resource_version}}
            present = await self._context.client.patch(Secret, key, MergePatch(patch))
            self._context.emit_updated(Secret, key)
        if missing := _missing_owners(present, owners):
            await self._context.client.patch(Secret, key, missing)

    async def remove(self) -> None:
        """Deletes Secret and catalog where ``spec.backup`` is not declared. The pods then stop archiving."""
        for kind, key in ((Secret, self._names.backup_secret), (ConfigMap, self._names.backup_catalog)):
            present = await self._context.client.get_or_none(kind, key)
            if (
                present is not None
                and belongs_to(present, self._context.declared)
                and present.metadata.deletion_timestamp is None
            ):
                await self._context.delete(kind, present)


def _missing_owners(obj: Object, desired: Sequence[meta.OwnerReference]) -> MergePatch | None:
    """Return a patch that adds the missing owners, or None."""
    owners = {owner.uid for owner in obj.metadata.owner_references}
    missing = [owner for owner in desired if owner.uid not in owners]
    if not missing:
        return None
    references = [*to_builtins(obj.metadata.owner_references), *to_builtins(missing)]
    version = obj.metadata.resource_version
    return MergePatch({"metadata": {"ownerReferences": references, "resourceVersion": version}})
