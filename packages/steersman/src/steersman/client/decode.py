"""Decoding of API server responses: objects, pages of lists, and watch events."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, Generic, Literal, TypeVar

import msgspec
from msgspec import Struct
from msgspec.structs import force_setattr

from steersman.errors import ApiStatus, ConnectionFailed, error_from_status
from steersman.meta import FrozenDict, ManagedFieldsEntry, Object, ObjectKey, ObjectMetadata, Unstructured, decode
from steersman.meta.frozen import FrozenStruct
from steersman.meta.json_members import json_members, scalar_members

R = TypeVar("R")
T = TypeVar("T", bound=Object)

_METADATA_ACCEPT = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
_METADATA_LIST_ACCEPT = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"


@cache
def accept_header(kind: type[Object], *, is_list: bool = False) -> str:
    """Return the ``Accept`` header to read objects of ``kind``.

    Source: KEP-2334, and "Kubernetes API Concepts", section "Metadata-only fetches".
    """
    if not issubclass(kind, ObjectMetadata):
        return "application/json"
    return _METADATA_LIST_ACCEPT if is_list else _METADATA_ACCEPT


def decode_response(raw: bytes | msgspec.Raw, kind: type[R]) -> R:
    """Decode JSON to ``kind``.

    Args:
        raw: JSON of the response.
        kind: type to decode to.

    Raises:
        ConnectionFailed: ``raw`` is not JSON, for example the login page of a proxy.
        msgspec.ValidationError: ``raw`` does not match ``kind``.
    """
    try:
        return decode(raw, kind)
    except msgspec.ValidationError:
        raise
    except msgspec.DecodeError as error:
        raise ConnectionFailed(
            f"the response is not JSON, so it does not come from the API server: {error}"
        ) from error


def decode_object(raw: bytes | msgspec.Raw, kind: type[T], field_managers: frozenset[str]) -> T:
    """Decode JSON to an object without the ``managedFields`` of other managers.

    They are the larger part of many objects, and Steersman does not use them. The entries of ``field_managers`` are
    kept, because they determine the changes of a server-side apply.

    Args:
        raw: JSON of the object.
        kind: type to decode to.
        field_managers: managers whose ``managedFields`` are kept.

    Raises:
        ConnectionFailed: ``raw`` is not JSON.
        msgspec.ValidationError: ``raw`` does not match ``kind``.
    """
    obj = decode_response(raw, kind)
    if obj.metadata.managed_fields:
        own_entries = tuple([_copy_fields(e) for e in obj.metadata.managed_fields if e.manager in field_managers])
        force_setattr(obj.metadata, "managed_fields", own_entries)
        if isinstance(obj, Unstructured):
            force_setattr(obj, "content", _keep_managers(field_managers, obj.content))
    return obj


def _copy_fields(entry: ManagedFieldsEntry) -> ManagedFieldsEntry:
    # Raw is a view that keeps the whole response in memory. The entry is not shared yet, so it can be changed.
    force_setattr(entry, "fields_v1", msgspec.Raw(bytes(entry.fields_v1)))
    return entry


def _keep_managers(managers: frozenset[str], content: FrozenDict[str, Any]) -> FrozenDict[str, Any]:
    metadata: FrozenDict[str, Any] = content["metadata"]
    own_entries = tuple(e for e in metadata["managedFields"] if e.get("manager") in managers)
    kept_metadata = {k: v for k, v in metadata.items() if k != "managedFields"} | (
        {"managedFields": own_entries} if own_entries else {}
    )
    return FrozenDict({**content, "metadata": FrozenDict(kept_metadata)})


DecodeErrorHandler = Callable[[ObjectKey, msgspec.ValidationError], None]
ResourceVersionMatch = Literal["", "Exact", "NotOlderThan"]


class ObjectList(Struct, Generic[T], frozen=True):
    """All objects of a list, from all its pages.

    Attributes:
        items: the objects.
        resource_version: resourceVersion from which to start a watch.
    """

    items: tuple[T, ...]
    resource_version: str


class ObjectPage(Struct, Generic[T], frozen=True):
    """A part of a list.

    Attributes:
        items: the objects.
        sizes: size of the JSON of each object in bytes, in the same order.
        resource_version: resourceVersion of the list, the same on all pages.
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
    """Metadata that can be decoded if the object violates its type."""

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
    """Decode only the metadata that identifies an object.

    The object may be nested too deeply for ``decode``.
    """
    try:
        return decode(raw, _MetadataEnvelope).metadata
    except msgspec.ValidationError:
        # The members after the metadata are not read.
        metadata = next((value for key, value in json_members(raw) if key == "metadata"), b"{}")
        return decode(scalar_members(metadata), PeekedMetadata)


