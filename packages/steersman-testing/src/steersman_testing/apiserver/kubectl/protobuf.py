"""Decoding of protobuf bodies, which typed Go clients send for built-in kinds.

Responses are JSON, which those clients accept as well. Source: "Kubernetes API Concepts", "Kubernetes Protobuf
encoding"; "Encoding" in the guide of Protocol Buffers.
"""

from __future__ import annotations

import base64
import struct
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from functools import cache
from importlib import resources
from typing import Any, NamedTuple

import msgspec

from steersman_testing.apiserver.values import JsonObject

_MAGIC = b"k8s\x00"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class _Field(NamedTuple):
    """Field of a message. ``protobuf.py`` of ``scripts/generate_api`` describes the flags."""

    name: str
    type: str
    flags: str


def decode_protobuf(body: bytes) -> JsonObject:
    """Decode a body to an object in JSON form.

    Raises:
        ValueError: the body is malformed, or its kind is unknown.
    """
    if not body.startswith(_MAGIC):
        raise ValueError("the body does not begin with the magic number of Kubernetes protobuf")
    try:
        envelope = dict(_message_fields(memoryview(body)[len(_MAGIC) :]))
        type_meta = {number: _decode_string(data) for number, data in _message_fields(envelope[1])}
        api_version, kind = type_meta.get(1, ""), type_meta.get(2, "")
        message = _message_name(api_version, kind)
        if message is None:
            raise ValueError(f"{api_version} {kind} has no protobuf message")
        return {"apiVersion": api_version, "kind": kind, **_decode_message(envelope.get(2, b""), message)}
    except (KeyError, IndexError, struct.error, TypeError, OverflowError) as error:
        raise ValueError(f"malformed protobuf: {error}") from error


@cache
def _messages() -> dict[str, dict[int, _Field]]:
    file = resources.files("steersman_testing.apiserver.kubectl") / "protobuf.json"
    found = msgspec.json.decode(file.read_bytes(), type=dict[str, list[tuple[int, str, str, str]]])
    return {
        name: {number: _Field(*definition) for number, *definition in fields}
        for name, fields in found.items()
        if name
    }


def _message_name(api_version: str, kind: str) -> str | None:
    group, _, version = api_version.rpartition("/")
    # Kinds of all groups, such as DeleteOptions, are described once.
    names = (f"{group.partition('.')[0] or 'core'}/{version}.{kind}", f"meta/v1.{kind}")
    return next((name for name in names if name in _messages()), None)


def _decode_message(data: Any, name: str) -> JsonObject:
    fields = _messages()[name]
    result: JsonObject = {}
    for number, encoded in _message_fields(data):
        field = fields.get(number)
        if field is not None:
            _set_field(result, field, encoded)
    return result


def _set_field(result: JsonObject, field: _Field, data: Any) -> None:
    if "{" in field.flags:
        entry = dict(_message_fields(data))
        result.setdefault(field.name, {})[_decode_string(entry.get(1, b""))] = _decode_value(field.type, entry.get(2))
    elif "[" in field.flags:
        packed = field.type in ("int", "bool") and not isinstance(data, int)
        values = _varints(data) if packed else (data,)
        result.setdefault(field.name, []).extend(_decode_value(field.type, v) for v in values)
    elif "<" in field.flags:
        result.update(_decode_value(field.type, data))
    else:
        value = _decode_value(field.type, data)
        # Go encodes zero values of fields that are not pointers. They count as missing.
        if value not in ("", 0, None, {}) or ("=" in field.flags and value is not None):
            result[field.name] = value


def _decode_value(kind: str, data: Any) -> Any:
    decode = _SCALARS.get(kind)
    if decode is None:
        return _decode_message(b"" if data is None else data, kind)
    return decode(_ZERO_VALUES.get(kind, b"") if data is None else data)


def _message_fields(data: Any) -> Iterator[tuple[int, Any]]:
    """Yield the fields of a message: numbers as integers, others as bytes."""
    view, offset = memoryview(data), 0
    while offset < len(view):
        key, offset = _varint(view, offset)
        match key & 7:
            case 0:
                value, offset = _varint(view, offset)
            case 1:
                value, offset = struct.unpack_from("<q", view, offset)[0], offset + 8
            case 2:
                size, offset = _varint(view, offset)
                if offset + size > len(view):
                    raise ValueError("malformed protobuf: unexpected end")
                value, offset = view[offset : offset + size], offset + size
            case 5:
                value, offset = struct.unpack_from("<i", view, offset)[0], offset + 4
            case other:
                raise ValueError(f"malformed protobuf: wire type {other}")
        yield key >> 3, value


def _varint(view: memoryview, offset: int) -> tuple[int, int]:
    result = shift = 0
    while True:
        byte = view[offset]
        offset += 1
        result |= (byte & 0x7F) << shift
        if byte < 0x80:
            return result, offset
        shift += 7
        if shift > 63:
            raise ValueError("malformed protobuf: varint too long")


def _varints(data: Any) -> Iterator[int]:
    view, offset = memoryview(data), 0
    while offset < len(view):
        value, offset = _varint(view, offset)
        yield value


def _decode_string(data: Any) -> str:
    return bytes(data).decode()


def _decode_int(data: int) -> int:
    """Decode an integer. Negative numbers have 64 bits."""
    return data - 2**64 if data >= 2**63 else data


def _decode_timestamp(data: Any) -> tuple[int, int] | None:
    """Return seconds and nanoseconds, or None for the zero time."""
    found = {number: _decode_int(value) for number, value in _message_fields(data)}
    return (found.get(1, 0), found.get(2, 0)) if found else None


def _decode_time(data: Any) -> str | None:
    timestamp = _decode_timestamp(data)
    return None if timestamp is None else (_EPOCH + timedelta(seconds=timestamp[0])).strftime("%Y-%m-%dT%H:%M:%SZ")


def _decode_micro_time(data: Any) -> str | None:
    timestamp = _decode_timestamp(data)
    if timestamp is None:
        return None
    exact = _EPOCH + timedelta(seconds=timestamp[0], microseconds=timestamp[1] // 1000)
    return exact.strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def _decode_quantity(data: Any) -> str:
    return _decode_string(dict(_message_fields(data)).get(1, b""))


def _decode_int_or_string(data: Any) -> int | str:
    found = dict(_message_fields(data))
    return _decode_string(found.get(3, b"")) if found.get(1) else _decode_int(found.get(2, 0))


def _decode_raw(data: Any) -> Any:
    text = bytes(dict(_message_fields(data)).get(1, b""))
    return msgspec.json.decode(text) if text else None


def _decode_strings(data: Any) -> list[str]:
    return [_decode_string(item) for _, item in _message_fields(data)]


_SCALARS: Mapping[str, Callable[[Any], Any]] = {
    "string": _decode_string,
    "bytes": lambda part: base64.b64encode(part).decode(),
    "int": _decode_int,
    "bool": bool,
    "time": _decode_time,
    "microTime": _decode_micro_time,
    "quantity": _decode_quantity,
    "intOrString": _decode_int_or_string,
    "raw": _decode_raw,
    "strings": _decode_strings,
}
_ZERO_VALUES = {"int": 0, "bool": 0}
