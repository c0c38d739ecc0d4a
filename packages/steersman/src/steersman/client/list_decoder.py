"""Lists, page by page. Source: "Kubernetes API Concepts", "Retrieving large results sets in chunks"."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, Literal, TypeVar

import msgspec
from msgspec import Struct

from steersman.client.decode import decode_object, decode_response
from steersman.meta import Object, ObjectKey, decode
from steersman.meta.frozen import FrozenStruct

T = TypeVar("T", bound=Object)

DecodeErrorHandler = Callable[[ObjectKey, msgspec.ValidationError], None]
ResourceVersionMatch = Literal["", "Exact", "NotOlderThan"]


class ObjectList(Struct, Generic[T], frozen=True):
    """All objects of a list, whatever number of pages it took, and the version to start a watch from."""

    items: tuple[T, ...]
    resource_version: str


class ObjectPage(Struct, Generic[T], frozen=True):
    """A part of a list.

    Attributes:
        items: the objects.
        sizes: bytes of each one's JSON, in the same order.
        resource_version: that of the whole list, the same on each of its pages.
    """

    items: tuple[T, ...]
    sizes: tuple[int, ...]
    resource_version: str


class _ListMeta(FrozenStruct):
    resource_version: str = ""
    continue_: str = msgspec.field(default="", name="continue")


class _Page(FrozenStruct):
    metadata: _ListMeta = _ListMeta()
    items: list[msgspec.Raw] | None = None


class PeekedMetadata(FrozenStruct):
    """What can be asked of each object, even of one that does not fit its type."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""

    @property
    def key(self) -> ObjectKey:
        return ObjectKey(self.namespace, self.name)


class _MetadataEnvelope(FrozenStruct):
    metadata: PeekedMetadata = PeekedMetadata()


def peek_metadata(raw: bytes | msgspec.Raw) -> PeekedMetadata:
    """Who the object is whose JSON ``raw`` is."""
    return decode(raw, _MetadataEnvelope).metadata


class ObjectDecoder(Generic[T]):
    """Reads the objects of one list or watch.

    Args:
        on_decode_error: called with the key of an object that does not fit ``kind``, in place of an exception.
    """

    def __init__(self, kind: type[T], field_manager: str, on_decode_error: DecodeErrorHandler | None) -> None:
        self._kind = kind
        self._field_manager = field_manager
        self._on_decode_error = on_decode_error

    def decode(self, raw: bytes | msgspec.Raw) -> T | None:
        """The object, or None where it does not fit and that was reported."""
        try:
            return decode_object(raw, self._kind, self._field_manager)
        except msgspec.ValidationError as error:
            if self._on_decode_error is None:
                raise
            self._on_decode_error(peek_metadata(raw).key, error)
            return None

    def decode_page(self, body: bytes) -> tuple[ObjectPage[T], str]:
        """The page that ``body`` is, and the token of the next one; empty after the last."""
        page = decode_response(body, _Page)
        items: list[T] = []
        sizes: list[int] = []
        for raw in page.items or ():
            obj = self.decode(raw)
            if obj is not None:
                items.append(obj)
                sizes.append(len(memoryview(raw)))
        return ObjectPage(tuple(items), tuple(sizes), page.metadata.resource_version), page.metadata.continue_


def list_query(
    label_selector: str = "",
    field_selector: str = "",
    resource_version: str = "",
    resource_version_match: ResourceVersionMatch = "",
) -> dict[str, str]:
    """The query of a list; what is empty is left out."""
    query = {
        "labelSelector": label_selector,
        "fieldSelector": field_selector,
        "resourceVersion": resource_version,
        "resourceVersionMatch": resource_version_match,
    }
    return {k: v for k, v in query.items() if v}
