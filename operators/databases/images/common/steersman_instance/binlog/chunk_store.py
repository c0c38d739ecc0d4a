"""The archive of binary logs in the object store.

`<session>/<number>` are chunks. Every `INDEX_CHUNKS` of them `<session>/<number>.index` repeats their headers, so
that a recovery after weeks reads thousands of objects less. An index that is missing costs time only.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, cast

from ..archive.errors import ArchiveError
from ..archive.objects import ObjectExists, ObjectNotFound, Objects
from ..gtids import NO_GTIDS, GtidSet
from .chunks import (
    PREFIX_BYTES,
    Chunk,
    ChunkCipher,
    ChunkDamaged,
    ChunkHeader,
    WrongKey,
    chunk_name,
    header_end,
    read_header,
)

DIRECTORY = "mysql/binlog"
INDEX_CHUNKS = 128
_RECENT_SESSIONS = 4
_PARALLEL_READS = 8
_FIRST_READ_BYTES = 4096
_MAX_INDEX_BYTES = 64 << 20
_INDEX_SUFFIX = ".index"


@dataclass(frozen=True, slots=True)
class Run:
    """Chunk numbers without a gap, both ends included."""

    first: int
    last: int


class ChunkStore:
    """Chunks of one cluster, by session and number."""

    def __init__(self, objects: Objects, cipher: ChunkCipher) -> None:
        self._objects, self.cipher = objects, cipher
        self._unindexed: list[ChunkHeader] = []

    def put(self, chunk: Chunk) -> None:
        """Store a chunk. Raises ArchiveError."""
        with suppress(ObjectExists):
            # The name is this process's alone: an earlier attempt succeeded and its response was lost.
            self._objects.create(chunk.header.name, self.cipher.seal(chunk))
        if self._unindexed and self._unindexed[0].session != chunk.header.session:
            self._unindexed = []
        self._unindexed.append(chunk.header)
        if len(self._unindexed) >= INDEX_CHUNKS:
            self._put_index(self._unindexed)
            self._unindexed = []

    def sessions(self) -> list[str]:
        """Return the names of all sessions, sorted by their start. Raises ArchiveError."""
        return self._objects.directories("")

    def headers(self, session: str) -> list[ChunkHeader]:
        """Return the headers of a session's chunks by number. Raises ArchiveError."""
        numbers: list[int] = []
        found: dict[int, ChunkHeader] = {}
        for name in self._objects.names(session):
            last = name.rpartition("/")[2]
            if last.endswith(_INDEX_SUFFIX):
                with suppress(ChunkDamaged, ObjectNotFound):
                    found |= {header.number: header for header in self._read_index(name)}
            elif last.isdigit():
                numbers.append(int(last))
        missing = [number for number in numbers if number not in found]
        with ThreadPoolExecutor(_PARALLEL_READS) as pool:
            found |= {header.number: header for header in pool.map(partial(self.header, session), missing)}
        return [found[number] for number in sorted(numbers)]

    def header(self, session: str, number: int) -> ChunkHeader:
        """Read the header of one chunk. Raises ArchiveError."""
        name = chunk_name(session, number)
        try:
            start = self._objects.read_start(name, _FIRST_READ_BYTES)
            end = header_end(start)
            if end > len(start):
                start = self._objects.read_start(name, end)
            return read_header(start[: max(end, PREFIX_BYTES)])[0]
        except ChunkDamaged as error:
            raise ArchiveError("ArchiveDamaged", f"Binary log chunk {name} is damaged: {error}.") from error
        except ObjectNotFound:
            raise ArchiveError("ArchiveDamaged", f"Binary log chunk {name} is missing.") from None

    def runs(self, session: str) -> list[Run]:
        """Return the unbroken runs of a session's chunk numbers.

        A complete session has one. Raises ArchiveError.
        """
        found: list[Run] = []
        for number in sorted(self._numbers(session)):
            if found and found[-1].last + 1 == number:
                found[-1] = Run(found[-1].first, number)
            else:
                found.append(Run(number, number))
        return found

    def span(self, session: str, run: Run) -> ChunkHeader | None:
        """Return one header for all chunks of a run.

        None if every chunk needs one before the run. Raises ArchiveError.
        """
        for number in range(run.first, run.last + 1):
            start = self.header(session, number)
            if start.starts_in >= run.first:
                return replace(self.header(session, run.last), before=start.before)
        return None

    def read(self, session: str, number: int) -> Chunk:
        """Read a chunk. Raises ArchiveError."""
        name = chunk_name(session, number)
        try:
            return self.cipher.open(self._objects.read(name))
        except WrongKey as error:
            raise ArchiveError("WrongEncryptionKey", f"{_sentence(error)}. Restore its passphrase.") from error
        except ChunkDamaged as error:
            raise ArchiveError("ArchiveDamaged", f"Binary log chunk {name} is damaged: {error}.") from error
        except ObjectNotFound:
            raise ArchiveError("ArchiveDamaged", f"Binary log chunk {name} is missing.") from None

    def newest(self) -> ChunkHeader | None:
        """Return the last chunk of the most complete session.

        None if there is none. Raises ArchiveError.

        A session's name has the clock of its node. So of the most recent sessions, one that contains another's
        transactions is newer, whatever the clocks say.
        """
        newest: ChunkHeader | None = None
        for session in self.sessions()[-_RECENT_SESSIONS:]:
            if not (numbers := self._numbers(session)):
                continue
            last = self.header(session, max(numbers))
            if newest is None or not (newest.after >= last.after and newest.after != last.after):
                newest = last
        return newest

    def archived(self) -> GtidSet:
        """Return the transactions of all sessions, abandoned ones included. Raises ArchiveError."""
        found = NO_GTIDS
        for session in self.sessions():
            if numbers := self._numbers(session):
                found |= self.header(session, max(numbers)).after
        return found

    def expire(self, kept: Sequence[GtidSet]) -> int:
        """Delete chunks that no kept backup needs. Return their number.

        Args:
            kept: transactions of each kept backup.

        Raises:
            ArchiveError: the store failed. Earlier deletions stay in effect.
        """
        deleted = 0
        newest = self.newest()
        for session in self.sessions():
            headers = self.headers(session)
            leads_on = [gtids for gtids in kept if headers and not _was_left(headers[-1].after, gtids)]
            needed = [header for header in headers if not all(gtids >= header.after for gtids in leads_on)]
            if newest is not None and session == newest.session:
                needed.append(newest)  # the next session continues from it
            # A chunk may begin with the rest of a transaction that starts in an earlier one.
            first = min((header.starts_in for header in needed), default=None)
            names = [name for name in self._objects.names(session) if first is None or _number(name) < first]
            self._objects.delete(names)
            deleted += len(names)
        return deleted

    def _numbers(self, session: str) -> list[int]:
        names = (name.rpartition("/")[2] for name in self._objects.names(session))
        return [int(name) for name in names if name.isdigit()]

    def _put_index(self, headers: Sequence[ChunkHeader]) -> None:
        content = zlib.compress(json.dumps([header.to_json() for header in headers]).encode())
        with suppress(ObjectExists):
            self._objects.create(f"{headers[-1].name}{_INDEX_SUFFIX}", content)

    def _read_index(self, name: str) -> Iterator[ChunkHeader]:
        try:
            text = zlib.decompressobj().decompress(self._objects.read(name), _MAX_INDEX_BYTES)
            found: Any = json.loads(text)
        except (zlib.error, ValueError, RecursionError) as error:
            raise ChunkDamaged(f"index {name} is malformed") from error
        if not isinstance(found, list):
            raise ChunkDamaged(f"index {name} is not a list")
        for each in cast("list[Any]", found):
            if isinstance(each, dict):
                yield ChunkHeader.from_json(cast("dict[str, Any]", each))


def _was_left(history: GtidSet, backup: GtidSet) -> bool:
    """Return True if the history of a backup replaced another one.

    After a restore in place or a forced recovery, the backup lacks transactions of the previous history. It has those
    of another group.
    """
    return bool(history - backup) and not history.sources >= backup.sources


def _number(name: str) -> int:
    text = name.rpartition("/")[2].removesuffix(_INDEX_SUFFIX)
    return int(text) if text.isdigit() else -1


def _sentence(error: Exception) -> str:
    text = str(error)
    return text[:1].upper() + text[1:]
