"""Runs restic on a repository of base backups or dumps.

Passphrase, keys and authority are in files that only this program reads. Neither arguments nor the environment have
a secret. Source: restic's manual, "Scripting" for exit codes and JSON.
"""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, cast

from ..archive.errors import ArchiveError, Reason, classify, describe
from ..archive.pod_identity import IDENTITY_VARIABLES, require_pod_identity
from ..archive.store_ca import write_ca
from ..archive.store_file import Store
from ..files import replace_file
from ..paths import PATHS, InstancePaths

DIRECTORY = "mysql/base"
_NO_REPOSITORY, _WRONG_PASSWORD = 10, 12
_REASONS: Mapping[int, Reason] = {_NO_REPOSITORY: "ArchiveDamaged", _WRONG_PASSWORD: "WrongEncryptionKey"}
_MAX_LINE = 1 << 20
_DISABLED_PASSPHRASE = "encryption is disabled"  # noqa: S105  restic has no repositories without one


@dataclass(frozen=True, slots=True)
class StoredSnapshot:
    """A snapshot that `restic backup` made.

    Args:
        id: restic's, 64 hexadecimal digits.
        size: bytes of the files.
        added: bytes that the snapshot added to the store.
    """

    id: str
    size: int
    added: int


class Restic:
    """One repository. Only one Job works on it at a time.

    Args:
        read_only: never changes the repository, locks included.
        directory: of the repository, below the path of the store.
    """

    def __init__(
        self,
        store: Store,
        *,
        program: str = "restic",
        read_only: bool = False,
        cache: Path | None = None,
        directory: str = DIRECTORY,
        paths: InstancePaths = PATHS,
    ) -> None:
        self._store, self._program, self._read_only = store, program, read_only
        self._options, self._environment = restic_environment(store, directory, cache, paths)

    def open(self) -> None:
        """Create a missing repository, and remove locks of killed Jobs.

        Raises ArchiveError.
        """
        done = self._run("cat", "config", "--no-lock")
        if done.returncode == _NO_REPOSITORY:
            self._check(self._run("init"))
        else:
            self._check(done)
            try:
                self._unlock()
            except ArchiveError as error:
                # Credentials that may not delete leave a lock with each backup. It is a shared one, which only
                # stops `forget` and `prune`.
                if error.reason != "CredentialsRejected":
                    raise

    def backup(self, directory: Path, tags: Sequence[str], host: str) -> StoredSnapshot:
        """Store a directory. Raises ArchiveError."""
        arguments = [f"--tag={tag}" for tag in tags]
        # A restored server begins a binary log of its own; the archive has the old one. Anchored: a table may have
        # this name.
        options = ["--json", f"--host={host}", f"--exclude={directory}/binlog.*", *arguments]
        done = self._run("backup", *options, ".", directory=directory)
        self._check(done)
        return _stored(done.stdout)

    def backup_stream(self, chunks: Iterable[bytes], name: str, tags: Sequence[str], host: str) -> StoredSnapshot:
        """Store a stream as the file `name`. An error of `chunks` leaves no snapshot. Raises ArchiveError."""
        options = [
            "--json",
            f"--host={host}",
            "--stdin",
            f"--stdin-filename={name}",
            *(f"--tag={tag}" for tag in tags),
        ]
        command = [self._program, *self._options, "backup", *options]
        with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors:
            process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=output, stderr=errors, env=self._environment
            )
            assert process.stdin is not None
            try:
                for chunk in chunks:
                    process.stdin.write(chunk)
                process.stdin.close()
                process.wait()
            except BrokenPipeError:  # restic ended first, and says why
                process.wait()
            finally:
                # Only the end of its input lets restic write the snapshot.
                process.kill()
                process.wait()
            done = subprocess.CompletedProcess(command, process.returncode, _text(output), _text(errors))
        self._check(done)
        return _stored(done.stdout)

    @contextmanager
    def read_stream(self, snapshot: str, name: str) -> Generator[IO[bytes]]:
        """Yield the file `name` of a snapshot. A failure of a complete read raises ArchiveError."""
        lock = ["--no-lock"] if self._read_only else []
        command = [self._program, *self._options, *lock, "dump", snapshot, f"/{name}"]
        with tempfile.TemporaryFile() as errors:
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=errors, env=self._environment
            )
            assert process.stdout is not None
            complete = False
            try:
                yield process.stdout
                complete = process.stdout.read(1) == b""
                if complete:
                    process.wait()
            finally:
                process.kill()
                process.wait()
                process.stdout.close()
            if complete:
                self._check(subprocess.CompletedProcess(command, process.returncode, "", _text(errors)))

    def restore(self, snapshot: str, target: Path) -> None:
        """Restore a snapshot's files into a directory. Raises ArchiveError."""
        # Backups are made of `.`, so the snapshot's root has the files whatever the directory was called.
        self._check(self._run("restore", snapshot, f"--target={target}", "--json"))

    def snapshots(self) -> set[str]:
        """Return the ids of all snapshots. Raises ArchiveError."""
        return {str(each.get("id")) for each in self.descriptions()}

    def descriptions(self) -> list[dict[str, Any]]:
        """Return restic's descriptions of all snapshots. Raises ArchiveError."""
        done = self._run("snapshots", "--json", "--no-lock")
        self._check(done)
        try:
            found: Any = json.loads(done.stdout or "[]")
        except (ValueError, RecursionError):
            raise ArchiveError("ArchiveFailed", "restic's list of snapshots is not JSON.") from None
        return [cast("dict[str, Any]", each) for each in found or () if isinstance(each, dict)]

    def forget(self, snapshots: Sequence[str], *, prune: bool) -> None:
        """Remove snapshots and, with ``prune``, the data that no other has. Raises ArchiveError."""
        if snapshots:
            self._unlock()
            self._check(self._run("forget", *snapshots))
            if prune:
                self._check(self._run("prune"))

    def _unlock(self) -> None:
        """Remove all locks. Only one Job at a time works on the repository.

        Raises ArchiveError.
        """
        self._check(self._run("unlock", "--remove-all"))

    def _run(self, command: str, *arguments: str, directory: Path | None = None) -> subprocess.CompletedProcess[str]:
        lock = ["--no-lock"] if self._read_only else []
        return subprocess.run(
            [self._program, *self._options, *lock, command, *arguments],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            cwd=directory,
            env=self._environment,
            check=False,
        )

    def _check(self, done: subprocess.CompletedProcess[str]) -> None:
        if not done.returncode:
            return
        if reason := _REASONS.get(done.returncode):
            raise ArchiveError(reason, describe(self._store, reason), done.returncode)
        error = classify(self._store, done.returncode, done.stderr + done.stdout[-_MAX_LINE:])
        if error.reason == "ArchiveFailed":
            detail = _last_line(done.stderr) or f"exit code {done.returncode}"
            raise ArchiveError(error.reason, f"restic failed: {detail}.", done.returncode)
        raise error


