"""Writes to storage: finalizers, managed fields, no-op detection and dry runs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Literal

from steersman.meta import ObjectKey
from steersman.observability.runtime import Runtime
from steersman_testing.apiserver.definitions.status import mark_for_deletion
from steersman_testing.apiserver.fields.managed_fields import ManagedFields, VersionedSet
from steersman_testing.apiserver.kinds import DEFINITIONS, NAMESPACES, GroupResource, ServedKind
from steersman_testing.apiserver.storage import Storage, StoredObject
from steersman_testing.apiserver.values import JsonObject, json_equal

DeletionPropagation = Literal["Background", "Foreground", "Orphan"]

FOREGROUND_FINALIZER = "foregroundDeletion"
ORPHAN_FINALIZER = "orphan"
_EVENTS = GroupResource("", "events")
JOBS = GroupResource("batch", "jobs")
_FINALIZER_OF_PROPAGATION = {"Foreground": FOREGROUND_FINALIZER, "Orphan": ORPHAN_FINALIZER}


@dataclass(frozen=True, slots=True)
class StorageWriter:
    """Creates, replaces and deletes stored objects.

    Attributes:
        on_stored: is called after each create and update that was stored.
    """

    storage: Storage
    runtime: Runtime
    on_stored: Callable[[StoredObject], None]

    def timestamp(self, seconds: int = 0) -> str:
        """Return the time ``seconds`` from now in the format of the API."""
        time = self.runtime.clock.now() + timedelta(seconds=seconds)
        # Each write needs a timestamp, and strftime takes twice as long.
        return f"{time.isoformat()[:19]}Z"

    def create(
        self, kind: ServedKind, obj: JsonObject, managers: ManagedFields, *, dry_run: bool = False
    ) -> StoredObject:
        """Store a new object."""
        meta = obj["metadata"]
        key = ObjectKey(meta.get("namespace", ""), meta["name"])
        if dry_run:
            return StoredObject(kind.collection, key, obj, managers, self.storage.version)
        created = self.storage.put(kind.collection, key, obj, managers)
        self.on_stored(created)
        return created

    def replace(
        self, old: StoredObject, obj: JsonObject, managers: ManagedFields, *, dry_run: bool = False
    ) -> StoredObject:
        """Store ``obj`` in place of ``old``.

        Returns ``old`` if nothing changes. Removes the object if it is being deleted and its last finalizer is gone.
        """
        if json_equal(obj, old.object) and _same_managers(managers, old.managers):
            return old
        candidate = StoredObject(old.collection, old.key, obj, managers, old.version)
        if dry_run:
            return candidate
        if candidate.is_deleting and not must_stay(candidate):
            # The response has the previous resourceVersion, and the DELETED event has the new one.
            self.storage.remove(old.collection, old.key)
            return candidate
        replaced = self.storage.put(old.collection, old.key, obj, managers)
        self.on_stored(replaced)
        return replaced

    def delete(
        self,
        old: StoredObject,
        propagation: DeletionPropagation | None = None,
        *,
        grace: int | None = None,
        dry_run: bool = False,
    ) -> tuple[StoredObject, bool]:
        """Remove ``old``, or mark it for deletion.

        Finalizers and grace periods delay the removal.

        Returns:
            the last state of the object, and True if it was removed.
        """
        if old.collection == DEFINITIONS and not old.is_deleting:
            marked = mark_for_deletion(old.object, self.timestamp())
            return self.replace(old, marked, old.managers, dry_run=dry_run), False
        finalizers = _finalizers_for_deletion(old, propagation)
        period = _grace_period(old, grace)
        meta: JsonObject = {**old.object["metadata"], "finalizers": finalizers}
        if not finalizers:
            del meta["finalizers"]
        stays = bool(finalizers) or period > 0 or old.collection == NAMESPACES
        if not stays:
            removed = old if dry_run else self.storage.remove(old.collection, old.key)
            return (self._terminated_pod(removed) if old.collection == ("", "pods") else removed), True
        if not old.is_deleting:
            meta["deletionTimestamp"] = self.timestamp(period)
            if old.collection != NAMESPACES:
                meta["deletionGracePeriodSeconds"] = period
            if "generation" in meta:
                meta["generation"] += 1
        elif period < meta.get("deletionGracePeriodSeconds", 0):
            meta["deletionTimestamp"] = self.timestamp(period)
            meta["deletionGracePeriodSeconds"] = period
        obj = {**old.object, "metadata": meta}
        if old.collection == NAMESPACES:
            obj["status"] = {**obj.get("status", {}), "phase": "Terminating"}
        return self.replace(old, obj, old.managers, dry_run=dry_run), False

    def _terminated_pod(self, pod: StoredObject) -> StoredObject:
        """Return ``pod`` with a deletionTimestamp, as immediate deletions respond."""
        meta: JsonObject = {**pod.object["metadata"], "deletionGracePeriodSeconds": 0}
        if not pod.is_deleting:
            meta |= {"deletionTimestamp": self.timestamp(), "generation": meta.get("generation", 0) + 1}
        return StoredObject(pod.collection, pod.key, {**pod.object, "metadata": meta}, pod.managers, pod.version)


def must_stay(stored: StoredObject) -> bool:
    """Return True if a deleted object cannot be removed yet.

    Finalizers, a grace period or the content of a namespace delay the removal.
    """
    meta = stored.object["metadata"]
    has_namespace_finalizers = stored.collection == NAMESPACES and bool(
        stored.object.get("spec", {}).get("finalizers")
    )
    return bool(stored.finalizers) or has_namespace_finalizers or meta.get("deletionGracePeriodSeconds", 0) > 0


def _finalizers_for_deletion(old: StoredObject, propagation: DeletionPropagation | None) -> list[str]:
    finalizers = list(old.finalizers)
    if old.collection == _EVENTS:
        # Events never own other objects.
        return [f for f in finalizers if f not in (FOREGROUND_FINALIZER, ORPHAN_FINALIZER)]
    if (
        propagation is None
        and old.collection == JOBS
        and not {FOREGROUND_FINALIZER, ORPHAN_FINALIZER} & set(finalizers)
    ):
        propagation = "Orphan"
    if propagation is not None:
        finalizer = _FINALIZER_OF_PROPAGATION.get(propagation)
        finalizers = [f for f in finalizers if f not in (FOREGROUND_FINALIZER, ORPHAN_FINALIZER) or f == finalizer]
        if finalizer is not None and finalizer not in finalizers:
            finalizers.append(finalizer)
    return finalizers


def _grace_period(old: StoredObject, requested: int | None) -> int:
    """Return the grace period in seconds.

    It is 0 except for pods on a node, whose kubelet finishes the deletion.
    """
    spec = old.object.get("spec", {})
    phase = old.object.get("status", {}).get("phase")
    if old.collection != ("", "pods") or not spec.get("nodeName") or phase in ("Succeeded", "Failed"):
        return 0
    return int(spec.get("terminationGracePeriodSeconds", 30)) if requested is None else requested


def _same_managers(left: ManagedFields, right: ManagedFields) -> bool:
    if left is right:
        return True
    return _without_times(left) == _without_times(right)


def _without_times(managers: ManagedFields) -> dict[object, VersionedSet]:
    return {k: o._replace(time="") for k, o in managers.items()}
