"""Chunks: pieces of a binary log stream, stored as objects.

A chunk is readable on its own: its header has the format description event of its stream. The header is plain text,
since object stores limit metadata to 2 KiB and a GTID set may be longer. It is authenticated with the content.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import struct
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from ..gtids import GtidSet
from . import events
from .events import BinaryLogDamaged, Event

MAX_CHUNK_BYTES = 8 << 20
MAX_HEADER_BYTES = 1 << 20
_MAX_CONTENT_BYTES = 2 * MAX_CHUNK_BYTES + events.MAX_EVENT_BYTES
_MAGIC = b"STMYBLG1"
_LENGTH = struct.Struct("<I")
PREFIX_BYTES = len(_MAGIC) + _LENGTH.size
_NONCE_BYTES = 12
_COMPRESSION_LEVEL = 1  # binary logs grow faster than a higher level compresses
_ENCRYPTED, _PLAIN = "AES-256-GCM", "none"


class WrongKey(Exception):
    """The content was encrypted with another passphrase, or it was changed."""


class ChunkDamaged(Exception):
    """An object that is not a chunk, or differs from its header."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunkHeader:
    """Header of a chunk, without its content.

    Args:
        session: the stream that it belongs to.
        number: counted from 0 in its session.
        starts_in: number of the chunk in which its first transaction begins.
        before: transactions that the reader of the stream had before this chunk.
        after: `before` and those that are complete with this chunk.
        first: earliest commit of them in microseconds since 1970; 0 if none is complete.
        last: latest commit.
        size: bytes of the events.
        sha256: of the events, in hexadecimal.
        format_description: event that says how to read the others.
    """

    session: str
    number: int
    starts_in: int
    before: GtidSet
    after: GtidSet
    first: int
    last: int
    size: int
    sha256: str
    encryption: str
    format_description: bytes

    @property
    def name(self) -> str:
        """The object's name below the archive of binary logs."""
        return chunk_name(self.session, self.number)

    def to_json(self) -> dict[str, Any]:
        """Return the header as it is stored."""
        return {
            "format": 1,
            "session": self.session,
            "number": self.number,
            "startsIn": self.starts_in,
            "before": str(self.before),
            "after": str(self.after),
            "first": self.first,
            "last": self.last,
            "size": self.size,
            "sha256": self.sha256,
            "compression": "zlib",
            "encryption": self.encryption,
            "formatDescription": base64.b64encode(self.format_description).decode(),
        }

    @classmethod
    def from_json(cls, found: Mapping[str, Any]) -> ChunkHeader:
        """Parse a stored header. Raises ChunkDamaged."""
        try:
            if found["format"] != 1 or found["compression"] != "zlib":
                raise ChunkDamaged("the chunk was written by a newer release: use its image")
            return cls(
                session=str(found["session"]),
                number=int(found["number"]),
                starts_in=int(found["startsIn"]),
                before=GtidSet.parse(found["before"]),
                after=GtidSet.parse(found["after"]),
                first=int(found["first"]),
                last=int(found["last"]),
                size=int(found["size"]),
                sha256=str(found["sha256"]),
                encryption=str(found["encryption"]),
                format_description=base64.b64decode(found["formatDescription"], validate=True),
            )
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise ChunkDamaged("the header of a chunk is malformed") from error


@dataclass(frozen=True, slots=True)
class Chunk:
    """A header with the events that it describes."""

    header: ChunkHeader
    content: bytes


def chunk_name(session: str, number: int) -> str:
    """Return the name of a chunk's object."""
    return f"{session}/{number:08d}"


class ChunkCipher:
    """Encrypts chunks with a key derived from the store's passphrase.

    Without one they are only compressed.
    """

    def __init__(self, passphrase: str) -> None:
        self._cipher: AESGCM | None = None
        if passphrase:
            derivation = HKDF(SHA256(), length=32, salt=None, info=b"steersman mysql binary log 1")
            self._cipher = AESGCM(derivation.derive(passphrase.encode()))

    @property
    def name(self) -> str:
        """The algorithm, as headers have it."""
        return _ENCRYPTED if self._cipher else _PLAIN

    def seal(self, chunk: Chunk) -> bytes:
        """Return the object of a chunk."""
        header = json.dumps(chunk.header.to_json(), separators=(",", ":"), sort_keys=True).encode()
        content = zlib.compress(chunk.content, _COMPRESSION_LEVEL)
        if self._cipher:
            nonce = os.urandom(_NONCE_BYTES)
            content = nonce + self._cipher.encrypt(nonce, content, _bound_to(chunk.header, header))
        return b"".join((_MAGIC, _LENGTH.pack(len(header)), header, content))

    def open(self, data: bytes) -> Chunk:
        """Return the chunk of an object.

        Raises:
            WrongKey: the passphrase is another one, or the object was changed.
            ChunkDamaged: the object is not a chunk of this format.
        """
        header, start = read_header(data)
        encoded, content = data[PREFIX_BYTES:start], data[start:]
        if header.encryption == _ENCRYPTED:
            if self._cipher is None:
                raise WrongKey(f"chunk {header.name} is encrypted, and the store file has no passphrase")
            try:
                nonce, content = content[:_NONCE_BYTES], content[_NONCE_BYTES:]
                content = self._cipher.decrypt(nonce, content, _bound_to(header, encoded))
            except (InvalidTag, ValueError):
                raise WrongKey(f"chunk {header.name} cannot be decrypted with this passphrase") from None
        inflater = zlib.decompressobj()
        try:
            content = inflater.decompress(content, min(header.size, _MAX_CONTENT_BYTES) + 1)
        except zlib.error as error:
            raise ChunkDamaged(f"chunk {header.name} cannot be decompressed") from error
        if len(content) != header.size or hashlib.sha256(content).hexdigest() != header.sha256:
            raise ChunkDamaged(f"chunk {header.name} has other content than its header says")
        return Chunk(header, content)


