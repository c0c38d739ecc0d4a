"""Base types of server-side apply. Requests contain only the set fields.

Users import ``ObjectMeta``, ``TemplateMeta`` and ``OwnerReference`` from ``steersman.api.apply.meta``.
Fields of other managers keep their owner.

Source: "Server-Side Apply" in the Kubernetes documentation (KEP-555).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Generic, NoReturn, TypeVar

from msgspec import UNSET, UnsetType

from steersman.meta.frozen import FrozenStruct
from steersman.meta.object import Object
from steersman.meta.resource_names import ObjectKey

ObjectT = TypeVar("ObjectT", bound=Object)


class OwnerReference(FrozenStruct):
    """Owner that a manager declares."""

    api_version: str
    kind: str
    name: str
    uid: str
    controller: bool | UnsetType = UNSET
    block_owner_deletion: bool | UnsetType = UNSET


class ObjectMeta(FrozenStruct):
    """Metadata that a manager may declare."""

    name: str
    namespace: str | UnsetType = UNSET
    labels: Mapping[str, str] | UnsetType = UNSET
    annotations: Mapping[str, str] | UnsetType = UNSET
    finalizers: Sequence[str] | UnsetType = UNSET
    owner_references: Sequence[OwnerReference] | UnsetType = UNSET


class TemplateMeta(FrozenStruct):
    """Metadata of a template, such as the pod template of a Deployment.

    It has no name, because the controller generates the names.
    """

    labels: Mapping[str, str] | UnsetType = UNSET
    annotations: Mapping[str, str] | UnsetType = UNSET
    finalizers: Sequence[str] | UnsetType = UNSET


class _NoApiResource:
    """Descriptor that rejects an apply type in place of its read type."""

    def __get__(self, instance: object, owner: type[ApplyConfiguration[Any]]) -> NoReturn:
        read_type = owner.read_type
        raise AttributeError(
            f"{owner.__module__}.{owner.__name__} is an apply type: to read or watch objects, use "
            f"{read_type.__module__}.{read_type.__name__}"
        )


class ApplyConfiguration(FrozenStruct, Generic[ObjectT]):
    """Base of the apply types, such as ``apps.Deployment``. Every field is UNSET until set."""

    read_type: ClassVar[type[Object]]
    api_resource = _NoApiResource()

    metadata: ObjectMeta

    @property
    def key(self) -> ObjectKey:
        """Namespace and name of the configured object."""
        namespace = self.metadata.namespace
        return ObjectKey("" if namespace is UNSET else namespace, self.metadata.name)