def restic_environment(
    store: Store, repository: str, cache: Path | None, paths: InstancePaths
) -> tuple[list[str], dict[str, str]]:
    """Write the files with secrets. Return global options and environment.

    Raises:
        ArchiveError: the pod lacks the workload identity that the store needs.
    """
    require_pod_identity(store)
    directory = paths.backup_run / "restic"
    password = directory / "password"
    replace_file(password, store.passphrase or _DISABLED_PASSPHRASE)
    options = [
        *_repository(store, repository),
        f"--password-file={password}",
        f"--cache-dir={cache}" if cache else "--no-cache",
    ]
    if store.ca:
        options.append(f"--cacert={write_ca(store, paths)}")
    # Credentials of the store must decide, and other variables could replace them.
    kept = IDENTITY_VARIABLES.get(store.service, ()) if store.workload_identity else ()
    environment = {
        name: value
        for name, value in os.environ.items()
        if name in kept or not name.startswith(("AWS_", "AZURE_", "GOOGLE_", "RESTIC_"))
    }
    return options, environment | _credentials(store, directory)


def _repository(store: Store, repository: str) -> list[str]:
    match store.service:
        case "s3":
            endpoint = store.endpoint or f"https://s3.{store.region}.amazonaws.com"
            return [
                f"--repo=s3:{endpoint}/{store.bucket}/{store.root}/{repository}",
                f"--option=s3.region={store.region}",
                f"--option=s3.bucket-lookup={_LOOKUPS[store.addressing]}",
            ]
        case "gcs":
            return [f"--repo=gs:{store.bucket}:/{store.root}/{repository}"]
        case "azure":
            return [f"--repo=azure:{store.bucket}:/{store.root}/{repository}"]


def _credentials(store: Store, directory: Path) -> dict[str, str]:
    """Write the credentials to a file. Return the variables that name it.

    Raises:
        ArchiveError: restic accepts these credentials only in its environment.
    """
    keys = directory / "credentials"
    match store.service:
        case "s3" if store.access_key_id:
            lines = ["[default]", f"aws_access_key_id = {store.access_key_id}"]
            lines.append(f"aws_secret_access_key = {store.secret_access_key}")
            lines += [f"aws_session_token = {store.session_token}"] if store.session_token else []
            replace_file(keys, "\n".join((*lines, "")))
            return {"AWS_SHARED_CREDENTIALS_FILE": str(keys)}
        case "gcs" if store.secret_access_key:
            replace_file(keys, store.secret_access_key)
            return {"GOOGLE_APPLICATION_CREDENTIALS": str(keys)}
        case "azure":
            if store.secret_access_key:
                raise ArchiveError("InvalidStore", "MySQL and dumps need the workload identity of Azure.")
            return {"AZURE_ACCOUNT_NAME": store.account}
        case _:
            return {}


_LOOKUPS: Mapping[str, str] = {"Auto": "auto", "Path": "path", "VirtualHost": "dns"}


def _stored(output: str) -> StoredSnapshot:
    """Return the snapshot that `restic backup --json` reported. Raises ArchiveError."""
    for line in reversed(output[-_MAX_LINE:].splitlines()):
        if (found := _object(line)).get("message_type") == "summary":
            added = found.get("data_added_packed") or found.get("data_added") or 0
            return StoredSnapshot(str(found["snapshot_id"]), int(found["total_bytes_processed"]), int(added))
    raise ArchiveError("ArchiveFailed", "restic reported no snapshot.")


def _text(file: IO[bytes]) -> str:
    """Return the last part of a file that a process wrote."""
    size = file.seek(0, os.SEEK_END)
    file.seek(max(size - _MAX_LINE, 0))
    return file.read().decode(errors="replace")


def _object(line: str) -> dict[str, Any]:
    try:
        found: Any = json.loads(line)
    except (ValueError, RecursionError):
        return {}
    return cast("dict[str, Any]", found) if isinstance(found, dict) else {}


def _last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if not lines:
        return ""
    message = str(_object(lines[-1]).get("message", lines[-1]))
    return "".join(character for character in message if character.isprintable())[:200].rstrip(".")
