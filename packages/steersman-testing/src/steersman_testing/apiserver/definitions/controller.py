"""What the server itself does about definitions: kinds come, change and go with them.

It happens within the request that causes it. Source: ``pkg/controller`` of ``k8s.io/apiextensions-apiserver``.
"""

from __future__ import annotations

from dataclasses import dataclass

from steersman_testing.apiserver.definitions.acceptance import (
    COMPLETED,
    CRD_CLEANUP,
    IN_PROGRESS,
    NEVER_ESTABLISHED,
    accepted_status,
    with_condition,
)
from steersman_testing.apiserver.definitions.crds import is_true, kinds_of
from steersman_testing.apiserver.fields.ownership import FieldChange, ManagerKey, Managers, Reach, own_changes
from steersman_testing.apiserver.fields.shapes import BuiltinShape
from steersman_testing.apiserver.kinds import DEFINITIONS, GroupResource, KindRegistry
from steersman_testing.apiserver.storage import Storage, Stored
from steersman_testing.apiserver.values import JsonObject
from steersman_testing.apiserver.writes import Writer

_STATUS = ManagerKey("kube-apiserver", "Update", "status", "apiextensions.k8s.io/v1")
_SHAPE = BuiltinShape(("CustomResourceDefinition",))
_REACH = Reach(roots=frozenset({("f:status",), ("f:metadata",)}))


@dataclass(frozen=True, slots=True)
class DefinitionController:
    """Serves kinds as definitions tell, and carries the deletion of definitions through."""

    storage: Storage
    writer: Writer
    kinds: KindRegistry

    def serve(self, definition: Stored) -> None:
        """Serves what ``definition`` says now, after it was written."""
        obj = definition.object
        group = obj["spec"]["group"]
        others = [s.object for s in self._group(group) if s.key != definition.key]
        status = accepted_status(obj, others, self.writer.timestamp())
        self.kinds.remove(GroupResource(group, obj["spec"]["names"]["plural"]))
        for kind in kinds_of({**obj, "status": status}):
            self.kinds.add(kind)
        if status != obj.get("status"):
            # Comes here again by itself, and finds nothing to do.
            self._write_status(definition, status)
            self._reconsider(group)

    def _group(self, group: str) -> list[Stored]:
        return [s for s in self.storage.list(DEFINITIONS) if s.object["spec"]["group"] == group]

    def _reconsider(self, group: str) -> None:
        """Lets the definitions of ``group`` have names that others do not have any more."""
        for stored in self._group(group):
            if stored.object["spec"]["names"] != stored.object.get("status", {}).get("acceptedNames"):
                self.serve(stored)

    def _write_status(self, stored: Stored, status: JsonObject) -> Stored:
        return self._write(stored, {**stored.object, "status": status})

    def _write(self, stored: Stored, obj: JsonObject) -> Stored:
        return self.writer.replace(stored, obj, self._owned(stored, obj))

    def _owned(self, stored: Stored, obj: JsonObject) -> Managers:
        if not stored.managers:
            return stored.managers
        change = FieldChange(stored.object, obj, _SHAPE, _STATUS.api_version)
        return own_changes(stored.managers, _STATUS, change, time=self.writer.timestamp(), reach=_REACH)

    def settle(self) -> None:
        """Goes on with the definitions that are being deleted: their objects go first."""
        for uid in self.storage.deleting():
            stored = self.storage.by_uid(uid)
            if stored is not None and stored.collection == DEFINITIONS and CRD_CLEANUP in stored.finalizers:
                self._delete(stored)

    def _delete(self, definition: Stored) -> None:
        spec, now = definition.object["spec"], self.writer.timestamp()
        collection = GroupResource(spec["group"], spec["names"]["plural"])
        status: JsonObject = definition.object.get("status", {})
        if not is_true(definition.object, "Established"):
            self._release(definition, with_condition(status, NEVER_ESTABLISHED, now))
            return
        status = with_condition(status, IN_PROGRESS, now)
        definition = self._write_status(definition, status)
        for stored in self.storage.list(collection):
            if not stored.is_deleting:
                self.writer.delete(stored)
        if not self.storage.list(collection):
            self._release(definition, with_condition(status, COMPLETED, now))

    def _release(self, definition: Stored, status: JsonObject) -> None:
        meta: JsonObject = dict(definition.object["metadata"])
        meta["finalizers"] = [f for f in definition.finalizers if f != CRD_CLEANUP]
        if not meta["finalizers"]:
            del meta["finalizers"]
        self._write(definition, {**definition.object, "metadata": meta, "status": status})
        spec = definition.object["spec"]
        if self.storage.get(DEFINITIONS, definition.key) is None:
            self.kinds.remove(GroupResource(spec["group"], spec["names"]["plural"]))
            self._reconsider(spec["group"])
