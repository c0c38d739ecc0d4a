"""Commands of pgBackRest on one archive: listing, reading, and everything that writes."""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..archive.errors import ArchiveError, classify
from ..archive.pgbackrest import STANZA, write_configuration
from ..archive.process import run_pgbackrest, run_program
from ..archive.repository import Repository as OwnedRepository
from ..archive.store_file import Store
from ..paths import InstancePaths
from ..recovery.timelines import MAX_HISTORY_BYTES, Fork, InvalidHistory, Timelines, parse_history
from ..recovery.wal import InvalidWalName, Segment, SegmentRanges, SegmentSize
from .catalog import ArchivedDatabase, BaseBackup, Catalog, InvalidCatalog, parse_info

READ_SECONDS = 120.0
# Seconds of one attempt. Its retries nest, so that a refused connection takes pgBackRest 2.55 nine times as long.
IO_TIMEOUT = "--io-timeout=5"
LIST_SECONDS = 600.0
_SEGMENT_FILE = re.compile(r"([0-9A-F]{24})-[0-9a-f]{40}(?:\.(gz|lz4|zst|bz2))?")
_HISTORY_FILE = re.compile(r"([0-9A-F]{8})\.history")


@dataclass(frozen=True, slots=True)
class ArchivedWal:
    """The WAL of one database in an archive.

    Args:
        files: path in the repository of each segment.
        history_times: when each history file was stored, in seconds of the epoch.
    """

    size: SegmentSize
    files: Mapping[Segment, str]
    ranges: SegmentRanges
    timelines: Timelines
    history_times: Mapping[int, float]


class Repository:
    """The archive of a cluster's path in an object store.

    Args:
        paths: the configuration is rendered below ``paths.run``, so two archives need two of them.
    """

    def __init__(self, store: Store, paths: InstancePaths) -> None:
        self.store = store
        self._paths = paths

    def run(
        self,
        command: str,
        *arguments: str,
        options: Sequence[str] = (),
        seconds: float = READ_SECONDS,
        give_up: Callable[[], bool] | None = None,
    ) -> str:
        """Run a command of pgBackRest. Return its standard output.

        Raises:
            ArchiveError: it failed, or did not end in time.
        """
        return run_pgbackrest(
            self.store, command, *arguments, seconds=seconds, options=options, give_up=give_up, paths=self._paths
        )

    def check_ownership(self) -> None:
        """Refuse a path that bears another cluster's UID.

        Raises:
            ArchiveError: it does, or the store cannot be read.
        """
        OwnedRepository(self.store, self._paths).check_ownership(READ_SECONDS)

    def configuration(self) -> Path:
        """Render the configuration. Return its path."""
        return write_configuration(self.store, self._paths)

    def catalog(self) -> Catalog:
        """Return the backups of the archive.

        Raises:
            ArchiveError: the store or the archive cannot be read.
        """
        text = self.run("info", options=["--output=json", IO_TIMEOUT], seconds=LIST_SECONDS)
        # The exit code is 0 whatever happened to the repository.
        for message in _repository_errors(text):
            raise classify(self.store, 0, message)
        try:
            return parse_info(text)
        except InvalidCatalog as error:
            raise ArchiveError(
                "ArchiveDamaged", f"The archive at {self.store.root} cannot be used: {error}."
            ) from None

    def wal(self, database: ArchivedDatabase, backups: Sequence[BaseBackup]) -> ArchivedWal:
        """Return the WAL and the timelines of a database.

        Raises:
            ArchiveError: the store cannot be read, or a history file is malformed.
        """
        directory = f"archive/{STANZA}/{database.archive}"
        listing = self._list(directory)
        names = {name: f"{directory}/{path}" for path in listing if (name := _segment_name(path))}
        size = _segment_size(names, backups)
        files: dict[Segment, str] = {}
        for name, path in names.items():
            try:
                files[size.parse(name)] = path
            except InvalidWalName as error:
                raise self._damaged(str(error)) from None
        times = {
            int(found[1], 16): time for path, time in listing.items() if (found := _HISTORY_FILE.fullmatch(path))
        }
        histories = {number: self._history(directory, number) for number in times}
        histories = {number: forks for number, forks in histories.items() if forks}
        known = {*histories, *(segment.timeline for segment in files), *(backup.timeline for backup in backups)}
        timelines = Timelines(histories, frozenset(known))
        return ArchivedWal(size, files, SegmentRanges.collect(files), timelines, times)

    def read(self, path: str, destination: Path) -> None:
        """Store the decrypted content of a file of the repository.

        Raises:
            ArchiveError: it cannot be read.
        """
        config = f"--config={self.configuration()}"
        command = ["pgbackrest", config, f"--stanza={STANZA}", IO_TIMEOUT, "repo-get", path]
        with destination.open("wb") as file:
            done = run_program(command, READ_SECONDS, output=file)
        if done.code is None:
            raise classify(self.store, 0, "timeout after")
        if done.code:
            raise classify(self.store, done.code, done.errors)

    def _history(self, directory: str, timeline: int) -> tuple[Fork, ...]:
        with tempfile.TemporaryDirectory() as name:
            file = Path(name) / "history"
            self.read(f"{directory}/{timeline:08X}.history", file)
            with file.open(encoding="utf-8", errors="replace") as content:
                text = content.read(MAX_HISTORY_BYTES + 1)
        try:
            return parse_history(timeline, text)
        except InvalidHistory as error:
            raise self._damaged(str(error)) from None

    def _list(self, directory: str) -> Mapping[str, float]:
        """Return the files below a directory with their times. A missing directory has none."""
        text = self.run(
            "repo-ls", directory, options=["--output=json", "--recurse", IO_TIMEOUT], seconds=LIST_SECONDS
        )
        try:
            found: dict[str, dict[str, Any]] = json.loads(text or "{}")
            return {path: float(each.get("time", 0)) for path, each in found.items() if each["type"] == "file"}
        except (ValueError, TypeError, KeyError, AttributeError):
            raise self._damaged("pgBackRest lists files in an unknown form") from None

    def _damaged(self, detail: str) -> ArchiveError:
        return ArchiveError("ArchiveDamaged", f"The archive at {self.store.root} cannot be used: {detail}.")


def _segment_name(path: str) -> str | None:
    found = _SEGMENT_FILE.fullmatch(path.rpartition("/")[2])
    return found[1] if found else None


def _segment_size(names: Mapping[str, str], backups: Sequence[BaseBackup]) -> SegmentSize:
    """Return the segment size that fits the backups' positions.

    Names depend on it.

    A size fits if each backup starts in a segment that is in the archive. Without a match it is PostgreSQL's default.
    """
    starts = [backup for backup in backups if not backup.offline][-8:]
    for size in (SegmentSize(), *(SegmentSize(1 << exponent) for exponent in range(20, 31) if exponent != 24)):
        expected = (size.name(Segment(each.timeline, size.number(each.start_lsn))) for each in starts)
        if starts and all(name in names for name in expected):
            return size
    return SegmentSize()


def _repository_errors(text: str) -> list[str]:
    """Return the messages of repositories that could not be read. Code 99 is any failure."""
    try:
        found: list[dict[str, Any]] = json.loads(text or "[]", strict=False)
        states = [repo["status"] for stanza in found for repo in stanza.get("repo", ())]
        return [str(state["message"]) for state in states if state["code"] == 99]
    except ValueError:
        # Only the garbage of a wrong passphrase, quoted in a message, makes the report unreadable.
        return [text]
    except (TypeError, KeyError, AttributeError):
        return []
