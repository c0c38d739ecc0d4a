"""Events of MySQL's binary log that an archive must decode.

Only headers and the events that begin transactions are decoded. Everything else is copied as it is.

Source: MySQL 9.7 source, libs/mysql/binlog/event/control_events.h (Gtid_event, Previous_gtids_event) and
libs/mysql/serialization; checked against a server of 9.7.4.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass

from ..gtids import GtidSet

MAGIC = b"\xfebin"
ENCRYPTED_MAGIC = b"\xfdbin"
HEADER = struct.Struct("<IBIIIH")  # timestamp, type, server id, size, end position, flags
HEADER_BYTES = HEADER.size
CHECKSUM_BYTES = 4
MAX_EVENT_BYTES = 1 << 30  # the server's limit of max_allowed_packet

STOP = 3
ROTATE = 4
FORMAT_DESCRIPTION = 15
HEARTBEATS = (27, 41)
GTID = 33
ANONYMOUS_GTID = 34
PREVIOUS_GTIDS = 35
TAGGED_GTID = 42
NOT_ARCHIVED = frozenset({STOP, ROTATE, PREVIOUS_GTIDS, *HEARTBEATS})
"""Events that describe files and connections of one server."""

_ARTIFICIAL_FLAG = 0x20
_IN_USE_FLAG = 0x01
_IGNORABLE_FLAG = 0x80
_CRC32 = 1
_FLAGS_OFFSET = 17
_SECOND_TIMESTAMP = 1 << 55
_SID_BYTES = 16
_TAGGED_FORMAT = 1


class BinaryLogDamaged(Exception):
    """Bytes that are not supported events of a binary log."""


@dataclass(frozen=True, slots=True)
class Event:
    """One event with its header and its checksum."""

    kind: int
    data: bytes

    @property
    def artificial(self) -> bool:
        """True if the event belongs to a connection instead of a file."""
        return bool(int.from_bytes(self.data[_FLAGS_OFFSET : _FLAGS_OFFSET + 2], "little") & _ARTIFICIAL_FLAG)


@dataclass(frozen=True, slots=True)
class TransactionStart:
    """The content of a GTID event.

    Args:
        origin: `uuid` or `uuid:tag`.
        committed_at: microseconds since 1970, of the server on which the client committed.
        length: bytes of all events of the transaction, this one included.
    """

    origin: str
    number: int
    committed_at: int
    length: int


def parse_event(data: bytes) -> Event:
    """Wrap the bytes of one event. Raises BinaryLogDamaged."""
    if len(data) < HEADER_BYTES or HEADER.unpack_from(data)[3] != len(data):
        raise BinaryLogDamaged("an event has another size than its header says")
    return Event(data[4], data)


def split_events(data: bytes | memoryview) -> Iterator[Event]:
    """Yield the events of complete bytes. Raises BinaryLogDamaged."""
    position, view = 0, memoryview(data)
    while position < len(view):
        if len(view) - position < HEADER_BYTES:
            raise BinaryLogDamaged("an event ends in its header")
        size = HEADER.unpack_from(view, position)[3]
        if not HEADER_BYTES <= size <= min(MAX_EVENT_BYTES, len(view) - position):
            raise BinaryLogDamaged("an event has an impossible size")
        yield Event(view[position + 4], bytes(view[position : position + size]))
        position += size


def without_in_use_flag(event: Event) -> Event:
    """Return the format description event of a closed file."""
    data = bytearray(event.data)
    # The checksum was computed without this flag.
    data[_FLAGS_OFFSET] &= ~_IN_USE_FLAG & 0xFF
    return Event(event.kind, bytes(data))


def transaction_start(event: Event) -> TransactionStart:
    """Decode a GTID event. Raises BinaryLogDamaged."""
    body = event.data[HEADER_BYTES:]
    try:
        return _tagged_start(body) if event.kind == TAGGED_GTID else _plain_start(body)
    except (IndexError, struct.error, UnicodeDecodeError) as error:
        raise BinaryLogDamaged("a GTID event is too short") from error


def previous_gtids(event: Event) -> GtidSet:
    """Decode the set of transactions before a file. Raises BinaryLogDamaged."""
    try:
        return decode_gtid_set(event.data[HEADER_BYTES:-CHECKSUM_BYTES])
    except (IndexError, struct.error, ValueError) as error:
        raise BinaryLogDamaged("an event of previous GTIDs cannot be decoded") from error


def previous_gtids_event(format_description: bytes, gtids: GtidSet) -> bytes:
    """Return the event after a file's format description event.

    It has a checksum if that has one.
    """
    checksum = has_checksum(format_description)
    body = encode_gtid_set(gtids)
    size = HEADER_BYTES + len(body) + (CHECKSUM_BYTES if checksum else 0)
    end = len(MAGIC) + len(format_description) + size
    data = HEADER.pack(0, PREVIOUS_GTIDS, 1, size, end, _IGNORABLE_FLAG) + body
    return data + struct.pack("<I", zlib.crc32(data)) if checksum else data


def has_checksum(format_description: bytes) -> bool:
    """Return True if the events of a file have a checksum."""
    return format_description[-CHECKSUM_BYTES - 1] == _CRC32


def encode_gtid_set(gtids: GtidSet) -> bytes:
    """Encode a set as the server does in events and commands."""
    tagged = any(":" in origin for origin in gtids.intervals)
    count = len(gtids.intervals)
    parts = [struct.pack("<Q", _TAGGED_FORMAT << 56 | count << 8 | _TAGGED_FORMAT if tagged else count)]
    for origin, intervals in sorted(gtids.intervals.items()):
        uuid, _, tag = origin.partition(":")
        parts.append(bytes.fromhex(uuid.replace("-", "")))
        if tagged:
            parts.append(bytes([len(tag) << 1]) + tag.encode())
        parts.append(struct.pack("<Q", len(intervals)))
        parts += [struct.pack("<QQ", first, last + 1) for first, last in intervals]
    return b"".join(parts)


def decode_gtid_set(data: bytes) -> GtidSet:
    """Decode what `encode_gtid_set` encodes. Raises struct.error, IndexError, ValueError."""
    (head,) = struct.unpack_from("<Q", data)
    tagged = head >> 56 == _TAGGED_FORMAT
    reader = _Reader(data, 8)
    gtids = GtidSet()
    for _ in range(head >> 8 & (1 << 48) - 1 if tagged else head):
        origin = _uuid(reader.take(_SID_BYTES))
        if tagged and (tag := reader.take(reader.unsigned())):
            origin = f"{origin}:{tag.decode('ascii')}"
        (count,) = struct.unpack("<Q", reader.take(8))
        bounds = [struct.unpack("<QQ", reader.take(16)) for _ in range(count)]
        text = "".join(f":{first}-{end - 1}" for first, end in bounds)
        gtids |= GtidSet.parse(origin + text)
    return gtids


def _plain_start(body: bytes) -> TransactionStart:
    # flags 1, UUID 16, number 8, type of logical timestamps 1, two of them 8 each, then commit times 7 each
    origin = _uuid(body[1:17])
    (number,) = struct.unpack_from("<q", body, 17)
    time = int.from_bytes(body[42:49], "little")
    position = 49
    if time & _SECOND_TIMESTAMP:
        # Replicated: the time of the server on which the client committed follows.
        time = int.from_bytes(body[49:56], "little")
        position = 56
    length = _packed_length(body, position)
    return TransactionStart(origin, number, time, length)


def _tagged_start(body: bytes) -> TransactionStart:
    reader = _Reader(body)
    for _ in range(3):
        reader.unsigned()  # version, size, last field that must be understood
    fields: dict[int, int] = {}
    uuid, tag = b"", ""
    while max(fields, default=0) < 8:
        match field := reader.unsigned():
            case 1:
                uuid = bytes(reader.unsigned() for _ in range(_SID_BYTES))
                fields[field] = 0
            case 3:
                tag = reader.take(reader.unsigned()).decode("ascii")
                fields[field] = 0
            case 0 | 2 | 4 | 5 | 6 | 7 | 8:
                fields[field] = reader.unsigned()
            case _:
                raise BinaryLogDamaged(f"a tagged GTID event has the unknown field {field}")
    # Field 2 is a signed integer: its lowest bit is the sign.
    return TransactionStart(f"{_uuid(uuid)}:{tag}", fields[2] >> 1, fields.get(7, fields[6]), fields[8])


def _packed_length(data: bytes, position: int) -> int:
    first = data[position]
    if first < 251:
        return first
    width = {252: 2, 253: 3, 254: 8}.get(first)
    if width is None or len(data) < position + 1 + width:
        raise BinaryLogDamaged("a GTID event has no transaction length")
    return int.from_bytes(data[position + 1 : position + 1 + width], "little")


def _uuid(data: bytes) -> str:
    text = data.hex()
    if len(text) != 2 * _SID_BYTES:
        raise BinaryLogDamaged("a UUID is too short")
    return "-".join((text[:8], text[8:12], text[12:16], text[16:20], text[20:]))


class _Reader:
    """Reads the integers of variable length of MySQL's serialization library."""

    def __init__(self, data: bytes, position: int = 0) -> None:
        self._data, self._position = data, position

    def take(self, count: int) -> bytes:
        taken = self._data[self._position : self._position + count]
        if len(taken) < count:
            raise IndexError
        self._position += count
        return taken

    def unsigned(self) -> int:
        """The trailing one bits of the first byte count the others."""
        (first,) = self.take(1)
        extra = (first ^ (first + 1)).bit_length() - 1
        rest = int.from_bytes(self.take(extra), "little")
        return rest if extra == 8 else (first | rest << 8) >> (extra + 1)