class ObjectDecoder(Generic[T]):
    """Decodes the objects of one list or watch.

    Args:
        kind: type of the objects.
        field_managers: managers whose ``managedFields`` are kept.
        on_decode_error: receives the key of each object that does not match ``kind``, and the error. Without it, the
            error is raised.
    """

    def __init__(
        self, kind: type[T], field_managers: frozenset[str], on_decode_error: DecodeErrorHandler | None
    ) -> None:
        self._kind = kind
        self._field_managers = field_managers
        self._on_decode_error = on_decode_error

    def decode(self, raw: bytes | msgspec.Raw) -> T | None:
        """Return the object, or None if ``on_decode_error`` has received its error."""
        try:
            return decode_object(raw, self._kind, self._field_managers)
        except msgspec.ValidationError as error:
            if self._on_decode_error is None:
                raise
            self._on_decode_error(peek_metadata(raw).key, error)
            return None

    def decode_page(self, body: bytes) -> tuple[ObjectPage[T], str]:
        """Return the page and its continue token, empty on the last page."""
        page = _decode_page(body)
        items: list[T] = []
        sizes: list[int] = []
        for raw in page.items or ():
            obj = self.decode(raw)
            if obj is not None:
                items.append(obj)
                sizes.append(len(memoryview(raw)))
        return ObjectPage(tuple(items), tuple(sizes), page.metadata.resource_version), page.metadata.continue_


def _decode_page(body: bytes) -> _Page:
    try:
        return decode_response(body, _Page)
    except msgspec.ValidationError:
        # One item may be nested too deeply for the parser.
        members = dict(json_members(body))
        items = [msgspec.Raw(item) for _, item in json_members(members.get("items", b"[]"))]
        return _Page(metadata=decode(members.get("metadata", b"{}"), _ListMeta), items=items)


def list_query(
    label_selector: str = "",
    field_selector: str = "",
    resource_version: str = "",
    resource_version_match: ResourceVersionMatch = "",
) -> dict[str, str]:
    """Return the query parameters of a list without empty values."""
    query = {
        "labelSelector": label_selector,
        "fieldSelector": field_selector,
        "resourceVersion": resource_version,
        "resourceVersionMatch": resource_version_match,
    }
    return {k: v for k, v in query.items() if v}


EventType = Literal["ADDED", "MODIFIED", "DELETED", "BOOKMARK"]
SkipDecode = Callable[[bytes | msgspec.Raw], bool]

_INITIAL_EVENTS_END = "k8s.io/initial-events-end"
_CHANGE_TYPES: dict[bytes, EventType] = {b"ADDED": "ADDED", b"MODIFIED": "MODIFIED", b"DELETED": "DELETED"}
_EVENT_PREFIX = b'{"type":"'
_OBJECT_SEPARATOR = b'","object":'


