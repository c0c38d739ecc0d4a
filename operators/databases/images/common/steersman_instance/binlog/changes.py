"""Changes between two moments, from the archived binary log.

It only reads the archive. mysqlbinlog decodes the rows, and their values are not kept.
"""

from __future__ import annotations

import datetime
import os
import re
import subprocess
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO

from ..archive.errors import ArchiveError
from ..backup.mysql_base import open_archive
from ..gtids import NO_GTIDS
from ..jobs import JobFields, JobRefused, Result, log, require_store
from ..paths import InstancePaths
from ..recovery.gtid_plan import complete, contents
from ..recovery.mysql_restore import chunk_contents
from ..recovery.target import InvalidTarget, format_time, parse_time
from . import events
from .chunk_store import ChunkStore
from .chunks import Chunk, ChunkHeader
from .events import Event, TransactionStart

MAX_TABLES = 500
MAX_STATEMENTS = 100
_MAX_STATEMENT_LENGTH = 200
_FILE_BYTES = 64 << 20
_QUERY = 2
# Table maps, rows of both formats, partial updates of JSON, and compressed transactions.
_WITH_ROWS = frozenset({19, 23, 24, 25, 30, 31, 32, 39, 40})
_QUERY_HEADER_BYTES = 13
_COMMENT = re.compile(r"\s*/\*.*?\*/", re.DOTALL)
# Statements about accounts have verifiers of passwords.
_DEFINITION = re.compile(
    r"\s*(?:CREATE|ALTER|DROP|TRUNCATE|RENAME)\s+(?:OR\s+REPLACE\s+|TEMPORARY\s+|UNIQUE\s+|DEFINER\s*=\s*\S+\s+)*"
    r"(?:TABLE|TABLES|DATABASE|SCHEMA|INDEX|VIEW|TRIGGER|EVENT|PROCEDURE|FUNCTION)\b",
    re.IGNORECASE,
)
_ROWS = re.compile(rb"### (INSERT INTO|UPDATE|DELETE FROM) (`(?:[^`]|``)+`)\.(`(?:[^`]|``)+`)$")
_KINDS = {b"INSERT INTO": "inserted", b"UPDATE": "updated", b"DELETE FROM": "deleted"}
_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)