def read_header(data: bytes) -> tuple[ChunkHeader, int]:
    """Return the header of an object and where its content starts.

    Raises:
        ChunkDamaged: it is not a chunk, or `data` ends before the content starts.
    """
    end = header_end(data)
    if len(data) < end:
        raise ChunkDamaged("an object is shorter than its header")
    try:
        found: Any = json.loads(data[PREFIX_BYTES:end])
    except (ValueError, RecursionError) as error:
        raise ChunkDamaged("the header of a chunk is not JSON") from error
    if not isinstance(found, dict):
        raise ChunkDamaged("the header of a chunk is not a JSON object")
    return ChunkHeader.from_json(cast("dict[str, Any]", found)), end


def header_end(data: bytes) -> int:
    """Return where the content of an object starts. Raises ChunkDamaged."""
    if len(data) < PREFIX_BYTES or not data.startswith(_MAGIC):
        raise ChunkDamaged("an object is not a chunk of a binary log")
    (length,) = _LENGTH.unpack_from(data, len(_MAGIC))
    if length > MAX_HEADER_BYTES:
        raise ChunkDamaged("the header of a chunk is too long")
    return PREFIX_BYTES + length


def _bound_to(header: ChunkHeader, encoded: bytes) -> bytes:
    # A chunk under another name, or with another header, does not decrypt.
    return header.name.encode() + b"\0" + encoded


class ChunkBuilder:
    """Cuts the events of one stream into chunks.

    A chunk may end inside a transaction, so memory is bounded whatever a transaction's size.

    Args:
        before: transactions that the stream leaves out.
        encryption: what will encrypt the chunks.
    """

    def __init__(self, session: str, before: GtidSet, encryption: str) -> None:
        self.session, self.covered = session, before
        self._encryption = encryption
        self._before = before
        self._number = 0
        self._starts_in = 0
        self._format_description = b""
        self._parts: list[bytes] = []
        self._size = 0
        self._times: list[int] = []
        self._open: events.TransactionStart | None = None
        self._remaining = 0
        self._open_since = 0

    @property
    def full(self) -> bool:
        """True if the chunk must be cut.

        Its limit is the size after a transaction, and twice the size inside one.
        """
        return self._size >= MAX_CHUNK_BYTES * (1 if self._open is None else 2)

    @property
    def cuttable(self) -> bool:
        """True if transactions are complete since the last cut.

        None is open.
        """
        return bool(self._times) and self._open is None

    @property
    def ended_cleanly(self) -> bool:
        """True if everything that came is in chunks."""
        return not self._size and self._open is None

    @property
    def chunk_count(self) -> int:
        """Number of chunks that were cut."""
        return self._number

    @property
    def waiting_bytes(self) -> int:
        """Size of the events since the last cut."""
        return self._size

    def add(self, event: Event) -> None:
        """Take the next event of the stream. Raises BinaryLogDamaged."""
        if event.kind == events.FORMAT_DESCRIPTION:
            description = events.without_in_use_flag(event).data
            if self._format_description:
                # A new file: its transactions depend on each other by numbers that begin again.
                self._parts.append(description)
                self._size += len(description)
            else:
                self._format_description = description
            return
        if event.kind in events.NOT_ARCHIVED or event.artificial:
            return
        if event.kind == events.ANONYMOUS_GTID:
            raise BinaryLogDamaged("a transaction has no GTID: set gtid_mode to ON")
        if event.kind in (events.GTID, events.TAGGED_GTID):
            self._begin(events.transaction_start(event))
        if self._open is None:
            return
        self._parts.append(event.data)
        self._size += len(event.data)
        self._remaining -= len(event.data)
        if self._remaining < 0:
            raise BinaryLogDamaged("a transaction is longer than its GTID event says")
        if not self._remaining:
            self.covered = self.covered.add(self._open.origin, self._open.number)
            self._times.append(self._open.committed_at)
            self._open = None

    def cut(self) -> Chunk:
        """Return what came since the last cut, as a chunk."""
        content = b"".join(self._parts)
        header = ChunkHeader(
            session=self.session,
            number=self._number,
            starts_in=self._starts_in,
            before=self._before,
            after=self.covered,
            first=min(self._times, default=0),
            last=max(self._times, default=0),
            size=len(content),
            sha256=hashlib.sha256(content).hexdigest(),
            encryption=self._encryption,
            format_description=self._format_description,
        )
        self._number += 1
        self._starts_in = self._number if self._open is None else self._open_since
        self._before, self._parts, self._size, self._times = self.covered, [], 0, []
        return Chunk(header, content)

    def _begin(self, start: events.TransactionStart) -> None:
        if self._open is not None:
            raise BinaryLogDamaged("a transaction is shorter than its GTID event says")
        if not self._format_description:
            raise BinaryLogDamaged("a stream has no format description event")
        self._open, self._remaining, self._open_since = start, start.length, self._number
