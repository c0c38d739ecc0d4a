"""Facts from the content of archived WAL, by pg_waldump.

Source: PostgreSQL's documentation of pg_waldump, and src/backend/access/rmgrdesc (xactdesc.c, xlogdesc.c).
"""

from __future__ import annotations

import bz2
import datetime
import gzip
import os
import re
import subprocess
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from ..archive.errors import ArchiveError
from ..backup.repository import ArchivedWal, Repository
from .wal import Segment, parse_lsn
from .zstd import InvalidZstd, decompress

_TRANSACTION = re.compile(r"desc: (?:COMMIT|ABORT)(?:_PREPARED)? .*?(\d{4,6}-\d\d-\d\d \d\d:\d\d:\d\d(?:\.\d+)?) UTC")
_COMMIT = re.compile(
    r"lsn: ([0-9A-F]+/[0-9A-F]+), prev .*?desc: COMMIT(?:_PREPARED)? .*?"
    r"(\d{4,6}-\d\d-\d\d \d\d:\d\d:\d\d(?:\.\d+)?) UTC"
)
_END_OF_RECOVERY = re.compile(
    r"desc: END_OF_RECOVERY tli (\d+);.*?time (\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?:\.\d+)?) UTC"
)
_RESTORE_POINT = re.compile(r"lsn: ([0-9A-F]+/[0-9A-F]+), prev .*?desc: RESTORE_POINT (.*)$")


@dataclass(frozen=True, slots=True)
class Commit:
    """A commit record, with the position of its first byte."""

    lsn: int
    time: datetime.datetime


class WalReader:
    """Reads archived segments, one at a time.

    The newest stays on disk, since callers read it again.

    Args:
        directory: an empty directory with room for one segment.
    """

    def __init__(self, repository: Repository, wal: ArchivedWal, directory: Path) -> None:
        self._repository = repository
        self._wal = wal
        self._directory = directory
        self._current: Segment | None = None

    def begin(self, timeline: int) -> datetime.datetime | None:
        """Return the start of a timeline.

        The promoted server writes it, otherwise its history file has it.
        """
        parent = self._wal.timelines.parent(timeline)
        if parent is None:
            return None
        segment = Segment(timeline, self._wal.size.number(parent.end))
        if segment in self._wal.files:
            for found in self._search(segment, "XLOG", _END_OF_RECOVERY):
                if int(found[1]) == timeline:
                    return _time(found[2])
        stored = self._wal.history_times.get(timeline)
        return datetime.datetime.fromtimestamp(stored, datetime.UTC) if stored else None

    def last_commit(
        self, segments: Iterator[Segment], until: datetime.datetime | None = None
    ) -> datetime.datetime | None:
        """Return the last commit or abort time of newest-first segments.

        Args:
            until: the latest time that counts.
        """
        for segment in segments:
            found = self._search(segment, "Transaction", _TRANSACTION, last_only=until is None)
            times = [time for each in found if (time := _time(each[1])) <= (until or time)]
            if times:
                return times[-1]
        return None

    def first_commit(self, segments: Iterator[Segment]) -> datetime.datetime | None:
        """Return the first time in the newest segment that has any."""
        for segment in segments:
            if found := self._search(segment, "Transaction", _TRANSACTION):
                return _time(found[0][1])
        return None

    def commits(self, segment: Segment) -> Sequence[Commit]:
        """Return the commits of a segment in order.

        One that continues in the next segment is left out.
        """
        found = self._search(segment, "Transaction", _COMMIT)
        return [Commit(parse_lsn(each[1]), _time(each[2])) for each in found]

    def restore_point(self, segments: Iterator[Segment], name: str) -> int | None:
        """Return the newest position of a restore point's name.

        Segments come newest first.
        """
        for segment in segments:
            points = [found for found in self._search(segment, "XLOG", _RESTORE_POINT) if found[2] == name]
            if points:
                return parse_lsn(points[-1][1])
        return None

    def _search(
        self, segment: Segment, manager: str, pattern: re.Pattern[str], *, last_only: bool = False
    ) -> list[re.Match[str]]:
        """Return the matches in a segment's records of a resource manager."""
        name = self._fetch(segment)
        command = ["pg_waldump", f"--rmgr={manager}", f"--path={self._directory}", name]
        environment = {**os.environ, "TZ": "UTC", "LC_ALL": "C"}
        found: list[re.Match[str]] = []
        # The last record continues in the next segment, so an error at the end is normal.
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, errors="replace", env=environment
        ) as process:
            assert process.stdout is not None
            for line in process.stdout:
                if match := pattern.search(line.rstrip("\n")):
                    if last_only:
                        found.clear()
                    found.append(match)
        return found

    def _fetch(self, segment: Segment) -> str:
        """Store a segment in the directory. Return its name."""
        name = self._wal.size.name(segment)
        if segment != self._current:
            for file in self._directory.iterdir():
                file.unlink()
            self._current = None
            path = self._wal.files[segment]
            packed = self._directory / "packed"
            self._repository.read(path, packed)
            content = _unpack(path, packed.read_bytes(), self._wal.size.bytes)
            packed.unlink()
            if content is None or len(content) != self._wal.size.bytes:
                raise ArchiveError("ArchiveDamaged", f"WAL segment {name} of the archive is damaged.")
            (self._directory / name).write_bytes(content)
            self._current = segment
        return name


def _unpack(path: str, content: bytes, limit: int) -> bytes | None:
    """Return the decompressed content of a segment.

    None if it is damaged.
    """
    readers: dict[str, Callable[[bytes], bytes]] = {
        ".zst": lambda packed: decompress(packed, limit),
        ".gz": gzip.decompress,
        ".bz2": bz2.decompress,
    }
    try:
        return readers[Path(path).suffix](content) if Path(path).suffix in readers else content
    except (OSError, EOFError, InvalidZstd):
        return None


def _time(text: str) -> datetime.datetime:
    return datetime.datetime.fromisoformat(text).replace(tzinfo=datetime.UTC)
