"""What the controller manager does about deletion: owners' dependents, namespaces' content, volumes and claims.

Everything happens within the request that causes it, in a fixed order, so that runs repeat; in a real cluster it
happens some time later. Source: "Garbage Collection", "Use Cascading Deletion", "Namespaces";
``pkg/controller/garbagecollector`` of Kubernetes 1.36, whose names for the states of an owner these are.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from steersman.meta import ObjectKey
from steersman_testing.apiserver.access.authorization import User
from steersman_testing.apiserver.builtin.defaults import PV_PROTECTION, PVC_PROTECTION
from steersman_testing.apiserver.controller_requests import (
    GARBAGE_COLLECTOR,
    PV_PROTECTOR,
    PVC_PROTECTOR,
    ControllerRequests,
)
from steersman_testing.apiserver.kinds import GroupResource, KindRegistry
from steersman_testing.apiserver.storage import Storage, Stored
from steersman_testing.apiserver.values import JsonObject, list_at, map_at
from steersman_testing.apiserver.writes import FOREGROUND, ORPHAN


class _UnknownKind(Exception):
    """An owner's kind is not served, or namespaced while the dependent is not: nothing can be told of it."""


@dataclass(frozen=True, slots=True)
class Collector:
    """Carries deletions through.

    Attributes:
        unfinished: UIDs of objects that may have lost an owner and are to be looked at; of those that webhooks keep,
            too.
    """

    storage: Storage
    kinds: KindRegistry
    requests: ControllerRequests
    unfinished: dict[str, None] = field(default_factory=dict[str, None])

    def settle(self) -> None:
        """Goes on until nothing more follows from the deletions so far that webhooks have let pass."""
        again, progress = list(self.unfinished), True
        while progress:
            before, removed = self.storage.version, self.storage.take_removed()
            bereft = [dependent.uid for gone in removed for dependent in self.storage.dependents(gone.uid)]
            self.unfinished.update(dict.fromkeys(bereft))
            for uid in (*again, *bereft):
                item = self.storage.by_uid(uid)
                if item is None or self._consider(item):
                    self.unfinished.pop(uid, None)
            again = []
            for uid in self.storage.deleting():
                stored = self.storage.by_uid(uid)
                if stored is not None:
                    self._advance(stored)
            progress = bool(removed) or self.storage.version != before

    def sweep(self) -> None:
        """Has ``settle`` look at every object, also at those whose owners never were."""
        self.unfinished.update((stored.uid, None) for stored in self.storage.all() if _owners(stored))

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
            # Not yet: the write that this is part of is not done.
            self.unfinished[stored.uid] = None

    def _consider(self, item: Stored) -> bool:
        """Deletes ``item`` where it has lost all its owners, or these wait for it: attemptToDeleteItem.

        False where that could not be done.
        """
        references = _owners(item)
        if item.is_deleting or not references:
            return True
        try:
            found = [(r, self._owner(item, r)) for r in references]
        except _UnknownKind:
            return True
        solid = [r for r, owner in found if owner is not None and not _waits(owner)]
        if solid:
            return len(solid) == len(references) or self._edit(item, {"ownerReferences": solid})
        dependents = self.storage.dependents(item.uid)
        if dependents and any(owner is not None for _, owner in found):
            if any(_waits(d) for d in dependents):
                # A cycle, perhaps: it must not wait for itself.
                free = [{**r, "blockOwnerDeletion": False} for r in references]
                changed = self.requests.edit(item, {"ownerReferences": free})
                if changed is None:
                    return False
                item = changed.origin or changed
            return self.requests.delete(item, "Foreground")
        if ORPHAN in item.finalizers:
            return self.requests.delete(item, "Orphan")
        return self.requests.delete(item, "Foreground" if FOREGROUND in item.finalizers else "Background")

    def _edit(self, item: Stored, changes: JsonObject, user: User = GARBAGE_COLLECTOR) -> bool:
        return self.requests.edit(item, changes, user) is not None

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
            self._free_dependents(stored)
        elif FOREGROUND in stored.finalizers:
            self._delete_dependents(stored)
        elif stored.collection == ("", "namespaces"):
            self._empty_namespace(stored)
        elif PVC_PROTECTION in stored.finalizers:
            self._release_unused_claim(stored)
        elif PV_PROTECTION in stored.finalizers and map_at(stored.object, "status").get("phase") != "Bound":
            self._release(stored, PV_PROTECTION, PV_PROTECTOR)

    def _free_dependents(self, owner: Stored) -> None:
        dependents = self.storage.dependents(owner.uid)
        kept = {d.uid: [o for o in _owners(d) if o.get("uid") != owner.uid] for d in dependents}
        edited = [self._edit(d, {"ownerReferences": kept[d.uid]}) for d in dependents]
        if all(edited):
            self._release(owner, ORPHAN)

    def _delete_dependents(self, owner: Stored) -> None:
        for dependent in self.storage.dependents(owner.uid):
            self._consider(dependent)
        if not any(_blocks(d, owner.uid) for d in self.storage.dependents(owner.uid)):
            self._release(owner, FOREGROUND)

    def _empty_namespace(self, namespace: Stored) -> None:
        name = namespace.key.name
        kept: set[GroupResource] = set()
        for stored in [s for s in self.storage.all() if s.key.namespace == name]:
            if stored.is_deleting or stored.collection in kept:
                continue
            if not self.requests.empty(stored):
                # The first refusal ends the deletion of a collection.
                kept.add(stored.collection)
        if not any(s.key.namespace == name for s in self.storage.all()):
            self.requests.end(namespace)

    def _release_unused_claim(self, claim: Stored) -> None:
        pods = self.storage.list(GroupResource("", "pods"), claim.key.namespace)
        if not any(_mounts(pod, claim.key.name) for pod in pods):
            self._release(claim, PVC_PROTECTION, PVC_PROTECTOR)

    def _release(self, stored: Stored, finalizer: str, user: User = GARBAGE_COLLECTOR) -> None:
        current = self.storage.get(stored.collection, stored.key)
        if current is not None and current.uid == stored.uid:
            left = [f for f in current.finalizers if f != finalizer]
            self._edit(current, {"finalizers": left}, user)


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
