"""Source of a restore: a stored dump or a running server."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from ..jobs import JobFailed, JobFields, JobRefused
from ..paths import InstancePaths
from .processes import ClientFailed
from .program import require_login, source_archive
from .server import Login, ServerAddress, read_login, read_server

FIELD = "spec.bootstrap.import"
# Servers may translate messages, so the default names all fields.
_ADVICE = (
    (("no pg_hba.conf entry",), "credentials and tls"),
    (
        ("password authentication failed", "no password supplied", "Access denied for user", "ERROR 2059"),
        "credentials",
    ),
    (("ERROR 1049", "does not exist"), "databaseName and credentials"),
    (("certificate", "SSL", "ERROR 2026", "no encryption"), "tls"),
    (("could not translate host name", "refused", "timeout expired", "ERROR 2003", "ERROR 2005"), "host and port"),
)
_ALL_FIELDS = "host, port, databaseName, credentials and tls"


@dataclass(frozen=True, slots=True, kw_only=True)
class DumpSource:
    """Output of a dump program, and the accounts of its database.

    Args:
        name: for messages, such as `Dump 20260501T120000Z`.
        version: of the server.
        result: what the Job reports about the source.
        problems: parts that are left out, each a short text.
        read: opens it. Leaving the block raises ArchiveError or ClientFailed if the output is not complete.
    """

    name: str
    version: str
    result: Mapping[str, object]
    read: Callable[[], AbstractContextManager[tuple[Mapping[str, Any], IO[bytes]]]]
    problems: Sequence[str] = ()


def stored_source(job: JobFields, paths: InstancePaths, engine: str) -> DumpSource:
    """Return the dump of job.json in the object store. Raises JobRefused and ArchiveError."""
    archive, dump = source_archive(job, paths, engine)
    return DumpSource(
        name=f"Dump {dump.id}",
        version=dump.info.version,
        result={"backup": dump.id, "version": dump.info.version},
        read=lambda: archive.read(dump),
    )


def is_import(job: JobFields) -> bool:
    """Return True if the source is a running server. Raises JobRefused."""
    return job.part("source") is not None


def source_server(job: JobFields, paths: InstancePaths) -> tuple[ServerAddress, Login]:
    """Return address and account of an import's source. Raises JobRefused."""
    server = read_server(job, paths.import_source, "source")
    login = read_login(paths.import_source, files=paths.import_source)
    return server, require_login(login, f"{FIELD}.credentials")


def source_client_directory(paths: InstancePaths) -> Path:
    """Return the directory for the password of an import's account."""
    directory = paths.run / "import"
    directory.mkdir(exist_ok=True)
    return directory


def name_of(server: ServerAddress) -> str:
    """Return the name of a source for messages."""
    return f"Database {server.database} of {server.host}"


def unreadable(server: ServerAddress, error: ClientFailed) -> JobFailed:
    """Return the failure of a source that cannot be read. It names the fields to check."""
    text = str(error)
    fields = next((found for marks, found in _ADVICE if any(mark in text for mark in marks)), _ALL_FIELDS)
    message = f"{name_of(server)} cannot be read: {text}. Check {fields} in {FIELD}."
    if fields == _ALL_FIELDS or fields == "host and port":
        return JobFailed("SourceUnreachable", message)
    return JobRefused("SourceUnreachable", message)
