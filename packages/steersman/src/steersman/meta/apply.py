"""What we send in server-side apply: only the fields that were set, so that nobody else's are seized.

Source: "Server-Side Apply" in the Kubernetes documentation (KEP-555).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar, Generic, TypeVar

from msgspec import UNSET, UnsetType

from steersman.meta.frozen import FrozenStruct
from steersman.meta.object import Object
from steersman.meta.resource_names import ObjectKey

ObjectT = TypeVar("ObjectT", bound=Object)


class OwnerReferenceApply(FrozenStruct):
    """Apply form of ``OwnerReference``."""

    api_version: str
    kind: str
    name: str
    uid: str
    controller: bool | UnsetType = UNSET
    block_owner_deletion: bool | UnsetType = UNSET


class ObjectMetaApply(FrozenStruct):
    """The metadata that a manager may declare."""

    name: str
    namespace: str | UnsetType = UNSET
    labels: Mapping[str, str] | UnsetType = UNSET
    annotations: Mapping[str, str] | UnsetType = UNSET
    finalizers: Sequence[str] | UnsetType = UNSET
    owner_references: Sequence[OwnerReferenceApply] | UnsetType = UNSET


class TemplateMetaApply(FrozenStruct):
    """The metadata of objects that a controller makes from a template, such as a Deployment's pods: no name."""

    labels: Mapping[str, str] | UnsetType = UNSET
    annotations: Mapping[str, str] | UnsetType = UNSET
    finalizers: Sequence[str] | UnsetType = UNSET


class ApplyConfiguration(FrozenStruct, Generic[ObjectT]):
    """Base of the generated apply types (``DeploymentApply``, …). Every field is UNSET until set."""

    read_type: ClassVar[type[Object]]

    metadata: ObjectMetaApply

    @property
    def key(self) -> ObjectKey:
        """Namespace and name of the object that this configures."""
        namespace = self.metadata.namespace
        return ObjectKey("" if namespace is UNSET else namespace, self.metadata.name)
