"""Base types of server-side apply. Requests contain only the set fields.

Fields of other managers keep their owner.

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
    """Metadata that a manager may declare."""

    name: str
    namespace: str | UnsetType = UNSET
    labels: Mapping[str, str] | UnsetType = UNSET
    annotations: Mapping[str, str] | UnsetType = UNSET
    finalizers: Sequence[str] | UnsetType = UNSET
    owner_references: Sequence[OwnerReferenceApply] | UnsetType = UNSET


class TemplateMetaApply(FrozenStruct):
    """Metadata of a template, such as the pod template of a Deployment.

    It has no name, because the controller generates the names.
    """

    labels: Mapping[str, str] | UnsetType = UNSET
    annotations: Mapping[str, str] | UnsetType = UNSET
    finalizers: Sequence[str] | UnsetType = UNSET


class ApplyConfiguration(FrozenStruct, Generic[ObjectT]):
    """Base of the generated apply types (``DeploymentApply``, …). Every field is UNSET until set."""

    read_type: ClassVar[type[Object]]

    metadata: ObjectMetaApply

    @property
    def key(self) -> ObjectKey:
        """Namespace and name of the configured object."""
        namespace = self.metadata.namespace
        return ObjectKey("" if namespace is UNSET else namespace, self.metadata.name)
