"""Bodies in protobuf, which Go's typed clients send for built-in kinds, kubectl's among them. Answers are JSON, which
those clients accept as well.

Source: "Kubernetes API Concepts", "Kubernetes Protobuf encoding"; "Encoding" in the guide of Protocol Buffers.
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
    """A field of a message; see ``protobuf.py`` of ``scripts/generate_api`` for the flags."""

    name: str
    type: str
    flags: str


def decode_protobuf(body: bytes) -> JsonObject:
    """The object that ``body`` is, in JSON's form.

    Raises:
        ValueError: it is not protobuf of Kubernetes, or of a kind that is not known in it.
    """
    if not body.startswith(_MAGIC):
        raise ValueError("the body does not begin as protobuf of Kubernetes does")
    try:
        envelope = dict(_parts(memoryview(body)[len(_MAGIC) :]))
        named = {number: _text(part) for number, part in _parts(envelope[1])}
        api_version, kind = named.get(1, ""), named.get(2, "")
        message = _message_of(api_version, kind)
        if message is None:
            raise ValueError(f"{api_version} {kind} is not known in protobuf")
        return {"apiVersion": api_version, "kind": kind, **_message(envelope.get(2, b""), message)}
    except (KeyError, IndexError, struct.error, TypeError, OverflowError) as error:
        raise ValueError(f"the body is broken protobuf: {error}") from error


@cache
def _messages() -> dict[str, dict[int, _Field]]:
    file = resources.files("steersman_testing.apiserver.requests") / "protobuf.json"
    found = msgspec.json.decode(file.read_bytes(), type=dict[str, list[tuple[int, str, str, str]]])
    return {name: {number: _Field(*told) for number, *told in fields} for name, fields in found.items() if name}


def _message_of(api_version: str, kind: str) -> str | None:
    group, _, version = api_version.rpartition("/")
    # A kind that belongs to every group, as the options of its requests do, is described in one.
    names = (f"{group.partition('.')[0] or 'core'}/{version}.{kind}", f"meta/v1.{kind}")
    return next((name for name in names if name in _messages()), None)


def _message(data: Any, name: str) -> JsonObject:
    fields = _messages()[name]
    result: JsonObject = {}
    for number, part in _parts(data):
        field = fields.get(number)
        if field is not None:
            _put(result, field, part)
    return result


def _put(result: JsonObject, field: _Field, part: Any) -> None:
    if "{" in field.flags:
        entry = dict(_parts(part))
        result.setdefault(field.name, {})[_text(entry.get(1, b""))] = _value(field.type, entry.get(2))
    elif "[" in field.flags:
        packed = field.type in ("int", "bool") and not isinstance(part, int)
        values = _varints(part) if packed else (part,)
        result.setdefault(field.name, []).extend(_value(field.type, v) for v in values)
    elif "<" in field.flags:
        result.update(_value(field.type, part))
    else:
        value = _value(field.type, part)
        # Go sends what is not a pointer even where it is zero, which is to say nothing.
        if value not in ("", 0, None, {}) or ("=" in field.flags and value is not None):
            result[field.name] = value


def _value(kind: str, part: Any) -> Any:
    decode = _SCALARS.get(kind)
    if decode is None:
        return _message(b"" if part is None else part, kind)
    return decode(_ZEROS.get(kind, b"") if part is None else part)


def _parts(data: Any) -> Iterator[tuple[int, Any]]:
    """The fields of a message in their order: numbers as they are, all else as bytes."""
    view, place = memoryview(data), 0
    while place < len(view):
        key, place = _varint(view, place)
        match key & 7:
            case 0:
                value, place = _varint(view, place)
            case 1:
                value, place = struct.unpack_from("<q", view, place)[0], place + 8
            case 2:
                size, place = _varint(view, place)
                if place + size > len(view):
                    raise ValueError("the body is broken protobuf: it ends too early")
                value, place = view[place : place + size], place + size
            case 5:
                value, place = struct.unpack_from("<i", view, place)[0], place + 4
            case other:
                raise ValueError(f"the body is broken protobuf: wire type {other}")
        yield key >> 3, value


def _varint(view: memoryview, place: int) -> tuple[int, int]:
    result = shift = 0
    while True:
        byte = view[place]
        place += 1
        result |= (byte & 0x7F) << shift
        if byte < 0x80:
            return result, place
        shift += 7
        if shift > 63:
            raise ValueError("the body is broken protobuf: a number without end")


def _varints(data: Any) -> Iterator[int]:
    view, place = memoryview(data), 0
    while place < len(view):
        value, place = _varint(view, place)
        yield value


def _text(part: Any) -> str:
    return bytes(part).decode()


def _integer(part: int) -> int:
    """Negative numbers are sent as 64 bits."""
    return part - 2**64 if part >= 2**63 else part


def _moment(part: Any) -> tuple[int, int] | None:
    """Seconds and nanoseconds; None for the zero time."""
    found = {number: _integer(value) for number, value in _parts(part)}
    return (found.get(1, 0), found.get(2, 0)) if found else None


def _time(part: Any) -> str | None:
    moment = _moment(part)
    return None if moment is None else (_EPOCH + timedelta(seconds=moment[0])).strftime("%Y-%m-%dT%H:%M:%SZ")


def _micro_time(part: Any) -> str | None:
    moment = _moment(part)
    if moment is None:
        return None
    exact = _EPOCH + timedelta(seconds=moment[0], microseconds=moment[1] // 1000)
    return exact.strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def _first_text(part: Any) -> str:
    return _text(dict(_parts(part)).get(1, b""))


def _int_or_string(part: Any) -> int | str:
    found = dict(_parts(part))
    return _text(found.get(3, b"")) if found.get(1) else _integer(found.get(2, 0))


def _raw(part: Any) -> Any:
    text = bytes(dict(_parts(part)).get(1, b""))
    return msgspec.json.decode(text) if text else None


def _strings(part: Any) -> list[str]:
    return [_text(item) for _, item in _parts(part)]


_SCALARS: Mapping[str, Callable[[Any], Any]] = {
    "string": _text,
    "bytes": lambda part: base64.b64encode(part).decode(),
    "int": _integer,
    "bool": bool,
    "time": _time,
    "microTime": _micro_time,
    "quantity": _first_text,
    "intOrString": _int_or_string,
    "raw": _raw,
    "strings": _strings,
}
_ZEROS = {"int": 0, "bool": 0}
