"""Objects returned by the API server: immutable and typed, with complete metadata."""

from __future__ import annotations

from datetime import datetime
from typing import ClassVar

import msgspec

from steersman.meta.frozen import FrozenDict, FrozenStruct
from steersman.meta.resource_names import ApiResource, ObjectKey


class OwnerReference(FrozenStruct):
    """Reference to an owner (``metav1.OwnerReference``).

    The garbage collector deletes an object when it has no owner left.
    """

    api_version: str
    kind: str
    name: str
    uid: str
    controller: bool | None = None
    block_owner_deletion: bool | None = None


class ManagedFieldsEntry(FrozenStruct):
    """Fields owned by a manager (``metav1.ManagedFieldsEntry``).

    Source: "Server-Side Apply".
    """

    manager: str = ""
    operation: str = ""
    subresource: str = ""
    api_version: str = ""
    fields_v1: msgspec.Raw = msgspec.field(default=msgspec.Raw(), name="fieldsV1")
    """The set of fields as JSON, which is parsed on demand."""

    def __hash__(self) -> int:
        return hash((self.manager, self.operation, self.subresource, bytes(self.fields_v1)))


class ObjectMeta(FrozenStruct):
    """Metadata of an object (``metav1.ObjectMeta``).

    A client keeps only the ``managedFields`` entries of its own field manager.
    """

    name: str = ""
    generate_name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    creation_timestamp: datetime | None = None
    deletion_timestamp: datetime | None = None
    deletion_grace_period_seconds: int | None = None
    labels: FrozenDict[str, str] = FrozenDict()
    annotations: FrozenDict[str, str] = FrozenDict()
    finalizers: tuple[str, ...] = ()
    owner_references: tuple[OwnerReference, ...] = ()
    managed_fields: tuple[ManagedFieldsEntry, ...] = ()


class Object(FrozenStruct):
    """Base class of all kinds.

    ``api_resource`` identifies the kind in the API. apiVersion and kind are derived from it.
    """

    api_resource: ClassVar[ApiResource]

    metadata: ObjectMeta = ObjectMeta()

    @property
    def key(self) -> ObjectKey:
        """Namespace and name."""
        return ObjectKey(self.metadata.namespace, self.metadata.name)

    @property
    def controller_reference(self) -> OwnerReference | None:
        """The owner reference with ``controller: true``, or None."""
        return next((o for o in self.metadata.owner_references if o.controller), None)

    def is_controlled_by(self, owner: Object) -> bool:
        """Return True if the controller reference has the UID of ``owner``.

        A recreated owner has another UID. It does not control the objects of its predecessor.
        """
        # No controller_reference: apply calls this for each object.
        for reference in self.metadata.owner_references:
            if reference.controller:
                return reference.uid == owner.metadata.uid
        return False