class WatchEvent(msgspec.Struct, Generic[T], frozen=True, gc=False):
    """One change of an object, or a bookmark.

    Attributes:
        type: kind of the change. A ``BOOKMARK`` only reports the resourceVersion that the watch has reached.
        object: the object. None for a bookmark, for an object that ``skip_decode`` skipped, and for an object whose
            error ``on_decode_error`` received.
        key: key of the object, also if ``object`` is None. Empty for a bookmark.
        resource_version: resourceVersion that the watch has reached.
        uid: UID of the object, also if ``object`` is None. Empty for a bookmark.
        size: size of the object's JSON in bytes, 0 for a bookmark.
        initial_events_end: True for the bookmark after the last object that existed when the watch began.
    """

    type: EventType
    object: T | None
    key: ObjectKey
    resource_version: str
    uid: str = ""
    size: int = 0
    initial_events_end: bool = False


class _BookmarkMeta(FrozenStruct):
    resource_version: str = ""
    annotations: dict[str, str] | None = None


class _Bookmark(FrozenStruct):
    metadata: _BookmarkMeta = _BookmarkMeta()


class EventDecoder(Generic[T]):
    """Decodes the lines of one watch.

    Args:
        decoder: decodes the objects.
        skip_decode: receives the JSON of an ADDED or MODIFIED object. It returns True to skip its decoding.
    """

    def __init__(self, decoder: ObjectDecoder[T], skip_decode: SkipDecode | None) -> None:
        self._decoder = decoder
        self._skip_decode = skip_decode

    def decode(self, line: bytes) -> WatchEvent[T] | None:
        """Return the watch event, or None for empty lines and unknown types.

        Raises:
            ApiError: the server ends the watch with an error, such as Expired.
            ConnectionFailed: the line is incomplete.
            msgspec.ValidationError: the object does not match its type, and there is no ``on_decode_error``.
        """
        if not line:
            return None
        try:
            type_name, raw = _split_event(line)
            event_type = _CHANGE_TYPES.get(type_name)
            if event_type is not None:
                return self._decode_change(event_type, raw)
            if type_name == b"ERROR":
                raise error_from_status(msgspec.json.decode(raw, type=ApiStatus))
            return _decode_bookmark(raw) if type_name == b"BOOKMARK" else None
        except msgspec.ValidationError:
            raise
        except (msgspec.DecodeError, ConnectionFailed) as error:
            raise ConnectionFailed(f"the watch ended with an incomplete line: {error}") from error

    def _decode_change(self, event_type: EventType, raw: bytes | msgspec.Raw) -> WatchEvent[T]:
        size = len(memoryview(raw))
        if self._skip_decode is not None and event_type != "DELETED" and self._skip_decode(raw):
            return _undecoded_event(event_type, peek_metadata(raw), size)
        obj = self._decoder.decode(raw)
        if obj is None:
            return _undecoded_event(event_type, peek_metadata(raw), size)
        meta = obj.metadata
        return WatchEvent(event_type, obj, obj.key, meta.resource_version, meta.uid, size)


def _split_event(line: bytes) -> tuple[bytes, bytes | msgspec.Raw]:
    # The API server writes all events in this form, in which the object can be found without parsing JSON.
    end = line.find(b'"', len(_EVENT_PREFIX))
    if line.startswith(_EVENT_PREFIX) and line.startswith(_OBJECT_SEPARATOR, end) and line.endswith(b"}"):
        return line[len(_EVENT_PREFIX) : end], line[end + len(_OBJECT_SEPARATOR) : -1]
    members = dict(json_members(line))
    return msgspec.json.decode(members.get("type", b'""'), type=str).encode(), members.get("object", b"{}")


def _undecoded_event(event_type: EventType, metadata: PeekedMetadata, size: int) -> WatchEvent[Any]:
    return WatchEvent(event_type, None, metadata.key, metadata.resource_version, metadata.uid, size)


def _decode_bookmark(raw: bytes | msgspec.Raw) -> WatchEvent[Any]:
    meta = decode(raw, _Bookmark).metadata
    ends = (meta.annotations or {}).get(_INITIAL_EVENTS_END) == "true"
    return WatchEvent("BOOKMARK", None, ObjectKey("", ""), meta.resource_version, initial_events_end=ends)
