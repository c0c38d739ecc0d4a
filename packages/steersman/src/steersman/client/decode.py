"""From the API server's bytes to objects: single objects, pages of lists, and events of watches."""

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

R = TypeVar("R")
T = TypeVar("T", bound=Object)

_METADATA_ACCEPT = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
_METADATA_LIST_ACCEPT = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"


@cache
def accept_header(kind: type[Object], *, is_list: bool = False) -> str:
    """The media types to ask for where ``kind`` is to be read. Source: KEP-2334, "Metadata-only" of API Concepts."""
    if not issubclass(kind, ObjectMetadata):
        return "application/json"
    return _METADATA_LIST_ACCEPT if is_list else _METADATA_ACCEPT


def decode_response(raw: bytes | msgspec.Raw, kind: type[R]) -> R:
    """``raw`` (JSON) as a ``kind``.

    Raises:
        ConnectionFailed: it is no JSON, as when a proxy answers by its log-in page.
        msgspec.ValidationError: it does not fit ``kind``.
    """
    try:
        return decode(raw, kind)
    except msgspec.ValidationError:
        raise
    except msgspec.DecodeError as error:
        raise ConnectionFailed(f"the answer is not the API server's: {error}") from error


def decode_object(raw: bytes | msgspec.Raw, kind: type[T], field_manager: str) -> T:
    """``raw`` (JSON) as a ``kind``, with no ``managedFields`` but those of ``field_manager``.

    Those of others are the larger part of many objects, and nobody acts on them; our own tell what a server-side
    apply would change.

    Raises as ``read_answer``.
    """
    obj = decode_response(raw, kind)
    if obj.metadata.managed_fields:
        own_entries = tuple([_copy_fields(e) for e in obj.metadata.managed_fields if e.manager == field_manager])
        force_setattr(obj.metadata, "managed_fields", own_entries)
        if isinstance(obj, Unstructured):
            force_setattr(obj, "content", _keep_manager(field_manager, obj.content))
    return obj


def _copy_fields(entry: ManagedFieldsEntry) -> ManagedFieldsEntry:
    # Unparsed JSON is a view of the whole answer, which would live as long as this entry. Nobody else has it yet.
    force_setattr(entry, "fields_v1", msgspec.Raw(bytes(entry.fields_v1)))
    return entry


def _keep_manager(manager: str, content: FrozenDict[str, Any]) -> FrozenDict[str, Any]:
    metadata: FrozenDict[str, Any] = content["metadata"]
    own_entries = tuple(e for e in metadata["managedFields"] if e.get("manager") == manager)
    kept_metadata = {k: v for k, v in metadata.items() if k != "managedFields"} | (
        {"managedFields": own_entries} if own_entries else {}
    )
    return FrozenDict({**content, "metadata": FrozenDict(kept_metadata)})


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


EventType = Literal["ADDED", "MODIFIED", "DELETED", "BOOKMARK"]
SkipDecode = Callable[[bytes | msgspec.Raw], bool]

_INITIAL_EVENTS_END = "k8s.io/initial-events-end"
_CHANGE_TYPES: dict[bytes, EventType] = {b"ADDED": "ADDED", b"MODIFIED": "MODIFIED", b"DELETED": "DELETED"}
_EVENT_PREFIX = b'{"type":"'
_OBJECT_SEPARATOR = b'","object":'


class WatchEvent(msgspec.Struct, Generic[T], frozen=True, gc=False):
    """One change of an object, or a bookmark.

    Attributes:
        type: what happened. A ``BOOKMARK`` only says how far the watch has come.
        object: None for a bookmark, for an object that was skipped, and for one that did not fit its type where an
            ``on_decode_error`` was given.
        key: of the object, whether it is there or not.
        resource_version: how far the watch has come.
        uid: of the object, whether it is there or not.
        size: bytes of the object's JSON; 0 for a bookmark.
        initial_events_end: with this bookmark all objects that existed when the watch began have been told.
    """

    type: EventType
    object: T | None
    key: ObjectKey
    resource_version: str
    uid: str = ""
    size: int = 0
    initial_events_end: bool = False


class _RawEvent(FrozenStruct):
    type: str
    object: msgspec.Raw


class _BookmarkMeta(FrozenStruct):
    resource_version: str = ""
    annotations: dict[str, str] | None = None


class _Bookmark(FrozenStruct):
    metadata: _BookmarkMeta = _BookmarkMeta()


class EventDecoder(Generic[T]):
    """Reads the lines of one watch.

    Args:
        skip_decode: whether an ADDED or MODIFIED object, given as JSON, need not be read.
    """

    def __init__(self, decoder: ObjectDecoder[T], skip_decode: SkipDecode | None) -> None:
        self._decoder = decoder
        self._skip_decode = skip_decode

    def decode(self, line: bytes) -> WatchEvent[T] | None:
        """The event, or None for a line that is none.

        Raises:
            ApiError: the server ends the watch by an error; by reason, such as Expired.
            ConnectionFailed: the line is not complete.
            msgspec.ValidationError: the object does not fit its type, and nobody is told otherwise.
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
            raise ConnectionFailed(f"the watch broke within a line: {error}") from error

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
    # The API server writes each event so, and finding the object's bytes costs nothing then.
    end = line.find(b'"', len(_EVENT_PREFIX))
    if line.startswith(_EVENT_PREFIX) and line.startswith(_OBJECT_SEPARATOR, end) and line.endswith(b"}"):
        return line[len(_EVENT_PREFIX) : end], line[end + len(_OBJECT_SEPARATOR) : -1]
    event = decode(line, _RawEvent)
    return event.type.encode(), event.object


def _undecoded_event(event_type: EventType, metadata: PeekedMetadata, size: int) -> WatchEvent[Any]:
    return WatchEvent(event_type, None, metadata.key, metadata.resource_version, metadata.uid, size)


def _decode_bookmark(raw: bytes | msgspec.Raw) -> WatchEvent[Any]:
    meta = decode(raw, _Bookmark).metadata
    ends = (meta.annotations or {}).get(_INITIAL_EVENTS_END) == "true"
    return WatchEvent("BOOKMARK", None, ObjectKey("", ""), meta.resource_version, initial_events_end=ends)
