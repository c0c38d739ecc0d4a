"""What the controller manager does about deletion: owners' dependents, namespaces' content.

Everything happens within the request that causes it, in a fixed order, so that runs repeat; in a real cluster it
happens some time later. Source: "Garbage Collection", "Use Cascading Deletion", "Namespaces".
"""

from __future__ import annotations

from dataclasses import dataclass

from steersman.testing.apiserver.defaults import PVC_PROTECTION
from steersman.testing.apiserver.kinds import GroupResource
from steersman.testing.apiserver.storage import Storage, Stored
from steersman.testing.apiserver.values import JsonObject, list_at, map_at
from steersman.testing.apiserver.writes import FOREGROUND, ORPHAN, Writer


@dataclass(frozen=True, slots=True)
class Collector:
    """Carries deletions through."""

    storage: Storage
    writer: Writer

    def settle(self) -> None:
        """Goes on until nothing more follows from the deletions so far."""
        progress = True
        while progress:
            progress = False
            for gone in self.storage.take_removed():
                progress = True
                for dependent in self.storage.dependents(gone.uid):
                    self._drop_absent_owners(dependent)
            before = self.storage.version
            for uid in self.storage.deleting():
                stored = self.storage.by_uid(uid)
                if stored is not None:
                    self._advance(stored)
            progress = progress or self.storage.version != before

    def sweep(self) -> None:
        """Deletes every object whose owners are all gone, also those that never had any; then ``settle``."""
        for stored in self.storage.all():
            if _owners(stored) and self.storage.get(stored.collection, stored.key) is stored:
                self._drop_absent_owners(stored)
        self.settle()

    def _drop_absent_owners(self, stored: Stored) -> None:
        owners = _owners(stored)
        present = [o for o in owners if self.storage.by_uid(o.get("uid", "")) is not None]
        if len(present) == len(owners):
            return
        if present:
            self.writer.edit_metadata(stored, {"ownerReferences": present})
        elif not stored.is_deleting:
            self.writer.delete(stored, None if ORPHAN in stored.finalizers else "Background")

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

    def _delete_dependents(self, owner: Stored) -> None:
        for dependent in self.storage.dependents(owner.uid):
            others = [o for o in _owners(dependent) if o.get("uid") != owner.uid]
            solid = [o for o in others if (s := self.storage.by_uid(o.get("uid", ""))) and not s.is_deleting]
            if solid:
                self.writer.edit_metadata(dependent, {"ownerReferences": others})
            elif not dependent.is_deleting:
                self.writer.delete(dependent, "Background")
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


def _mounts(pod: Stored, claim: str) -> bool:
    if pod.object.get("status", {}).get("phase") in ("Succeeded", "Failed"):
        return False
    volumes = list_at(pod.object.get("spec"), "volumes")
    return any(map_at(v, "persistentVolumeClaim").get("claimName") == claim for v in volumes)


def _blocks(dependent: Stored, uid: str) -> bool:
    return any(o.get("uid") == uid and o.get("blockOwnerDeletion") for o in _owners(dependent))
