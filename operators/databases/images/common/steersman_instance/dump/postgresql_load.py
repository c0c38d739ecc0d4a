"""Restore of a dump or running server into an empty PostgreSQL database.

Objects come back as the owner of the database, in one transaction. Missing roles are created by the administrator,
without a login. Grants follow, each on its own. A schema marks that the transaction was committed: the next pod of
the Job continues with the grants.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from ..files import replace_file
from ..jobs import JobFailed, JobFields, JobRefused, Result, log
from ..paths import InstancePaths
from .import_problem import require_none
from .postgresql_client import DatabaseContent, PostgreSQLClient, quoted
from .postgresql_import import imported_source
from .postgresql_problems import newer_source
from .processes import ClientFailed, ClientProgram
from .program import require_login
from .replay import Recorder, followed_by
from .server import Accounts, administrator_login, parse_accounts, read_login, read_server
from .source import DumpSource, is_import, stored_source

MARKER = "steersman_restore"
"""Schema of a restore with committed objects and missing grants."""
_CHUNK_BYTES = 1 << 20
_MAX_LIST_BYTES = 64 << 20
# An older server does not know a parameter that pg_restore sets first.
_NEWER_PARAMETER = re.compile(rb"^SET transaction_timeout = 0;\n", re.MULTILINE)
_PARAMETERS_BYTES = 4096
_ENTRY = re.compile(r"^\d+; \d+ \d+ (.*)$")
# Only superusers can create them.
_LEFT_OUT = ("EVENT TRIGGER ", "PUBLICATION ", "PUBLICATION TABLE ", "SUBSCRIPTION ")
_ACLS = ("ACL ", "DEFAULT ACL ")


@dataclass(frozen=True, slots=True)
class _Target:
    """The database, its owner and its content.

    Args:
        administrator: None if the Job has no such account.
    """

    owner: PostgreSQLClient
    administrator: PostgreSQLClient | None
    content: DatabaseContent
    run: Path

    @property
    def is_committed(self) -> bool:
        """Return True if an earlier pod has committed the objects."""
        return MARKER in self.content.schemas


def run(job: JobFields, paths: InstancePaths) -> Result:
    """Restore a dump or import a server. Return the result for the operator.

    Raises:
        JobFailed: a server or the restore failed. The transaction was rolled back.
        JobRefused: the source does not fit, or the database has objects.
        ArchiveError: the store failed.
    """
    server = read_server(job, paths.server)
    owner = PostgreSQLClient(server, require_login(read_login(paths.owner), "the owner of the database"), paths.run)
    try:
        state, content = owner.state(), owner.content()
    except ClientFailed as error:
        raise JobFailed("ServerUnreachable", f"The server cannot be read: {error}.") from None
    login = administrator_login(server)
    administrator = None if login is None else PostgreSQLClient(server, login, paths.run)
    target = _Target(owner, administrator, content, paths.run)
    if not target.is_committed:
        require_empty(server.database, content.objects)
    source = imported_source(job, paths, owner) if is_import(job) else stored_source(job, paths, "postgresql")
    require_fitting(source, state.major, state.version)
    log(f"restoring {source.name} of PostgreSQL {source.version}")
    try:
        problems = _load(target, source)
        owner.script().run(f"DROP SCHEMA IF EXISTS {quoted(MARKER)};\n")
    except ClientFailed as error:
        raise JobFailed("RestoreFailed", f"{source.name} cannot be restored: {error}.") from None
    warning = {"warning": _describe(problems)} if problems else {}
    return {"restore": {**source.result, **warning}}


def require_fitting(source: DumpSource, major: int, version: str) -> None:
    """Reject a newer source. Raises JobRefused."""
    if int(source.version.split(".")[0]) > major:
        require_none([newer_source(source.name, source.version, version)])


def require_empty(database: str, found: Sequence[str]) -> None:
    """Reject a database with objects. Raises JobRefused."""
    if found:
        raise JobRefused(
            "DatabaseNotEmpty",
            f"Database {database} has objects already, such as {found[0]}. Drop them, or restore into another one.",
        )


def objects(listed: Iterable[str], content: DatabaseContent) -> list[str]:
    """Return the entries that the target does not have, without grants."""
    present = [f"SCHEMA - {name} " for name in content.schemas]
    present += [f"COMMENT - SCHEMA {name} " for name in content.schemas]
    present += [f"{kind} - {prefix}{name} " for name in content.extensions for kind, prefix in _EXTENSION_ENTRIES]
    left_out = (*_LEFT_OUT, *_ACLS, *present)
    return [line for line in listed if (entry := _entry(line)) and not f"{entry} ".startswith(left_out)]


def grants(listed: Iterable[str]) -> list[str]:
    """Return the entries of grants."""
    return [line for line in listed if _entry(line).startswith(_ACLS)]


_EXTENSION_ENTRIES = (("EXTENSION", ""), ("COMMENT", "EXTENSION "))


def _entry(line: str) -> str:
    found = _ENTRY.match(line)
    return found[1] if found else ""


def _list(client: PostgreSQLClient, stream: IO[bytes]) -> list[str]:
    with client.restore_list().fed(stream) as output:
        return output.read(_MAX_LIST_BYTES).decode(errors="replace").splitlines()


def _write(path: Path, lines: Sequence[str]) -> Path:
    replace_file(path, "".join(f"{line}\n" for line in lines))
    return path


def _load(target: _Target, source: DumpSource) -> list[str]:
    """Restore roles, objects and grants. Return the errors of roles and grants. Raises ClientFailed."""
    problems: list[str] = []
    write: Callable[[bytes], object] | None = None
    with ExitStack() as transaction:
        with source.read() as (found, stream):
            accounts, start = parse_accounts(found), Recorder(stream)
            listed = _list(target.owner, io.BufferedReader(start))
            if target.administrator is not None:
                problems += _create_roles(target.administrator, accounts)
            if not target.is_committed:
                entries = _write(target.run / "objects", objects(listed, target.content))
                write = transaction.enter_context(target.owner.script().sink())
                write(f"BEGIN;\nCREATE SCHEMA {quoted(MARKER)};\n".encode())
                with target.owner.restore_sql(entries, "--no-acl").fed(followed_by(start.data, stream)) as sql:
                    write(_NEWER_PARAMETER.sub(b"", sql.read(_PARAMETERS_BYTES)))
                    while chunk := sql.read(_CHUNK_BYTES):
                        write(chunk)
        if write is not None:
            # The whole dump was read.
            write(b"COMMIT;\n")
    entries = _write(target.run / "grants", grants(listed))
    return problems + _grant(target.owner, start.data, entries, accounts)


def _grant(client: PostgreSQLClient, start: bytes, entries: Path, accounts: Accounts) -> list[str]:
    """Restore grants, each on its own. Return the errors.

    Args:
        start: of the dump, with its table of contents, which has all grants.
    """
    database = quoted(client.server.database)
    statements = [
        f"GRANT {privilege} ON DATABASE {database} TO {quoted(grantee)}{' WITH GRANT OPTION' if option else ''};\n"
        for grantee, privilege, option in accounts.grants
        if privilege in ("CREATE", "CONNECT", "TEMPORARY")
    ]
    text = "".join(statements)
    if entries.read_text():
        with client.restore_sql(entries).fed(io.BytesIO(start)) as sql:
            text += _NEWER_PARAMETER.sub(b"", sql.read(_MAX_LIST_BYTES)).decode(errors="replace")
    return _errors(client.script(stop=False), text)


def _create_roles(client: PostgreSQLClient, accounts: Accounts) -> list[str]:
    """Create missing roles without a login, with their memberships. Return the errors."""
    try:
        present = client.role_names()
    except ClientFailed as error:
        return [f"the administrator cannot read roles: {error}"]
    missing = [name for name in accounts.names if name not in present]
    statements = [f"CREATE ROLE {quoted(name)} NOLOGIN;\n" for name in missing]
    statements += [
        f"GRANT {quoted(group)} TO {quoted(member)};\n" for group, member in accounts.memberships if member in missing
    ]
    return _errors(client.script(stop=False), "".join(statements))


def _errors(program: ClientProgram, text: str) -> list[str]:
    """Run SQL whose statements may fail, and return the errors."""
    return [line.partition("ERROR:")[2].strip() for line in program.complaints(text) if "ERROR:" in line]


def _describe(problems: Sequence[str]) -> str:
    first = "".join(character for character in problems[0] if character.isprintable())[:300]
    return f"{len(problems)} statements for roles and grants failed, first: {first}"
