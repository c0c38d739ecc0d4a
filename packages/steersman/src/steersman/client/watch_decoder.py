"""Watches: lines become events.

Each line is parsed once, straight to the object, and where the caller knows an object already, its metadata alone.

Source: "Kubernetes API Concepts", "Efficient detection of changes"; KEP-956 (bookmarks), KEP-3157 (streaming lists).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, Literal, TypeVar

import msgspec

from steersman.client.list_decoder import ObjectDecoder, PeekedMetadata, peek_metadata
from steersman.errors import ApiStatus, ConnectionFailed, error_from_status
from steersman.meta import Object, ObjectKey, decode
from steersman.meta.frozen import FrozenStruct

T = TypeVar("T", bound=Object)

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
