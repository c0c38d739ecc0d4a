"""What the controller manager does about deletion: owners' dependents, namespaces' content, volumes and claims.

Everything happens within the request that causes it, in a fixed order, so that runs repeat; in a real cluster it
happens some time later. Source: "Garbage Collection", "Use Cascading Deletion", "Namespaces";
``pkg/controller/garbagecollector`` of Kubernetes 1.36, whose names for the states of an owner these are.
"""

from __future__ import annotations

from dataclasses import dataclass

from steersman.meta import ObjectKey
from steersman.testing.apiserver.builtin.defaults import PV_PROTECTION, PVC_PROTECTION
from steersman.testing.apiserver.kinds import GroupResource, KindRegistry
from steersman.testing.apiserver.storage import Storage, Stored
from steersman.testing.apiserver.values import JsonObject, list_at, map_at
from steersman.testing.apiserver.writes import FOREGROUND, ORPHAN, Writer


class _UnknownKind(Exception):
    """An owner's kind is not served, or namespaced while the dependent is not: nothing can be told of it."""


@dataclass(frozen=True, slots=True)
class Collector:
    """Carries deletions through."""

    storage: Storage
    writer: Writer
    kinds: KindRegistry

    def settle(self) -> None:
        """Goes on until nothing more follows from the deletions so far."""
        progress = True
        while progress:
            before, removed = self.storage.version, self.storage.take_removed()
            for gone in removed:
                for dependent in self.storage.dependents(gone.uid):
                    self._consider(dependent)
            for uid in self.storage.deleting():
                stored = self.storage.by_uid(uid)
                if stored is not None:
                    self._advance(stored)
            progress = bool(removed) or self.storage.version != before

    def sweep(self) -> None:
        """Deletes every object whose owners are all gone, also those that never had any; then ``settle``."""
        for stored in self.storage.all():
            if self.storage.get(stored.collection, stored.key) is stored:
                self._consider(stored)
        self.settle()

    def written(self, stored: Stored) -> None:
        """Collects ``stored`` where an owner is not where it looks for it, in its own namespace and by its kind.

        Owners that nobody has heard of are left to ``sweep``: tests name such ones.
        """
        known = (o for o in _owners(stored) if self.storage.by_uid(o.get("uid", "")) is not None)
        try:
            misplaced = any(self._owner(stored, o) is None for o in known)
        except _UnknownKind:
            return
        if misplaced:
            self._consider(stored)

    def _consider(self, item: Stored) -> None:
        """Deletes ``item`` where it has lost all its owners, or these wait for it: attemptToDeleteItem."""
        references = _owners(item)
        if item.is_deleting or not references:
            return
        try:
            found = [(r, self._owner(item, r)) for r in references]
        except _UnknownKind:
            return
        solid = [r for r, owner in found if owner is not None and not _waits(owner)]
        if solid:
            if len(solid) < len(references):
                self.writer.edit_metadata(item, {"ownerReferences": solid})
            return
        dependents = self.storage.dependents(item.uid)
        if dependents and any(owner is not None for _, owner in found):
            if any(_waits(d) for d in dependents):
                # A cycle, perhaps: it must not wait for itself.
                free = [{**r, "blockOwnerDeletion": False} for r in references]
                item = self.writer.edit_metadata(item, {"ownerReferences": free})
            self.writer.delete(item, "Foreground")
        else:
            told = {ORPHAN, FOREGROUND} & set(item.finalizers)
            self.writer.delete(item, None if told else "Background")

    def _owner(self, item: Stored, reference: JsonObject) -> Stored | None:
        """The object that ``reference`` names as it stands in ``item``; None where it is dangling."""
        kind = self.kinds.named(reference.get("apiVersion", ""), reference.get("kind", ""))
        if kind is None or (kind.resource.namespaced and not item.key.namespace):
            raise _UnknownKind
        namespace = item.key.namespace if kind.resource.namespaced else ""
        found = self.storage.get(kind.collection, ObjectKey(namespace, reference.get("name", "")))
        return found if found is not None and found.uid == reference.get("uid") else None

    def _advance(self, stored: Stored) -> None:
        if ORPHAN in stored.finalizers:
            for dependent in self.storage.dependents(stored.uid):
                kept = [o for o in _owners(dependent) if o.get("uid") != stored.uid]
                self.writer.edit_metadata(dependent, {"ownerReferences": kept})
            self._release(stored, ORPHAN)
        elif FOREGROUND in stored.finalizers:
            self._delete_dependents(stored)
        elif stored.collection == ("", "namespaces"):
            self._empty_namespace(stored)
        elif PVC_PROTECTION in stored.finalizers:
            self._release_unused_claim(stored)
        elif PV_PROTECTION in stored.finalizers and map_at(stored.object, "status").get("phase") != "Bound":
            self._release(stored, PV_PROTECTION)

    def _delete_dependents(self, owner: Stored) -> None:
        for dependent in self.storage.dependents(owner.uid):
            self._consider(dependent)
        if not any(_blocks(d, owner.uid) for d in self.storage.dependents(owner.uid)):
            self._release(owner, FOREGROUND)

    def _empty_namespace(self, namespace: Stored) -> None:
        name = namespace.key.name
        content = [s for s in self.storage.all() if s.key.namespace == name]
        for stored in content:
            if not stored.is_deleting:
                self.writer.delete(stored, "Background", grace=0)
        if not any(s.key.namespace == name for s in self.storage.all()):
            spec = {k: v for k, v in namespace.object.get("spec", {}).items() if k != "finalizers"}
            self.writer.replace(namespace, {**namespace.object, "spec": spec}, namespace.managers)

    def _release_unused_claim(self, claim: Stored) -> None:
        pods = self.storage.list(GroupResource("", "pods"), claim.key.namespace)
        if not any(_mounts(pod, claim.key.name) for pod in pods):
            self._release(claim, PVC_PROTECTION)

    def _release(self, stored: Stored, finalizer: str) -> None:
        current = self.storage.get(stored.collection, stored.key)
        if current is not None and current.uid == stored.uid:
            left = [f for f in current.finalizers if f != finalizer]
            self.writer.edit_metadata(current, {"finalizers": left})


def _owners(stored: Stored) -> list[JsonObject]:
    return stored.object["metadata"].get("ownerReferences") or []


def _waits(owner: Stored) -> bool:
    """Whether it goes after its dependents."""
    return owner.is_deleting and FOREGROUND in owner.finalizers


def _mounts(pod: Stored, claim: str) -> bool:
    if pod.object.get("status", {}).get("phase") in ("Succeeded", "Failed"):
        return False
    volumes = list_at(pod.object.get("spec"), "volumes")
    return any(map_at(v, "persistentVolumeClaim").get("claimName") == claim for v in volumes)


def _blocks(dependent: Stored, uid: str) -> bool:
    return any(o.get("uid") == uid and o.get("blockOwnerDeletion") for o in _owners(dependent))
