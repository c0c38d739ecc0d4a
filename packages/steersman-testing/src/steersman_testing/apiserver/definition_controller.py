"""Controllers of CustomResourceDefinitions: serving, naming and deletion.

They run within the request that causes them. Source: ``pkg/controller`` of ``k8s.io/apiextensions-apiserver``.
"""

from __future__ import annotations

from dataclasses import dataclass

from steersman_testing.apiserver.definitions.crds import has_true_condition, served_kinds
from steersman_testing.apiserver.definitions.status import (
    CRD_CLEANUP,
    DELETION_COMPLETED,
    DELETION_IN_PROGRESS,
    NEVER_ESTABLISHED,
    definition_status,
    set_condition,
)
from steersman_testing.apiserver.fields.managed_fields import (
    FieldChange,
    FieldScope,
    ManagedFields,
    ManagerIdentifier,
    update_ownership,
)
from steersman_testing.apiserver.kinds import DEFINITIONS, GroupResource, KindRegistry
from steersman_testing.apiserver.shapes import BuiltinShape
from steersman_testing.apiserver.storage import Storage, StoredObject
from steersman_testing.apiserver.values import JsonObject
from steersman_testing.apiserver.writes import StorageWriter

_STATUS_MANAGER = ManagerIdentifier("kube-apiserver", "Update", "status", "apiextensions.k8s.io/v1")
_SHAPE = BuiltinShape(("CustomResourceDefinition",))
_STATUS_SCOPE = FieldScope(roots=frozenset({("f:status",), ("f:metadata",)}))


@dataclass(frozen=True, slots=True)
class DefinitionController:
    """Serves the kinds of definitions and finalizes deleted definitions."""

    storage: Storage
    writer: StorageWriter
    kinds: KindRegistry

    def serve(self, definition: StoredObject) -> None:
        """Serve the kinds of ``definition`` after a write."""
        obj = definition.object
        group = obj["spec"]["group"]
        others = [s.object for s in self._definitions_in_group(group) if s.key != definition.key]
        status = definition_status(obj, others, self.writer.timestamp())
        self.kinds.remove(GroupResource(group, obj["spec"]["names"]["plural"]))
        for kind in served_kinds({**obj, "status": status}):
            self.kinds.add(kind)
        if status != obj.get("status"):
            # The status update calls this method again, which then finds nothing to do.
            self._write_status(definition, status)
            self._retry_name_conflicts(group)

    def _definitions_in_group(self, group: str) -> list[StoredObject]:
        return [s for s in self.storage.list(DEFINITIONS) if s.object["spec"]["group"] == group]

    def _retry_name_conflicts(self, group: str) -> None:
        """Accept names that other definitions no longer use."""
        for stored in self._definitions_in_group(group):
            if stored.object["spec"]["names"] != stored.object.get("status", {}).get("acceptedNames"):
                self.serve(stored)

    def _write_status(self, stored: StoredObject, status: JsonObject) -> StoredObject:
        return self._write(stored, {**stored.object, "status": status})

    def _write(self, stored: StoredObject, obj: JsonObject) -> StoredObject:
        return self.writer.replace(stored, obj, self._update_managed_fields(stored, obj))

    def _update_managed_fields(self, stored: StoredObject, obj: JsonObject) -> ManagedFields:
        if not stored.managers:
            return stored.managers
        change = FieldChange(stored.object, obj, _SHAPE, _STATUS_MANAGER.api_version)
        return update_ownership(
            stored.managers, _STATUS_MANAGER, change, time=self.writer.timestamp(), scope=_STATUS_SCOPE
        )

    def reconcile_deletions(self) -> None:
        """Finalize deleted definitions after their custom resources."""
        for uid in self.storage.deleting():
            stored = self.storage.by_uid(uid)
            if stored is not None and stored.collection == DEFINITIONS and CRD_CLEANUP in stored.finalizers:
                self._finalize(stored)

    def _finalize(self, definition: StoredObject) -> None:
        spec, now = definition.object["spec"], self.writer.timestamp()
        collection = GroupResource(spec["group"], spec["names"]["plural"])
        status: JsonObject = definition.object.get("status", {})
        if not has_true_condition(definition.object, "Established"):
            self._remove_finalizer(definition, set_condition(status, NEVER_ESTABLISHED, now))
            return
        status = set_condition(status, DELETION_IN_PROGRESS, now)
        definition = self._write_status(definition, status)
        for stored in self.storage.list(collection):
            if not stored.is_deleting:
                self.writer.delete(stored)
        if not self.storage.list(collection):
            self._remove_finalizer(definition, set_condition(status, DELETION_COMPLETED, now))

    def _remove_finalizer(self, definition: StoredObject, status: JsonObject) -> None:
        meta: JsonObject = dict(definition.object["metadata"])
        meta["finalizers"] = [f for f in definition.finalizers if f != CRD_CLEANUP]
        if not meta["finalizers"]:
            del meta["finalizers"]
        self._write(definition, {**definition.object, "metadata": meta, "status": status})
        spec = definition.object["spec"]
        if self.storage.get(DEFINITIONS, definition.key) is None:
            self.kinds.remove(GroupResource(spec["group"], spec["names"]["plural"]))
            self._retry_name_conflicts(spec["group"])
