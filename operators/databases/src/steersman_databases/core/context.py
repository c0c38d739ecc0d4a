"""Reconcile context of a cluster, and operations on its objects."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from steersman.cache import CachedClient
from steersman.client import MergePatch, Propagation
from steersman.controller import EventRecorder
from steersman.errors import NotFound
from steersman.meta import ApplyConfiguration, Object, ObjectKey, OwnerReference, to_builtins
from steersman.observability.runtime import Clock
from steersman_databases.api.group import ADOPT_ANNOTATION, is_adoption_requested
from steersman_databases.core.api_errors import DeferredErrors
from steersman_databases.core.apply_drift import comparable, repair_patch, requires_recreation
from steersman_databases.core.cached_reads import get_cached_or_live, get_live
from steersman_databases.core.database_naming import TRACKING_LABEL, database_of, is_of_database
from steersman_databases.core.labels import belongs_to
from steersman_databases.core.outcome import ReconcileBlocked
from steersman_databases.engines.cluster_engine import DeclaredCluster

T = TypeVar("T", bound=Object)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterContext:
    """Cluster of a reconcile: the object, its declared state, and clients.

    Objects that are applied within `deferred` may be refused without stopping the reconcile.
    """

    cluster: Object
    declared: DeclaredCluster
    client: CachedClient
    events: EventRecorder
    clock: Clock
    deferred: DeferredErrors = field(default_factory=DeferredErrors)

    async def apply(self, kind: type[T], config: ApplyConfiguration[T]) -> T:
        """Apply an object that the cluster controls.

        Raises:
            ReconcileBlocked: a foreign object has this name, or an immutable one is not deleted yet.
        """
        present = await get_cached_or_live(self.client, kind, config.key)
        if present is not None:
            self.require_controlled(present)
            if requires_recreation(present, config):
                await self.delete_for_recreation(kind, present)
                present = None
            elif repair := repair_patch(present, config):
                await self.client.patch(kind, config.key, repair)
        applied = await self.client.apply(config, owner=self.cluster, adopt=True)
        if present is None:
            self.emit_created(kind, config.key)
        elif applied is not present and comparable(applied) != comparable(present):
            self.emit_updated(kind, config.key)
        return applied

    async def delete_for_recreation(self, kind: type[T], obj: T) -> None:
        """Delete an immutable object, to recreate it.

        Raises:
            ReconcileBlocked: it still exists.
        """
        if obj.metadata.deletion_timestamp is None:
            await self.delete(kind, obj)
        remaining = await get_live(self.client, kind, obj.key)
        if remaining is None:
            return
        finalizers = ", ".join(remaining.metadata.finalizers)
        blocking = f" (finalizers: {finalizers})" if finalizers else ""
        raise ReconcileBlocked(
            "Pending",
            "Creating",
            f"{kind.api_resource.kind} {obj.metadata.name} must be recreated, since it is immutable: waiting for its "
            f"deletion{blocking}",
        )

    async def delete_if_controlled(self, kind: type[T], key: ObjectKey) -> None:
        """Delete an undeclared object if the cluster controls it."""
        present = await self.client.get_or_none(kind, key)
        if present is None or not self.controls(present) or present.metadata.deletion_timestamp is not None:
            return
        await self.delete(kind, present)

    async def delete(
        self, kind: type[T], obj: T, *, propagation: Propagation = "Background", unchanged: bool = False
    ) -> None:
        """Delete exactly this object, if it still exists.

        Args:
            unchanged: raise Conflict if it has changed since it was observed.
        """
        metadata, version = obj.metadata, obj.metadata.resource_version if unchanged else ""
        try:
            await self.client.delete(
                kind, obj.key, uid=metadata.uid, resource_version=version or "", propagation=propagation
            )
        except NotFound:
            # A conflict is different: the present object, perhaps another one of this name, must be read again.
            return

    def controls(self, obj: Object) -> bool:
        """Return True if this cluster controls the object.

        A previous cluster of the same name does not count.
        """
        reference = obj.controller_reference
        return reference is not None and reference.uid == self.cluster.metadata.uid

    def may_control(self, obj: Object) -> bool:
        """Return True if this cluster controls the object, or may adopt it."""
        return self.controls(obj) or (is_adoption_requested(self.cluster) and self._is_restored(obj))

    def _is_restored(self, obj: Object) -> bool:
        """Return True if it has labels of this cluster and no controller.

        A backup tool has restored it without its owner references.
        """
        names = self.declared.names
        groups = (names.key, ObjectKey(names.key.namespace, names.read_replica_group))
        is_own = any(key in groups for key in database_of(obj)) and not is_of_database(obj)
        return is_own and obj.controller_reference is None

    async def require_control(self, kind: type[T], obj: T) -> T:
        """Adopt the object, unless the cluster controls it. Raises ReconcileBlocked."""
        self.require_controlled(obj)
        if self.controls(obj):
            return obj
        adopted = await self.client.patch(kind, obj.key, adoption_patch(obj, self.cluster))
        self.emit_updated(kind, obj.key)
        return adopted

    def require_controlled(self, obj: Object) -> None:
        """Require that the cluster controls or may adopt the object."""
        if self.may_control(obj):
            return
        kind, name = type(obj).api_resource.kind, obj.metadata.name
        reference = obj.controller_reference
        if reference is not None and (reference.kind, reference.name) == (self.declared.kind, self.declared.key.name):
            raise ReconcileBlocked(
                "Pending",
                "Creating",
                f"{kind} {name} belongs to a previous cluster of this name: waiting for the garbage collector to "
                "delete it",
            )
        raise name_conflict(obj, self.declared.kind if self._is_restored(obj) else "")

    def require_labels(self, obj: Object, claims: Iterable[Object] = ()) -> None:
        """Check that an object without controller belongs to the cluster.

        It has the cluster's labels, or has lost them and is owned by a PVC.

        Args:
            claims: PVCs of the cluster. Ownership grants no more than labels, because both need write access to the
                object.

        Raises:
            ReconcileBlocked: the object is foreign.
        """
        if not belongs_to(obj, self.declared) and not is_owned(obj, claims):
            raise name_conflict(obj)

    async def restore_labels(self, kind: type[T], obj: T, labels: Mapping[str, str]) -> T:
        """Restore labels that the object has lost, and emit an Event.

        Objects of earlier versions lose the label by which GitOps tools track their own objects.
        """
        missing = dict(sorted(labels.items() - obj.metadata.labels.items()))
        tracked = TRACKING_LABEL not in labels and obj.metadata.labels.get(TRACKING_LABEL) == self.declared.key.name
        if not missing and not tracked:
            return obj
        changes = {**missing, **({TRACKING_LABEL: None} if tracked else {})}
        metadata = {"labels": changes, "resourceVersion": obj.metadata.resource_version}
        patched = await self.client.patch(kind, obj.key, MergePatch({"metadata": metadata}))
        # An admission policy may remove some again.
        if restored := missing.items() & patched.metadata.labels.items():
            reported = ", ".join(f"{name}={value}" for name, value in sorted(restored))
            note = f"restored the labels {reported} of {kind.api_resource.kind} {obj.metadata.name}"
            self.events.normal(self.cluster, "Updated", note)
        return patched

    def emit_created(self, kind: type[Object], key: ObjectKey) -> None:
        """Emit an Event."""
        self.events.normal(self.cluster, "Created", f"created {kind.api_resource.kind} {key.name}")

    def emit_updated(self, kind: type[Object], key: ObjectKey) -> None:
        """Emit an Event."""
        self.events.normal(self.cluster, "Updated", f"updated {kind.api_resource.kind} {key.name}")


def is_owned(obj: Object, owners: Iterable[Object]) -> bool:
    """Return True if one of the owners owns the object."""
    return not {o.uid for o in obj.metadata.owner_references}.isdisjoint(o.metadata.uid for o in owners)


def adoption_patch(obj: Object, owner: Object) -> MergePatch:
    """Return the patch that makes `owner` the controller of the object."""
    resource = type(owner).api_resource
    reference = OwnerReference(
        api_version=resource.api_version,
        kind=resource.kind,
        name=owner.metadata.name,
        uid=owner.metadata.uid,
        controller=True,
        block_owner_deletion=True,
    )
    references = to_builtins([*obj.metadata.owner_references, reference])
    return MergePatch({"metadata": {"ownerReferences": references, "resourceVersion": obj.metadata.resource_version}})


def adoption_advice(kind: str) -> str:
    """Return how a user permits adoption to an object of this kind."""
    return f". If a backup tool has restored it, set the annotation {ADOPT_ANNOTATION} of the {kind} to true"


def name_conflict(obj: Object, adopting_kind: str = "") -> ReconcileBlocked:
    """Return the error for a foreign object of this name.

    Args:
        adopting_kind: kind of the cluster if it could adopt the object.
    """
    kind, name = type(obj).api_resource.kind, obj.metadata.name
    message = f"{kind} {name} exists and does not belong to this cluster"
    advice = adoption_advice(adopting_kind) if adopting_kind else ""
    return ReconcileBlocked("Failed", "NameConflict", f"{message}{advice}")
