"""Kinds without a Python type, as plain JSON or metadata only."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any, Self

import msgspec

from steersman.meta.codec import decode, encode
from steersman.meta.frozen import FrozenDict, FrozenStruct
from steersman.meta.go_json import frozen_json
from steersman.meta.object import Object, ObjectMeta
from steersman.meta.resource_names import ApiResource


class ObjectMetadata(Object):
    """Metadata of an object (``metav1.PartialObjectMetadata``). See ``metadata_only``.

    It needs less network traffic and memory than the whole object. The content of a Secret never enters the process.
    """


class _Envelope(FrozenStruct):
    metadata: ObjectMeta = ObjectMeta()


class Unstructured(Object):
    """Object as plain JSON with all fields. See ``unstructured``.

    Attributes:
        content: the whole object in wire form, with apiVersion, kind and metadata. Deeply immutable. A client keeps
            only the ``managedFields`` entries of its own field manager.
    """

    content: FrozenDict[str, Any] = FrozenDict()

    @classmethod
    def of(cls, content: Mapping[str, Any]) -> Self:
        """Create an object of this kind from its wire form.

        Args:
            content: the object. apiVersion and kind are optional.

        Raises:
            msgspec.ValidationError: the metadata is malformed.
        """
        return cls.decode_wire(msgspec.json.encode(content))

    @classmethod
    def decode_wire(cls, data: bytes | msgspec.Raw) -> Self:
        """Decode an object from JSON.

        Raises:
            msgspec.ValidationError: the metadata is malformed.
        """
        metadata = decode(data, _Envelope).metadata
        names = {"apiVersion": cls.api_resource.api_version, "kind": cls.api_resource.kind}
        # List items lack apiVersion and kind.
        return cls(metadata=metadata, content=frozen_json(names | msgspec.json.decode(data)))

    def to_dict(self) -> dict[str, Any]:
        """Return a mutable copy of the content, for ``of``."""
        return msgspec.json.decode(encode(self.content))

    def to_wire(self) -> FrozenDict[str, Any]:
        """Return the content, which requests contain in place of this object."""
        return self.content

    def __repr__(self) -> str:
        # The content may contain secrets, which must not appear in logs and tracebacks.
        return f"{type(self).__name__}({self.key}, resource_version={self.metadata.resource_version!r})"


@cache
def _metadata_kind(resource: ApiResource) -> type[ObjectMetadata]:
    return type(f"{resource.kind}Metadata", (ObjectMetadata,), {"api_resource": resource, "__module__": __name__})


def metadata_only(kind: type[Object] | ApiResource) -> type[ObjectMetadata]:
    """Return a type that reads only the metadata of ``kind``.

    Example: ``await client.list(metadata_only(Secret))``. The same kind always returns the same type, so that the
    cache holds it once.
    """
    return _metadata_kind(kind if isinstance(kind, ApiResource) else kind.api_resource)


@cache
def unstructured(resource: ApiResource) -> type[Unstructured]:
    """Return a type for ``resource`` as plain JSON.

    The same resource always returns the same type.
    """
    return type(f"Unstructured{resource.kind}", (Unstructured,), {"api_resource": resource, "__module__": __name__})
