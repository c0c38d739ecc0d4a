"""The archive in pgBackRest's repository: pushes and looks up WAL files."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO, Any, cast

from ..files import read_json, replace_file
from ..paths import PATHS, InstancePaths
from .errors import EXIT_ARCHIVE_DUPLICATE, ArchiveError
from .ownership import OWNERSHIP_FILE, claims_path, ownership_content, require_owner
from .pgbackrest import PROCESS_TIMEOUT_SECONDS, STANZA
from .pod_identity import require_gcp_account
from .process import run_pgbackrest
from .record import state_directory
from .segments import directory_of, is_stored, newest_archive_id
from .store_file import Store

_IO_TIMEOUT = f"--io-timeout={PROCESS_TIMEOUT_SECONDS}"


class Repository:
    """Runs pgBackRest for the archive of one cluster. Methods raise `ArchiveError`."""

    def __init__(self, store: Store, paths: InstancePaths = PATHS) -> None:
        self._store = store
        self._paths = paths
        self._prepared = state_directory(paths) / "prepared.json"
        self._listing = state_directory(paths) / "listing.json"

    def push(self, name: str, seconds: float, give_up: Callable[[], bool]) -> None:
        """Store a WAL file of the data directory."""
        if read_json(self._prepared).get("store") != self._store.identity:
            self.prepare(seconds, give_up)
        path = str(self._paths.postgresql_data / "pg_wal" / name)
        try:
            self.run("archive-push", path, seconds=seconds, give_up=give_up)
        except ArchiveError as error:
            if error.code == EXIT_ARCHIVE_DUPLICATE:
                # A replica's copy may differ after the end of its timeline. The stored file stays.
                return
            if error.reason not in ("StoreUnreachable", "StoreUnresponsive", "StoreFull"):
                self._prepared.unlink(missing_ok=True)
            raise

    def has(self, name: str, seconds: float, give_up: Callable[[], bool]) -> bool:
        """Return True if a file is stored. A listing covers all files of its directory that it contains."""
        known = read_json(self._listing)
        if known.get("store") == self._store.identity and is_stored(name, _names(known.get("names"))):
            return True
        archive_id = known.get("id") if known.get("store") == self._store.identity else None
        if not isinstance(archive_id, str) or not archive_id:
            major = (self._paths.postgresql_data / "PG_VERSION").read_text().strip()
            archive_id = newest_archive_id(self.list(f"archive/{STANZA}", seconds, give_up), major)
        if not archive_id:
            return False
        names = self.list(directory_of(archive_id, name, STANZA), seconds, give_up)
        content = {"store": self._store.identity, "id": archive_id, "names": names}
        replace_file(self._listing, json.dumps(content))
        return is_stored(name, names)

    def prepare(self, seconds: float, give_up: Callable[[], bool] | None = None) -> None:
        """Check the owner of the path, and ensure the stanza.

        This happens once per pod and store.
        """
        self.check_ownership(seconds, give_up)
        major = (self._paths.postgresql_data / "PG_VERSION").read_text().strip()
        present = newest_archive_id(self.list(f"archive/{STANZA}", seconds, give_up)).partition("-")[0]
        upgrade = bool(present) and float(present) < float(major)
        # An existing stanza of this system is left as it is; one of another system is refused.
        self.run(
            "stanza-upgrade" if upgrade else "stanza-create",
            options=["--no-online", _IO_TIMEOUT],
            seconds=seconds,
            give_up=give_up,
        )
        replace_file(self._prepared, json.dumps({"store": self._store.identity}))

    def check_ownership(self, seconds: float, give_up: Callable[[], bool] | None = None) -> None:
        """Reject a path with another cluster's UID.

        The source of a clone has one, for example.
        """
        require_gcp_account(self._store)
        text = self._owner(seconds, give_up)
        if not text and claims_path(self._store):
            self.claim(seconds, give_up)
            text = self._owner(seconds, give_up)
        require_owner(self._store, text)

    def claim(self, seconds: float, give_up: Callable[[], bool] | None = None) -> None:
        """Create ``steersman.json`` for this cluster."""
        with tempfile.TemporaryFile() as content:
            content.write(ownership_content(self._store))
            content.seek(0)
            options = [*self._unencrypted, _IO_TIMEOUT]
            self.run("repo-put", OWNERSHIP_FILE, options=options, seconds=seconds, give_up=give_up, content=content)

    @property
    def _unencrypted(self) -> Sequence[str]:
        # The file is outside the repository and is not encrypted.
        return [f"--repo1-path=/{self._store.root}", "--repo1-cipher-type=none"]

    def _owner(self, seconds: float, give_up: Callable[[], bool] | None) -> str:
        """Return the content of ``steersman.json``.

        It is empty if the object does not exist yet, or was deleted.
        """
        options = [*self._unencrypted, "--ignore-missing", _IO_TIMEOUT]
        try:
            return self.run("repo-get", OWNERSHIP_FILE, options=options, seconds=seconds, give_up=give_up)
        except ArchiveError as error:
            if error.code == 1:
                return ""
            raise

    def list(self, path: str, seconds: float, give_up: Callable[[], bool] | None = None) -> list[str]:
        """Return the names in a directory of the repository, if any."""
        return [name for name in self.entries(path, seconds, give_up) if name != "."]

    def entries(
        self, path: str, seconds: float, give_up: Callable[[], bool] | None = None
    ) -> Mapping[str, Mapping[str, Any]]:
        """Return type, size and time of a repository directory's entries."""
        options = ["--output=json", _IO_TIMEOUT]
        text = self.run("repo-ls", path, options=options, seconds=seconds, give_up=give_up)
        try:
            entries: Any = json.loads(text or "{}")
        except (ValueError, RecursionError):
            raise ArchiveError("ArchiveFailed", "pgBackRest printed a listing that is not JSON.") from None
        return cast("dict[str, dict[str, Any]]", entries) if isinstance(entries, dict) else {}

    def run(
        self,
        command: str,
        *arguments: str,
        seconds: float,
        options: Sequence[str] = (_IO_TIMEOUT,),
        give_up: Callable[[], bool] | None = None,
        content: IO[bytes] | None = None,
    ) -> str:
        """Run a command of pgBackRest. Return its output."""
        return run_pgbackrest(
            self._store,
            command,
            *arguments,
            seconds=seconds,
            options=options,
            give_up=give_up,
            content=content,
            paths=self._paths,
        )


def _names(value: object) -> list[str]:
    return [each for each in cast("list[object]", value) if isinstance(each, str)] if isinstance(value, list) else []


def waiting_files(data: Path, limit: int = 100_000) -> list[str]:
    """Return the WAL files that wait for archiving, oldest first."""
    try:
        entries = [entry.name for entry in (data / "pg_wal/archive_status").iterdir() if entry.suffix == ".ready"]
    except OSError:
        return []
    return sorted(entry.removesuffix(".ready") for entry in entries)[:limit]
