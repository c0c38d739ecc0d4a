"""Dumps of one database in its path of the store.

Each is a snapshot of restic with one file: a line of JSON with the accounts, then the output of the dump program.
Tags describe the dump, so the repository is the catalog.
"""

from __future__ import annotations

import datetime
import json
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import IO, Any, cast

from ..archive.errors import ArchiveError
from ..backup.catalog import BaseBackup, Trigger
from ..backup.expiry import Retention
from ..backup.restic import Restic
from ..backup.retention import expirable
from ..recovery.target import format_time

DIRECTORY = "dumps"
FORMAT = 1
_FILE = "dump"
_MARK = "steersman-dump"
_MAX_HEADER = 16 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class DumpInfo:
    """Description of a dump.

    Args:
        id: when it was started, for example `20260501T120000Z`.
        engine: `postgresql` or `mysql`.
        version: of the server, for example `17.5`.
        job: UID of the Backup object, by which a Job's second pod finds the dump of the first.
    """

    id: str
    engine: str
    version: str
    name: str = ""
    trigger: str = "OnDemand"
    job: str = ""

    def tags(self) -> list[str]:
        """Return the description as tags of restic."""
        fields = {"id": self.id, "engine": self.engine, "version": self.version}
        fields |= {"name": self.name, "trigger": self.trigger, "job": self.job}
        return [_MARK, *(f"{name}={value}" for name, value in fields.items() if value)]


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredDump:
    """A complete dump. Sizes are in bytes.

    Args:
        snapshot: restic's id.
        stored: that the dump added to the store.
    """

    info: DumpInfo
    snapshot: str
    start: datetime.datetime
    stop: datetime.datetime
    size: int
    stored: int

    @property
    def id(self) -> str:
        """The id of the dump."""
        return self.info.id

    def entry(self) -> dict[str, Any]:
        """Return the dump for a Job's result."""
        return {
            "id": self.id,
            "type": "Full",
            "start": format_time(self.start),
            "stop": format_time(self.stop),
            "size": self.size,
            "stored": self.stored,
            "dependsOn": [],
            "version": self.info.version,
            **({"name": self.info.name} if self.info.name else {}),
        }

    def retained(self) -> BaseBackup:
        """Return the input of retention. Each dump is complete."""
        return BaseBackup(
            id=self.id,
            type="Full",
            start=self.start,
            stop=self.stop,
            timeline=0,
            start_lsn=0,
            stop_lsn=0,
            trigger=cast(Trigger, self.info.trigger),
        )


class DumpArchive:
    """All dumps of one database."""

    def __init__(self, restic: Restic) -> None:
        self._restic = restic

    def open(self) -> None:
        """Create a missing repository. Raises ArchiveError."""
        self._restic.open()

    def dumps(self) -> list[StoredDump]:
        """Return all dumps, oldest first. Raises ArchiveError."""
        found = [dump for each in self._restic.descriptions() if (dump := _parse(each)) is not None]
        return sorted(found, key=lambda dump: (dump.stop, dump.id))

    def add(self, info: DumpInfo, accounts: Mapping[str, object], chunks: Iterable[bytes], host: str) -> StoredDump:
        """Store a dump. An error of `chunks` leaves none. Raises ArchiveError."""
        header = json.dumps({"format": FORMAT, "accounts": accounts}).encode() + b"\n"

        def content() -> Generator[bytes]:
            yield header
            yield from chunks

        start = datetime.datetime.now(datetime.UTC)
        stored = self._restic.backup_stream(content(), _FILE, info.tags(), host)
        return StoredDump(
            info=info,
            snapshot=stored.id,
            start=start,
            stop=datetime.datetime.now(datetime.UTC),
            size=stored.size,
            stored=stored.added,
        )

    @contextmanager
    def read(self, dump: StoredDump) -> Generator[tuple[Mapping[str, Any], IO[bytes]]]:
        """Yield the accounts and the output of the dump program. Raises ArchiveError."""
        with self._restic.read_stream(dump.snapshot, _FILE) as stream:
            header = stream.readline(_MAX_HEADER)
            yield _accounts(dump, header), stream

    def remove(self, ids: Sequence[str]) -> None:
        """Remove dumps, and data that no other has. Raises ArchiveError."""
        self._restic.forget([dump.snapshot for dump in self.dumps() if dump.id in ids], prune=True)

    def apply_retention(self, retention: Retention, now: datetime.datetime) -> tuple[str, ...]:
        """Remove what retention does not need and return the ids. Raises ArchiveError."""
        backups = [dump.retained() for dump in self.dumps()]
        ids = expirable(backups, retention.policy, now, retain_until=retention.held)
        if ids:
            self.remove(ids)
        return ids


def dump_id(start: datetime.datetime) -> str:
    """Return the id of a dump that starts now."""
    return f"{start.astimezone(datetime.UTC):%Y%m%dT%H%M%SZ}"


def _accounts(dump: StoredDump, header: bytes) -> Mapping[str, Any]:
    try:
        found: Any = json.loads(header)
        if found["format"] == FORMAT and isinstance(found["accounts"], dict):
            return cast("dict[str, Any]", found["accounts"])
    except (ValueError, KeyError, TypeError, RecursionError):
        pass
    raise ArchiveError("ArchiveDamaged", f"Dump {dump.id} has no header of this release: use a newer image.")


def _parse(description: Mapping[str, Any]) -> StoredDump | None:
    """Return a snapshot's dump. None for other snapshots."""
    tags: list[Any] = description.get("tags") or []
    if _MARK not in tags:
        return None
    fields = dict(str(tag).split("=", 1) for tag in tags if "=" in str(tag))
    summary: Mapping[str, Any] = description.get("summary") or {}
    try:
        time = datetime.datetime.fromisoformat(str(description["time"]))
        stop = datetime.datetime.fromisoformat(str(summary.get("backup_end", description["time"])))
        return StoredDump(
            info=DumpInfo(
                id=fields["id"],
                engine=fields["engine"],
                version=fields["version"],
                name=fields.get("name", ""),
                trigger=fields.get("trigger", "OnDemand"),
                job=fields.get("job", ""),
            ),
            snapshot=str(description["id"]),
            start=time.astimezone(datetime.UTC),
            stop=stop.astimezone(datetime.UTC),
            size=int(summary.get("total_bytes_processed", 0)),
            stored=int(summary.get("data_added_packed") or summary.get("data_added") or 0),
        )
    except (KeyError, TypeError, ValueError):
        return None
