"""Binary logs made in a test: events as a server of MySQL 9.7 writes them."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from steersman_instance.binlog import events
from steersman_instance.binlog.chunks import Chunk, ChunkBuilder
from steersman_instance.gtids import NO_GTIDS, GtidSet

UUID = "3e11fa47-71ca-11e1-9e33-c80aa9429562"
OTHER = "4e11fa47-71ca-11e1-9e33-c80aa9429562"
_ROWS, _XID = 30, 16
_GTID_BYTES = events.HEADER_BYTES + 60 + events.CHECKSUM_BYTES


@dataclass(frozen=True)
class Transaction:
    """A transaction of a made binary log.

    Args:
        committed_at: microseconds since 1970.
        rows: bytes of its only row event's body.
    """

    number: int
    committed_at: int = 0
    origin: str = UUID
    rows: int = 10

    @property
    def gtids(self) -> GtidSet:
        return NO_GTIDS.add(self.origin, self.number)

    def events(self) -> list[events.Event]:
        """Return the events of the transaction."""
        rest = [event(_ROWS, bytes(self.rows)), event(_XID, bytes(8))]
        length = _GTID_BYTES + sum(len(each.data) for each in rest)
        body = b"\x00" + bytes.fromhex(self.origin.replace("-", "")) + struct.pack("<q", self.number)
        body += b"\x02" + bytes(16) + self.committed_at.to_bytes(7, "little")
        body += b"\xfd" + length.to_bytes(3, "little") + bytes(7)
        return [event(events.GTID, body), *rest]


def event(kind: int, body: bytes) -> events.Event:
    """Return an event with a checksum."""
    size = events.HEADER_BYTES + len(body) + events.CHECKSUM_BYTES
    data = events.HEADER.pack(0, kind, 1, size, 0, 0) + body
    return events.parse_event(data + struct.pack("<I", zlib.crc32(data)))


def format_description() -> events.Event:
    """Return the first event of a file; its last byte before the checksum says that events have one."""
    return event(events.FORMAT_DESCRIPTION, bytes(90) + b"\x01")


def session(name: str, before: GtidSet, transactions: Iterable[Transaction], cuts: Sequence[int] = ()) -> list[Chunk]:
    """Return the chunks of a stream.

    Args:
        cuts: numbers of events after which a chunk is cut. The rest is the last chunk.
    """
    builder = ChunkBuilder(name, before, "none")
    builder.add(format_description())
    chunks: list[Chunk] = []
    position = 0
    for transaction in transactions:
        for each in transaction.events():
            builder.add(each)
            position += 1
            if position in cuts:
                chunks.append(builder.cut())
    chunks.append(builder.cut())
    return chunks
