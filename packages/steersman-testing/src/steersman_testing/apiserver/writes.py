"""The one way by which objects change: finalizers, ownership, no-op detection and dry runs happen here."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Literal

from steersman.meta import ObjectKey
from steersman.observability.runtime import Runtime
from steersman_testing.apiserver.definitions.acceptance import marked_for_deletion
from steersman_testing.apiserver.fields.ownership import Managers, Owned
from steersman_testing.apiserver.kinds import DEFINITIONS, NAMESPACES, GroupResource, Kind
from steersman_testing.apiserver.storage import Storage, Stored
from steersman_testing.apiserver.values import JsonObject, same

Propagation = Literal["Background", "Foreground", "Orphan"]

FOREGROUND = "foregroundDeletion"
ORPHAN = "orphan"
_EVENTS = GroupResource("", "events")
JOBS = GroupResource("batch", "jobs")
_OF_PROPAGATION = {"Foreground": FOREGROUND, "Orphan": ORPHAN}


@dataclass(frozen=True, slots=True)
class Writer:
    """Stores, replaces and deletes objects. ``stored`` is called after each creation and change that was kept."""

    storage: Storage
    runtime: Runtime
    stored: Callable[[Stored], None]

    def timestamp(self, seconds: int = 0) -> str:
        """The time ``seconds`` from now, as the API writes it."""
        moment = self.runtime.clock.now() + timedelta(seconds=seconds)
        # Twice as fast as strftime, and every write asks for it.
        return f"{moment.isoformat()[:19]}Z"

    def create(self, kind: Kind, obj: JsonObject, managers: Managers, *, dry_run: bool = False) -> Stored:
        """Stores a new object."""
        meta = obj["metadata"]
        key = ObjectKey(meta.get("namespace", ""), meta["name"])
        if dry_run:
            return Stored(kind.collection, key, obj, managers, self.storage.version)
        created = self.storage.put(kind.collection, key, obj, managers)
        self.stored(created)
        return created

    def replace(self, old: Stored, obj: JsonObject, managers: Managers, *, dry_run: bool = False) -> Stored:
        """Stores ``obj`` in place of ``old``; does nothing where nothing changes, and removes what is finalized."""
        if same(obj, old.object) and _same_owners(managers, old.managers):
            return old
        candidate = Stored(old.collection, old.key, obj, managers, old.version)
        if dry_run:
            return candidate
        if candidate.is_deleting and not held(candidate):
            # The answer tells the version from before; the event of the removal tells the newer one.
            self.storage.remove(old.collection, old.key)
            return candidate
        replaced = self.storage.put(old.collection, old.key, obj, managers)
        self.stored(replaced)
        return replaced

    def delete(
        self, old: Stored, propagation: Propagation | None = None, *, grace: int | None = None, dry_run: bool = False
    ) -> tuple[Stored, bool]:
        """Removes ``old``, or marks it where something holds it; tells whether it is gone."""
        if old.collection == DEFINITIONS and not old.is_deleting:
            marked = marked_for_deletion(old.object, self.timestamp())
            return self.replace(old, marked, old.managers, dry_run=dry_run), False
        finalizers = _finalizers_for_deletion(old, propagation)
        period = _grace_period(old, grace)
        meta: JsonObject = {**old.object["metadata"], "finalizers": finalizers}
        if not finalizers:
            del meta["finalizers"]
        waiting = bool(finalizers) or period > 0 or old.collection == NAMESPACES
        if not waiting:
            removed = old if dry_run else self.storage.remove(old.collection, old.key)
            return (self._ended(removed) if old.collection == ("", "pods") else removed), True
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

    def _ended(self, pod: Stored) -> Stored:
        """What a deletion without delay answers of a pod, which is marked for the moment."""
        meta: JsonObject = {**pod.object["metadata"], "deletionGracePeriodSeconds": 0}
        if not pod.is_deleting:
            meta |= {"deletionTimestamp": self.timestamp(), "generation": meta.get("generation", 0) + 1}
        return Stored(pod.collection, pod.key, {**pod.object, "metadata": meta}, pod.managers, pod.version)


def held(stored: Stored) -> bool:
    """Whether a deleted object must stay for now: finalizers, a grace period, or a namespace's content."""
    meta = stored.object["metadata"]
    in_use = stored.collection == NAMESPACES and bool(stored.object.get("spec", {}).get("finalizers"))
    return bool(stored.finalizers) or in_use or meta.get("deletionGracePeriodSeconds", 0) > 0


def _finalizers_for_deletion(old: Stored, propagation: Propagation | None) -> list[str]:
    finalizers = list(old.finalizers)
    if old.collection == _EVENTS:
        # They are nobody's owners.
        return [f for f in finalizers if f not in (FOREGROUND, ORPHAN)]
    if propagation is None and old.collection == JOBS and not {FOREGROUND, ORPHAN} & set(finalizers):
        propagation = "Orphan"
    if propagation is not None:
        wanted = _OF_PROPAGATION.get(propagation)
        finalizers = [f for f in finalizers if f not in (FOREGROUND, ORPHAN) or f == wanted]
        if wanted is not None and wanted not in finalizers:
            finalizers.append(wanted)
    return finalizers


def _grace_period(old: Stored, wanted: int | None) -> int:
    """Seconds; more than 0 only for a pod that runs on some node, whose kubelet ends the deletion."""
    spec = old.object.get("spec", {})
    phase = old.object.get("status", {}).get("phase")
    if old.collection != ("", "pods") or not spec.get("nodeName") or phase in ("Succeeded", "Failed"):
        return 0
    return int(spec.get("terminationGracePeriodSeconds", 30)) if wanted is None else wanted


def _same_owners(left: Managers, right: Managers) -> bool:
    if left is right:
        return True
    return _untimed(left) == _untimed(right)


def _untimed(managers: Managers) -> dict[object, Owned]:
    return {k: o._replace(time="") for k, o in managers.items()}
