"""The Job that copies objects of PostgreSQL from an archive.

Tables or one database come into the serving cluster, next to the present ones.

The copy is written by a temporary account. It cannot write anything else, and the functions of users run with its
privileges. Tables become visible in one transaction. A repeated run replaces what an earlier one has created.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ..archive.errors import ArchiveError
from ..backup.repository import Repository
from ..dump.postgresql_client import PostgreSQLClient, quoted
from ..dump.processes import ClientFailed
from ..dump.program import require_login
from ..dump.server import read_login, read_server
from ..files import replace_file
from ..jobs import JobFailed, JobFields, JobRefused, Result, log, require_store
from ..paths import InstancePaths
from ..recovery.plan import RecoveryRefused
from ..recovery.postgresql import PostgreSQLRecovery, RecoveryJob
from ..recovery.server import RecoveryServer, ServerFailed
from ..recovery.staging import Staging
from ..verification.measurement import unreadable_object
from .postgresql_source import PostgreSQLSource, literal
from .request import VOLUME_FIELD, CopyRequest, reached

_CHUNK_BYTES = 1 << 20
_MAX_LIST_BYTES = 64 << 20
_MAINTENANCE_DATABASE = "postgres"
_ENTRY = re.compile(r"^\d+; \d+ \d+ (.*)$")
# Only superusers can create them, or they act on other databases.
_NEVER = ("EVENT TRIGGER ", "PUBLICATION ", "PUBLICATION TABLE ", "SUBSCRIPTION ", "ACL ", "DEFAULT ACL ")
# The copies of tables are without effect on others, and others on them.
_NOT_OF_TABLES = ("FK CONSTRAINT ", "TRIGGER ", "RULE ")
_SCHEMA_IS_OWN = "SELECT nspowner = to_regrole(quote_ident(session_user)) FROM pg_namespace WHERE nspname = {}"
_DATABASE_IS_OWN = "SELECT datdba = to_regrole(quote_ident(session_user)) FROM pg_database WHERE datname = {}"
_LIKE = "TEMPLATE template0 ENCODING {} LC_COLLATE {} LC_CTYPE {}"
_SIZE = """
SELECT coalesce(sum(pg_total_relation_size(oid)), 0)::bigint FROM pg_class
WHERE relkind IN ('r', 'm') AND relnamespace = to_regnamespace({})
"""
# The owner of a database may have set other values for all sessions.
_BEGIN = b"SET SESSION ROLE NONE;\nSET default_transaction_read_only = off;\nBEGIN;\n"
_PLACE = re.compile(r"^psql:\S+: (?:ERROR: +)?")
_PROVIDERS = {"i": "icu", "b": "builtin"}


def run(job: JobFields, paths: InstancePaths) -> Result:
    """Copy the requested objects. Return the result for the operator.

    Raises:
        JobFailed: it is worth another attempt.
        JobRefused: it is not, for example because a table did not exist.
        ArchiveError: the object store cannot be read.
    """
    given, request = RecoveryJob.parse(job), CopyRequest.parse(job)
    store = require_store(paths.store_file)
    if store.engine != "postgresql":
        raise JobRefused("WrongEngine", f"The archive at {store.root} is of {store.engine}, not of PostgreSQL.")
    repository = Repository(store, replace(paths, run=paths.run / "source"))
    staging = Staging(paths, given.digest(store))
    recovery = PostgreSQLRecovery(given, repository, staging, paths, volume_field=VOLUME_FIELD)
    copy = _Copy(job, request, paths)
    copy.require_server()
    try:
        plan = reached(recovery.restore, given.target)
        ended = recovery.replay(plan, copy.run)
    except RecoveryRefused as refused:
        raise JobRefused(refused.reason, refused.message) from None
    except ArchiveError as error:
        raise unreadable_object(error) from None
    except ServerFailed as failed:
        raise recovery.failure(failed) from None
    return {
        "restore": {
            "backup": plan["backup"],
            "recoveredTo": ended["recoveredTo"] or plan["stop"],
            **copy.result,
        }
    }


class _Copy:
    def __init__(self, job: JobFields, request: CopyRequest, paths: InstancePaths) -> None:
        self._request = request
        self._run = paths.run
        self.result: Mapping[str, object] = {}
        server = read_server(job, paths.server)
        login = require_login(read_login(paths.owner), "the temporary account")
        # Tables become a schema of the present database.
        self._place = request.database if request.tables else request.into
        self._into = PostgreSQLClient(replace(server, database=self._place), login, paths.run)
        administration = _MAINTENANCE_DATABASE if not request.tables else self._place
        self._administration = PostgreSQLClient(replace(server, database=administration), login, paths.run)

    def require_server(self) -> None:
        """Check that the copy can be created, before the restore begins. Raises JobFailed."""
        try:
            self._require_name()
        except ClientFailed as error:
            raise _unreachable(error) from None

    def run(self, server: RecoveryServer) -> None:
        """Copy from the restored server."""
        source = PostgreSQLSource(server, self._request)
        source.require()
        properties, left_out = source.properties(), list[str]()
        source.set_apart()
        try:
            present = self._require_name()
            if not self._request.tables:
                self._create_database(properties, present=present)
                left_out = self._not_trusted(source.extensions())
        except ClientFailed as error:
            raise _unreachable(error) from None
        log(f"copying to {self._request.into}")
        try:
            self._load(source, self._listed(source, left_out), replaced=present and bool(self._request.tables))
            size = int(self._into.rows(self._size_query())[0])
        except ClientFailed as error:
            raise copy_failed(error, left_out) from None
        self.result = {"owner": properties["owner"], "sizeBytes": size, "leftOut": left_out[:10]}

    def _require_name(self) -> bool:
        """Return True if an earlier run created the copy.

        Raises:
            JobRefused: another owner has the name.
        """
        kind, query = ("schema", _SCHEMA_IS_OWN) if self._request.tables else ("database", _DATABASE_IS_OWN)
        found = self._administration.rows(query.format(literal(self._request.into)))
        if found == ["f"]:
            raise JobRefused("NameConflict", f"{kind.capitalize()} {self._request.into} exists already.")
        return found == ["t"]

    def _create_database(self, properties: Mapping[str, Any], *, present: bool) -> None:
        name = quoted(self._request.into)
        provider = _PROVIDERS.get(properties["provider"])
        locale = f" LOCALE_PROVIDER {provider} {provider}_locale {literal(properties['locale'])}" if provider else ""
        encoding, collate, ctype = (literal(properties[key]) for key in ("encoding", "collate", "ctype"))
        statements = [
            *([f"DROP DATABASE {name} WITH (FORCE)"] if present else []),
            f"CREATE DATABASE {name} {_LIKE.format(encoding, collate, ctype)}{locale}",
            f"REVOKE ALL ON DATABASE {name} FROM PUBLIC",
        ]
        for statement in statements:
            self._administration.rows(statement)

    def _not_trusted(self, extensions: Sequence[str]) -> list[str]:
        trusted = set(self._into.rows("SELECT DISTINCT name FROM pg_available_extension_versions WHERE trusted"))
        return [name for name in extensions if name not in trusted]

    def _listed(self, source: PostgreSQLSource, left_out: Sequence[str]) -> Path:
        """Write the list of the objects to copy. Return its path."""
        with source.dump().stream() as archive, source.restore_list().fed(archive) as output:
            lines = output.read(_MAX_LIST_BYTES).decode(errors="replace").splitlines()
        unwanted = [*_NEVER, *(_NOT_OF_TABLES if self._request.tables else ())]
        unwanted += [f"{kind} - {prefix}{name} " for name in left_out for kind, prefix in _EXTENSION_ENTRIES]
        kept = [line for line in lines if (entry := _entry(line)) and not entry.startswith(tuple(unwanted))]
        path = self._run / "objects"
        replace_file(path, "".join(f"{line}\n" for line in kept))
        return path

    def _load(self, source: PostgreSQLSource, objects: Path, *, replaced: bool) -> None:
        """Copy in one transaction. It is committed once the whole dump was read."""
        with self._into.script().sink() as write:
            write(_BEGIN)
            if replaced:
                write(f"DROP SCHEMA {quoted(self._request.into)} CASCADE;\n".encode())
            with source.dump().stream() as archive, source.restore_sql(str(objects)).fed(archive) as sql:
                while chunk := sql.read(_CHUNK_BYTES):
                    write(chunk)
            write(b"COMMIT;\n")

    def _size_query(self) -> str:
        if not self._request.tables:
            return "SELECT pg_database_size(current_database())"
        return _SIZE.format(literal(quoted(self._request.into)))


_EXTENSION_ENTRIES = (("EXTENSION", ""), ("COMMENT", "EXTENSION "))


def _entry(line: str) -> str:
    """Return kind and name of an entry, with a final space."""
    found = _ENTRY.match(line)
    return f"{found[1]} " if found else ""


def copy_failed(error: ClientFailed, left_out: Sequence[str]) -> JobFailed:
    """Return the failure of the copy. A lost connection, as in a failover, is worth another attempt."""
    more = f". Extensions that only a superuser can create are missing: {', '.join(left_out)}" if left_out else ""
    failure = JobRefused if "ERROR:" in str(error) else JobFailed
    return failure("RestoreFailed", f"The copy failed: {_PLACE.sub('', str(error))}{more}.")


def _unreachable(error: ClientFailed) -> JobFailed:
    return JobFailed("ServerUnreachable", f"The cluster cannot be reached: {error}.")
