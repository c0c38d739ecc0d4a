"""Controllers for deletion: garbage collector, namespace controller, PVC and PV protection.

All work happens within the request that causes it, in a fixed order, so that runs are reproducible. In a real cluster
it happens later.

Source: "Garbage Collection", "Use Cascading Deletion" and "Namespaces"; ``pkg/controller/garbagecollector`` of
Kubernetes 1.36, which also has the names of the states of an owner.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from steersman.meta import ObjectKey
from steersman_testing.apiserver.access.authorization import RequestUser
from steersman_testing.apiserver.builtin.defaults import PV_PROTECTION, PVC_PROTECTION
from steersman_testing.apiserver.controller_requests import (
    GARBAGE_COLLECTOR,
    PV_PROTECTION_CONTROLLER,
    PVC_PROTECTION_CONTROLLER,
    ControllerRequests,
)
from steersman_testing.apiserver.kinds import GroupResource, KindRegistry
from steersman_testing.apiserver.storage import Storage, StoredObject
from steersman_testing.apiserver.values import JsonObject, get_array, get_object
from steersman_testing.apiserver.writes import FOREGROUND_FINALIZER, ORPHAN_FINALIZER


class _UnknownKind(Exception):
    """The kind of an owner is unknown or has the wrong scope."""


@dataclass(frozen=True, slots=True)
class GarbageCollector:
    """Completes deletions.

    Attributes:
        attempt_to_delete: UIDs of objects that may have lost an owner, including objects that webhooks keep.
    """

    storage: Storage
    kinds: KindRegistry
    requests: ControllerRequests
    attempt_to_delete: dict[str, None] = field(default_factory=dict[str, None])

    def reconcile(self) -> None:
        """Process deletions until nothing changes any more.

        Work that needs a pending webhook call is left.
        """
        queued, progress = list(self.attempt_to_delete), True
        while progress:
            last_version, removed = self.storage.version, self.storage.pop_removed()
            dependent_uids = [dependent.uid for owner in removed for dependent in self.storage.dependents(owner.uid)]
            self.attempt_to_delete.update(dict.fromkeys(dependent_uids))
            for uid in (*queued, *dependent_uids):
                item = self.storage.by_uid(uid)
                if item is None or self._attempt_to_delete_item(item):
                    self.attempt_to_delete.pop(uid, None)
            queued = []
            for uid in self.storage.deleting():
                stored = self.storage.by_uid(uid)
                if stored is not None:
                    self._process_deleting(stored)
            progress = bool(removed) or self.storage.version != last_version

    def enqueue_all(self) -> None:
        """Enqueue all objects with owners, even with owners that never existed."""
        self.attempt_to_delete.update(
            (stored.uid, None) for stored in self.storage.all() if _owner_references(stored)
        )

    def on_write(self, stored: StoredObject) -> None:
        """Enqueue ``stored`` if an existing owner has another namespace or kind.

        Owners with unknown UIDs are ignored, because tests use them. ``enqueue_all`` includes them.
        """
        known_owners = (o for o in _owner_references(stored) if self.storage.by_uid(o.get("uid", "")) is not None)
        try:
            misplaced = any(self._owner(stored, o) is None for o in known_owners)
        except _UnknownKind:
            return
        if misplaced:
            # Do not delete yet: the write is still in progress.
            self.attempt_to_delete[stored.uid] = None

    def _attempt_to_delete_item(self, item: StoredObject) -> bool:
        """Delete ``item`` if no owner keeps it: attemptToDeleteItem of Kubernetes.

        Returns:
            False if the request failed.
        """
        references = _owner_references(item)
        if item.is_deleting or not references:
            return True
        try:
            found = [(r, self._owner(item, r)) for r in references]
        except _UnknownKind:
            return True
        solid = [r for r, owner in found if owner is not None and not _is_deleting_dependents(owner)]
        if solid:
            return len(solid) == len(references) or self._patch_metadata(item, {"ownerReferences": solid})
        dependents = self.storage.dependents(item.uid)
        if dependents and any(owner is not None for _, owner in found):
            if any(_is_deleting_dependents(d) for d in dependents):
                # The owners may form a cycle, so the item must not block its own deletion.
                unblocked = [{**r, "blockOwnerDeletion": False} for r in references]
                changed = self.requests.patch_metadata(item, {"ownerReferences": unblocked})
                if changed is None:
                    return False
                item = changed.storage_form or changed
            return self.requests.delete(item, "Foreground")
        if ORPHAN_FINALIZER in item.finalizers:
            return self.requests.delete(item, "Orphan")
        return self.requests.delete(item, "Foreground" if FOREGROUND_FINALIZER in item.finalizers else "Background")

    def _patch_metadata(self, item: StoredObject, changes: JsonObject, user: RequestUser = GARBAGE_COLLECTOR) -> bool:
        return self.requests.patch_metadata(item, changes, user) is not None

    def _owner(self, item: StoredObject, reference: JsonObject) -> StoredObject | None:
        """Return the owner of a reference, or None if it dangles."""
        kind = self.kinds.find_by_gvk(reference.get("apiVersion", ""), reference.get("kind", ""))
        if kind is None or (kind.resource.namespaced and not item.key.namespace):
            raise _UnknownKind
        namespace = item.key.namespace if kind.resource.namespaced else ""
        found = self.storage.get(kind.collection, ObjectKey(namespace, reference.get("name", "")))
        return found if found is not None and found.uid == reference.get("uid") else None

    def _process_deleting(self, stored: StoredObject) -> None:
        if ORPHAN_FINALIZER in stored.finalizers:
            self._orphan_dependents(stored)
        elif FOREGROUND_FINALIZER in stored.finalizers:
            self._delete_dependents(stored)
        elif stored.collection == ("", "namespaces"):
            self._delete_namespace_content(stored)
        elif PVC_PROTECTION in stored.finalizers:
            self._release_unused_pvc(stored)
        elif PV_PROTECTION in stored.finalizers and get_object(stored.object, "status").get("phase") != "Bound":
            self._remove_finalizer(stored, PV_PROTECTION, PV_PROTECTION_CONTROLLER)

    def _orphan_dependents(self, owner: StoredObject) -> None:
        dependents = self.storage.dependents(owner.uid)
        owner_references = {d.uid: [o for o in _owner_references(d) if o.get("uid") != owner.uid] for d in dependents}
        edited = [self._patch_metadata(d, {"ownerReferences": owner_references[d.uid]}) for d in dependents]
        if all(edited):
            self._remove_finalizer(owner, ORPHAN_FINALIZER)

    def _delete_dependents(self, owner: StoredObject) -> None:
        for dependent in self.storage.dependents(owner.uid):
            self._attempt_to_delete_item(dependent)
        if not any(_blocks_owner_deletion(d, owner.uid) for d in self.storage.dependents(owner.uid)):
            self._remove_finalizer(owner, FOREGROUND_FINALIZER)

    def _delete_namespace_content(self, namespace: StoredObject) -> None:
        name = namespace.key.name
        failed_collections: set[GroupResource] = set()
        for stored in [s for s in self.storage.all() if s.key.namespace == name]:
            if stored.is_deleting or stored.collection in failed_collections:
                continue
            if not self.requests.delete_namespace_content(stored):
                # The first rejection ends the deletion of a collection.
                failed_collections.add(stored.collection)
        if not any(s.key.namespace == name for s in self.storage.all()):
            self.requests.finalize_namespace(namespace)

    def _release_unused_pvc(self, pvc: StoredObject) -> None:
        pods = self.storage.list(GroupResource("", "pods"), pvc.key.namespace)
        if not any(_uses_pvc(pod, pvc.key.name) for pod in pods):
            self._remove_finalizer(pvc, PVC_PROTECTION, PVC_PROTECTION_CONTROLLER)

    def _remove_finalizer(self, stored: StoredObject, finalizer: str, user: RequestUser = GARBAGE_COLLECTOR) -> None:
        current = self.storage.get(stored.collection, stored.key)
        if current is not None and current.uid == stored.uid:
            remaining = [f for f in current.finalizers if f != finalizer]
            self._patch_metadata(current, {"finalizers": remaining}, user)


def _owner_references(stored: StoredObject) -> list[JsonObject]:
    return stored.object["metadata"].get("ownerReferences") or []


def _is_deleting_dependents(owner: StoredObject) -> bool:
    """Return True if the owner waits for the deletion of its dependents."""
    return owner.is_deleting and FOREGROUND_FINALIZER in owner.finalizers


def _uses_pvc(pod: StoredObject, pvc_name: str) -> bool:
    if pod.object.get("status", {}).get("phase") in ("Succeeded", "Failed"):
        return False
    volumes = get_array(pod.object.get("spec"), "volumes")
    return any(get_object(v, "persistentVolumeClaim").get("claimName") == pvc_name for v in volumes)


def _blocks_owner_deletion(dependent: StoredObject, uid: str) -> bool:
    return any(o.get("uid") == uid and o.get("blockOwnerDeletion") for o in _owner_references(dependent))
