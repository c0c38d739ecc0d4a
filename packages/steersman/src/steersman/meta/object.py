"""Objects as the API server returns them: immutable, typed, complete in metadata."""

from __future__ import annotations

import re
from datetime import datetime
from functools import lru_cache
from typing import Annotated, ClassVar, Generic, NamedTuple, TypeVar
from urllib.parse import quote

import msgspec

from steersman.meta.condition import Condition
from steersman.meta.custom_resource import ResourceOptions
from steersman.meta.frozen import FrozenDict, FrozenStruct
from steersman.meta.markers import Field

SpecT = TypeVar("SpecT", bound="Spec")
StatusT = TypeVar("StatusT", bound="Status")


class ObjectKey(NamedTuple):
    """Namespace and name; the namespace of a cluster-scoped object is empty."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


class ApiResource(NamedTuple):
    """Where a kind lives in the API: group (empty for core), version, kind, plural, scope."""

    group: str
    version: str
    kind: str
    plural: str
    namespaced: bool = True

    @property
    def api_version(self) -> str:
        """``apps/v1``, or ``v1`` for the core group."""
        return f"{self.group}/{self.version}" if self.group else self.version

    def path(self, key: ObjectKey | None = None, *, namespace: str = "", subresource: str = "") -> str:
        """The URL path of one object (``key``), or of the collection in ``namespace`` (empty: in all).

        Raises:
            ValueError: no object can have this name: it is empty, or would lead to another path. Names often come
                from a user's spec, and a DELETE of the path that an empty one gives deletes the whole collection.
        """
        if key is None:
            return _collection_path(self, namespace)
        name = key.name
        if not _PLAIN_NAME(name):
            if name in ("", ".", "..") or "/" in name or "%" in name:
                raise ValueError(f"{name!r} is not a possible name of a {self.kind}")
            name = quote(name, safe=":@")
        path = f"{_collection_path(self, key.namespace)}/{name}"
        return f"{path}/{subresource}" if subresource else path


_PLAIN_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*").fullmatch


@lru_cache(maxsize=4096)
def _collection_path(resource: ApiResource, namespace: str) -> str:
    prefix = f"/apis/{resource.group}/{resource.version}" if resource.group else f"/api/{resource.version}"
    scope = f"/namespaces/{quote(namespace, safe='')}" if namespace and resource.namespaced else ""
    return f"{prefix}{scope}/{resource.plural}"


class OwnerReference(FrozenStruct):
    """``metav1.OwnerReference``: the object dies with its owners."""

    api_version: str
    kind: str
    name: str
    uid: str
    controller: bool | None = None
    block_owner_deletion: bool | None = None


class ManagedFieldsEntry(FrozenStruct):
    """``metav1.ManagedFieldsEntry``: which fields a manager owns. Source: "Server-Side Apply"."""

    manager: str = ""
    operation: str = ""
    subresource: str = ""
    api_version: str = ""
    fields_v1: msgspec.Raw = msgspec.field(default=msgspec.Raw(), name="fieldsV1")
    """The set of fields, as JSON that is not parsed until somebody asks."""

    def __hash__(self) -> int:
        return hash((self.manager, self.operation, self.subresource, bytes(self.fields_v1)))


class ObjectMeta(FrozenStruct):
    """``metav1.ObjectMeta``. A client keeps of ``managedFields`` only the entries of its own field manager."""

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
    """Base of all kinds. ``api_resource`` says where the kind lives; apiVersion and kind are derived from it."""

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


class Spec(FrozenStruct):
    """Base of the ``spec`` of a custom resource: what the user wants."""


class Status(FrozenStruct):
    """Base of the ``status`` of a custom resource: what is."""

    observed_generation: int | None = None
    """The metadata.generation that this status describes."""
    conditions: Annotated[tuple[Condition, ...], Field(list_map_keys=("type",))] = ()
    """The latest observations of the object's state."""


class Resource(Object, Generic[SpecT, StatusT]):
    """Base of custom resources: ``class WebApp(Resource[WebAppSpec, WebAppStatus])`` under ``@resource(...)``."""

    resource_options: ClassVar[ResourceOptions]

    spec: SpecT
    status: StatusT | None = None
