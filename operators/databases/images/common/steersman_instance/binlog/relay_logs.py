"""Turns chunks back into relay logs that a server applies.

Only the transactions up to the target are written, each as a whole. So the applier needs no condition to stop at, and
the cut is exact also with parallel workers.
"""

from __future__ import annotations

import datetime
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from ..gtids import NO_GTIDS, GtidSet
from ..recovery.gtid_plan import BeforeGtid, GtidTarget, ThroughGtid
from ..recovery.target import AtTime
from . import events
from .chunks import Chunk, ChunkHeader
from .events import TransactionStart

BASE_NAME = "relay"
FILE_BYTES = 64 << 20
BATCH_BYTES = 512 << 20  # room that a recovery needs on the volume in addition to the data


@dataclass(frozen=True, slots=True)
class RelayLogBatch:
    """Relay logs that are applied together.

    Args:
        first: name of the first file.
        reached: transactions that the server has once it has applied them.
    """

    directory: Path
    first: str
    reached: GtidSet

    @property
    def base(self) -> Path:
        """Value of the server's variable `relay_log`."""
        return self.directory / BASE_NAME


def is_beyond(target: GtidTarget, start: TransactionStart, reached: GtidSet) -> bool:
    """Return True if a transaction is the first that is not restored.

    Args:
        reached: transactions that are restored.
    """
    match target:
        case AtTime(time):
            epoch = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
            return datetime.timedelta(microseconds=start.committed_at) > time - epoch
        case BeforeGtid(gtids):
            return gtids.has(start.origin, start.number)
        case ThroughGtid(gtids):
            return reached >= gtids
        case _:
            return False


class RelayLogWriter:
    """Writes the relay logs of one recovery, a batch at a time.

    Args:
        directory: for the files and their index; whatever is in it is removed.
        start: transactions that the server has.
        history: transactions that may be written. Others are of an abandoned primary.
    """

    def __init__(
        self,
        directory: Path,
        start: GtidSet,
        target: GtidTarget,
        *,
        history: GtidSet | None = None,
        file_bytes: int = FILE_BYTES,
    ) -> None:
        self.reached = start
        self.last_commit = 0
        """Latest commit that was written, in microseconds since 1970."""
        self.ended = False
        """True once the target cut: later chunks are not needed."""
        self._directory, self._target, self._file_bytes = directory, target, file_bytes
        self._history = history
        self._files: list[str] = []
        self._file: IO[bytes] | None = None
        self._size = 0
        self._previous: ChunkHeader | None = None
        self._open: TransactionStart | None = None
        self._open_at = -1  # position of the open transaction in the file; -1 if it is left out
        self._remaining = 0
        self._begin_batch()

    @property
    def batch_full(self) -> bool:
        """True if the batch must be applied before more is added."""
        return self._size >= BATCH_BYTES and self._open is None

    def add(self, chunk: Chunk) -> None:
        """Write what the server lacks of a chunk. Raises BinaryLogDamaged."""
        header, previous = chunk.header, self._previous
        if previous is None or header.session != previous.session or header.number != previous.number + 1:
            self._drop_open()
        if previous is not None and header.session != previous.session:
            self._close_file()
        self._previous = header
        for event in events.split_events(chunk.content):
            if event.kind in (events.GTID, events.TAGGED_GTID):
                self._drop_open()
                if self._begin(events.transaction_start(event), header):
                    return
            elif event.kind == events.FORMAT_DESCRIPTION:
                self._drop_open()
                if self._file is not None:
                    self._file.write(event.data)
            if self._open is not None:
                self._write(event.data)

    def finish_batch(self) -> RelayLogBatch | None:
        """Close the files. Return None if no transaction was written."""
        self._drop_open()
        self._close_file()
        if not self._files:
            return None
        index = "".join(f"{self._directory / name}\n" for name in self._files)
        (self._directory / f"{BASE_NAME}.index").write_text(index)
        return RelayLogBatch(self._directory, self._files[0], self.reached)

    def next_batch(self) -> None:
        """Remove the files of a batch that was applied."""
        self._begin_batch()

    def _begin_batch(self) -> None:
        shutil.rmtree(self._directory, ignore_errors=True)
        self._directory.mkdir(parents=True)
        self._files, self._size = [], 0

    def _begin(self, start: TransactionStart, header: ChunkHeader) -> bool:
        """Begin a transaction. Return True if the target ends before it."""
        skipped = self.reached.has(start.origin, start.number)
        skipped |= self._history is not None and not self._history.has(start.origin, start.number)
        if not skipped and is_beyond(self._target, start, self.reached):
            self.ended = True
            return True
        self._open, self._remaining, self._open_at = start, start.length, -1
        if not skipped:
            file = self._writable_file(header)
            self._open_at = file.tell()
        return False

    def _write(self, data: bytes) -> None:
        assert self._open is not None
        self._remaining -= len(data)
        if self._remaining < 0:
            raise events.BinaryLogDamaged("a transaction is longer than its GTID event says")
        if self._open_at >= 0:
            assert self._file is not None
            self._file.write(data)
            self._size += len(data)
        if not self._remaining:
            if self._open_at >= 0:
                self.reached = self.reached.add(self._open.origin, self._open.number)
                self.last_commit = max(self.last_commit, self._open.committed_at)
            self._open = None

    def _drop_open(self) -> None:
        """Remove a transaction without its end.

        Another session has it as a whole.
        """
        if self._open is not None and self._open_at >= 0 and self._file is not None:
            self._file.truncate(self._open_at)
            self._file.seek(self._open_at)
        self._open = None

    def _writable_file(self, header: ChunkHeader) -> IO[bytes]:
        if self._file is not None and self._file.tell() < self._file_bytes:
            return self._file
        self._close_file()
        name = f"{BASE_NAME}.{len(self._files) + 1:06d}"
        self._files.append(name)
        self._file = (self._directory / name).open("wb")
        description = header.format_description
        self._file.write(events.MAGIC + description + events.previous_gtids_event(description, NO_GTIDS))
        return self._file

    def _close_file(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None
