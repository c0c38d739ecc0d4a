"""Kinds without a Python type of their own: as plain JSON, or by their metadata alone."""

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
    """An object of which only the metadata is asked for, as ``metav1.PartialObjectMetadata``.

    It costs the API server, the network and the memory a fraction of the whole, and no content of a Secret ever
    enters the process. See ``metadata_only``.
    """


class _Envelope(FrozenStruct):
    metadata: ObjectMeta = ObjectMeta()


class Unstructured(Object):
    """An object as plain JSON, with every field that the server sent. See ``unstructured``.

    Attributes:
        content: the whole object in wire form, apiVersion, kind and metadata included, deeply immutable. Of
            ``managedFields`` a client keeps only the entries of its own field manager.
    """

    content: FrozenDict[str, Any] = FrozenDict()

    @classmethod
    def of(cls, content: Mapping[str, Any]) -> Self:
        """An object of this kind from its wire form; apiVersion and kind may be left out.

        Raises:
            msgspec.ValidationError: the metadata is malformed.
        """
        return cls.decode_wire(msgspec.json.encode(content))

    @classmethod
    def decode_wire(cls, data: bytes | msgspec.Raw) -> Self:
        """The object whose JSON ``data`` is. Raises ``msgspec.ValidationError``."""
        metadata = decode(data, _Envelope).metadata
        names = {"apiVersion": cls.api_resource.api_version, "kind": cls.api_resource.kind}
        # Items of lists come without apiVersion and kind.
        return cls(metadata=metadata, content=frozen_json(names | msgspec.json.decode(data)))

    def to_dict(self) -> dict[str, Any]:
        """A copy of the content that may be changed, for ``of``."""
        return msgspec.json.decode(encode(self.content))

    def to_wire(self) -> FrozenDict[str, Any]:
        """What is sent in place of this object: its content."""
        return self.content

    def __repr__(self) -> str:
        # Logs and tracebacks outlive the secrets that the content may hold.
        return f"{type(self).__name__}({self.key}, resource_version={self.metadata.resource_version!r})"


@cache
def _metadata_kind(resource: ApiResource) -> type[ObjectMetadata]:
    return type(f"{resource.kind}Metadata", (ObjectMetadata,), {"api_resource": resource, "__module__": __name__})


def metadata_only(kind: type[Object] | ApiResource) -> type[ObjectMetadata]:
    """``kind``, to be read by its metadata alone: ``await client.list(metadata_only(Secret))``.

    The same kind always gives the same type, so that a cache holds it once.
    """
    return _metadata_kind(kind if isinstance(kind, ApiResource) else kind.api_resource)


@cache
def unstructured(resource: ApiResource) -> type[Unstructured]:
    """The kind ``resource`` as plain JSON; the same resource always gives the same type."""
    return type(f"Unstructured{resource.kind}", (Unstructured,), {"api_resource": resource, "__module__": __name__})