@dataclass(frozen=True, slots=True)
class Period:
    """Two moments in microseconds since 1970, both included."""

    first: int
    last: int

    @classmethod
    def parse(cls, job: JobFields) -> Period:
        """Return the period of job.json. Raises JobRefused."""
        try:
            first, last = (parse_time(job.text(name)) for name in ("from", "to"))
        except InvalidTarget as error:
            raise JobRefused("InvalidJob", f"job.json: {error}.") from None
        if first > last:
            raise JobRefused("InvalidJob", "The period ends before it begins.")
        return cls(*((each - _EPOCH) // datetime.timedelta(microseconds=1) for each in (first, last)))


@dataclass(slots=True)
class Changes:
    """Changes of a period.

    Args:
        rows: numbers by database, table and kind.
        definitions: time, default database and statement.
    """

    transactions: int = 0
    first: int = 0
    last: int = 0
    rows: Counter[tuple[str, str, str]] = field(default_factory=Counter[tuple[str, str, str]])
    definitions: list[tuple[int, str, str]] = field(default_factory=list[tuple[int, str, str]])
    omitted_definitions: int = 0

    def result(self) -> dict[str, object]:
        """Return the changes for the report. Tables with the most rows come first."""
        tables: dict[tuple[str, str], dict[str, int]] = {}
        for (database, table, kind), count in self.rows.items():
            tables.setdefault((database, table), {})[kind] = count
        ordered = sorted(tables.items(), key=lambda found: (-sum(found[1].values()), found[0]))
        return {
            "transactions": self.transactions,
            "first": _text(self.first),
            "last": _text(self.last),
            "tables": [
                {"database": database, "table": table, **counts} for (database, table), counts in ordered[:MAX_TABLES]
            ],
            "omittedTables": max(len(ordered) - MAX_TABLES, 0),
            "definitions": [
                {"time": _text(time), "database": database, "statement": statement}
                for time, database, statement in self.definitions
            ],
            "omittedDefinitions": self.omitted_definitions,
        }


def run(job: JobFields, paths: InstancePaths) -> Result:
    """Count the changes of a period. Return the report for the user.

    Raises:
        JobRefused: the period has more binary log than permitted.
        ArchiveError: the store failed, or the archive is damaged.
    """
    period, limit = Period.parse(job), job.number("max_bytes", 1, 1 << 50)
    archive = open_archive(require_store(paths.store_file), replace(paths, run=paths.run / "source"), read_only=True)
    headers = _of_period(archive.chunks, period)
    size = sum(header.size for header in headers)
    if size > limit:
        raise JobRefused(
            "TooMuchLog",
            f"The period has {size >> 20} MiB of binary log, and {limit >> 20} MiB are permitted. Choose a shorter"
            " period, or raise --max-size.",
        )
    log(f"reading {len(headers)} chunks of the binary log")
    try:
        with tempfile.TemporaryDirectory() as directory:
            counter = ChangeCounter(period, Path(directory))
            for chunk in chunk_contents(archive, headers):
                counter.add(chunk)
            counter.finish()
    except events.BinaryLogDamaged as error:
        raise ArchiveError("ArchiveDamaged", f"A binary log chunk is damaged: {error}.") from error
    newest = archive.chunks.newest()
    until = newest.last if newest is not None else 0
    report = {**counter.changes.result(), "missing": _missing(headers), "archivedUntil": _text(until)}
    return {"changes": report}


def _of_period(chunks: ChunkStore, period: Period) -> list[ChunkHeader]:
    """Return the complete chunks with commits of a period."""
    found: list[ChunkHeader] = []
    for session in chunks.sessions():
        runs = chunks.runs(session)
        if not runs or 0 < chunks.header(session, runs[-1].last).last < period.first:
            continue
        headers = complete(chunks.headers(session))
        found += [each for each in headers if each.last >= period.first and 0 < each.first <= period.last]
    return found


def _missing(headers: Sequence[ChunkHeader]) -> int:
    """Return the number of transactions between the chunks that the archive lacks."""
    if not headers:
        return 0
    before = min((each.before for each in headers), key=len)
    reached = NO_GTIDS
    for each in headers:
        reached |= each.after
    return len(reached - before - contents(headers))


class ChangeCounter:
    """Counts the changes in chunks. Each transaction counts once, although sessions overlap.

    Args:
        directory: for a file of at most 64 MiB and one transaction.
    """

    def __init__(self, period: Period, directory: Path) -> None:
        self.changes = Changes()
        self._period = period
        self._path = directory / "binlog"
        self._seen = NO_GTIDS
        self._open: TransactionStart | None = None
        self._remaining = 0
        self._open_at = 0
        self._queries: list[Event] = []
        self._file: IO[bytes] | None = None
        self._previous: ChunkHeader | None = None

    def add(self, chunk: Chunk) -> None:
        """Count a chunk. Raises BinaryLogDamaged."""
        header, previous = chunk.header, self._previous
        if previous is None or header.session != previous.session or header.number != previous.number + 1:
            self._drop_open()
        self._previous = header
        for event in events.split_events(chunk.content):
            if event.kind == events.FORMAT_DESCRIPTION:
                self._drop_open()
                continue
            if event.kind in (events.GTID, events.TAGGED_GTID):
                self._begin(events.transaction_start(event), header)
            if self._open is not None:
                self._take(self._open, event, header)

    def finish(self) -> None:
        """Count the last file. Raises BinaryLogDamaged."""
        self._drop_open()
        if self._file is None:
            return
        self._file.close()
        self._file = None
        for line in _decoded(self._path):
            if (found := _ROWS.match(line)) is not None:
                kind, database, table = found.groups()
                self.changes.rows[_unquoted(database), _unquoted(table), _KINDS[kind]] += 1
        self._path.unlink()

    def _begin(self, start: TransactionStart, header: ChunkHeader) -> None:
        self._drop_open()
        is_wanted = self._period.first <= start.committed_at <= self._period.last
        if not is_wanted or self._seen.has(start.origin, start.number):
            return
        if self._file is not None and self._file.tell() >= _FILE_BYTES:
            self.finish()
        if self._file is None:
            self._file = self._path.open("wb")
            self._file.write(events.MAGIC + header.format_description)
        self._open, self._remaining, self._queries = start, start.length, []
        self._open_at = self._file.tell()

    def _take(self, start: TransactionStart, event: Event, header: ChunkHeader) -> None:
        assert self._file is not None
        self._remaining -= len(event.data)
        if self._remaining < 0:
            raise events.BinaryLogDamaged("a transaction is longer than its GTID event says")
        if event.kind in _WITH_ROWS:
            # Statements of users do not reach the output of mysqlbinlog.
            self._file.write(event.data)
        elif event.kind == _QUERY and len(self._queries) < MAX_STATEMENTS:
            self._queries.append(event)
        if self._remaining:
            return
        for query in self._queries:
            self._define(start, query.data, header)
        changes = self.changes
        changes.transactions += 1
        changes.first = min(changes.first or start.committed_at, start.committed_at)
        changes.last = max(changes.last, start.committed_at)
        self._seen, self._open = self._seen.add(start.origin, start.number), None

    def _drop_open(self) -> None:
        """Remove a transaction without its end. Another session has it as a whole."""
        if self._open is not None and self._file is not None:
            self._file.truncate(self._open_at)
            self._file.seek(self._open_at)
        self._open = None

    def _define(self, start: TransactionStart, data: bytes, header: ChunkHeader) -> None:
        database, statement = query_of(data, has_checksum=events.has_checksum(header.format_description))
        if _DEFINITION.match(_COMMENT.sub("", statement, count=1)) is None:
            return
        if len(self.changes.definitions) >= MAX_STATEMENTS:
            self.changes.omitted_definitions += 1
            return
        shown = "".join(character if character.isprintable() else " " for character in statement)
        self.changes.definitions.append((start.committed_at, database, shown[:_MAX_STATEMENT_LENGTH]))


def query_of(data: bytes, *, has_checksum: bool) -> tuple[str, str]:
    """Decode a query event: default database and statement. Raises BinaryLogDamaged.

    Source: MySQL 9.7, libs/mysql/binlog/event/statement_events.h (Query_event).
    """
    body = data[events.HEADER_BYTES : -events.CHECKSUM_BYTES if has_checksum else None]
    if len(body) < _QUERY_HEADER_BYTES:
        raise events.BinaryLogDamaged("a query event is too short")
    database_length, status_length = body[8], int.from_bytes(body[11:13], "little")
    start = _QUERY_HEADER_BYTES + status_length
    database = body[start : start + database_length]
    statement = body[start + database_length + 1 :][: 16 * _MAX_STATEMENT_LENGTH]
    return database.decode(errors="replace"), statement.decode(errors="replace")


def _decoded(path: Path) -> Iterator[bytes]:
    """Yield the lines of mysqlbinlog. Raises BinaryLogDamaged."""
    command = ("mysqlbinlog", "--no-defaults", "--base64-output=DECODE-ROWS", "--verbose", str(path))
    with tempfile.TemporaryFile() as failure:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=failure, env=dict(os.environ))
        assert process.stdout is not None
        try:
            # A line has one value, and may be as long as it.
            while line := process.stdout.readline(1 << 20):
                yield line.rstrip(b"\n")
            code = process.wait()
        finally:
            process.kill()
            process.wait()
            process.stdout.close()
        if code:
            failure.seek(0)
            text = failure.read(300).decode(errors="replace").strip()
            raise events.BinaryLogDamaged(f"mysqlbinlog failed: {text}")


def _unquoted(name: bytes) -> str:
    return name[1:-1].replace(b"``", b"`").decode(errors="replace")


def _text(microseconds: int) -> str | None:
    return format_time(_EPOCH + datetime.timedelta(microseconds=microseconds)) if microseconds else None
