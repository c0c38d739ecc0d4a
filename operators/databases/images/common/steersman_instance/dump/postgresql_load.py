"""The Job that restores a dump into an empty PostgreSQL database.

Objects come back as the owner of the database, in one transaction. Missing roles are created by the administrator,
without a login. Grants follow, each on its own.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import IO

from ..files import replace_file
from ..jobs import JobFailed, JobFields, JobRefused, Result, log
from ..paths import InstancePaths
from .archive import DumpArchive, StoredDump
from .postgresql_client import DatabaseContent, PostgreSQLClient, quoted
from .processes import ClientFailed, ClientProgram
from .program import require_login, source_archive
from .server import Accounts, administrator_login, parse_accounts, read_login, read_server

_CHUNK_BYTES = 1 << 20
_MAX_LIST_BYTES = 64 << 20
# An older server does not know a parameter that pg_restore sets first.
_NEWER_PARAMETER = re.compile(rb"^SET transaction_timeout = 0;\n", re.MULTILINE)
_PARAMETERS_BYTES = 4096
_ENTRY = re.compile(r"^\d+; \d+ \d+ (.*)$")
# Only superusers can create them.
_LEFT_OUT = ("EVENT TRIGGER ", "PUBLICATION ", "PUBLICATION TABLE ", "SUBSCRIPTION ")
_ACLS = ("ACL ", "DEFAULT ACL ")


def run(job: JobFields, paths: InstancePaths) -> Result:
    """Restore a dump. Return the result for the operator.

    Raises:
        JobFailed: the server or the restore failed. The transaction was rolled back.
        JobRefused: the dump does not fit, or the database has objects.
        ArchiveError: the store failed.
    """
    server = read_server(job, paths.server)
    owner = PostgreSQLClient(server, require_login(read_login(paths.owner), "the owner of the database"), paths.run)
    archive, dump = source_archive(job, paths, "postgresql")
    try:
        state, content = owner.state(), owner.content()
    except ClientFailed as error:
        raise JobFailed("ServerUnreachable", f"The server cannot be read: {error}.") from None
    require_fitting(dump, state.major, state.version)
    require_empty(server.database, content.objects)
    with archive.read(dump) as (found, stream):
        accounts = parse_accounts(found)
        listed = _list(owner, stream)
    problems: list[str] = []
    if (login := administrator_login(server)) is not None:
        problems += _create_roles(PostgreSQLClient(server, login, paths.run), accounts)
    log(f"restoring dump {dump.id} of PostgreSQL {dump.info.version}")
    try:
        _restore(owner, archive, dump, _write(paths.run / "objects", objects(listed, content)))
        problems += _grant(owner, archive, dump, _write(paths.run / "grants", grants(listed)), accounts)
    except ClientFailed as error:
        raise JobFailed("RestoreFailed", f"The dump cannot be restored: {error}.") from None
    warning = {"warning": _describe(problems)} if problems else {}
    return {"restore": {"backup": dump.id, "version": dump.info.version, **warning}}


def require_fitting(dump: StoredDump, major: int, version: str) -> None:
    """Reject a dump of a newer server. Raises JobRefused."""
    if int(dump.info.version.split(".")[0]) > major:
        raise JobRefused(
            "SourceMismatch",
            f"Dump {dump.id} is of PostgreSQL {dump.info.version}, and the server has {version}. Use a newer server.",
        )


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


def _restore(client: PostgreSQLClient, archive: DumpArchive, dump: StoredDump, entries: Path) -> None:
    """Restore objects and rows in one transaction. It is committed once the whole dump was read."""
    with client.script().sink() as write:
        write(b"BEGIN;\n")
        with (
            archive.read(dump) as (_, stream),
            client.restore_sql(entries, "--no-acl").fed(stream) as sql,
        ):
            write(_NEWER_PARAMETER.sub(b"", sql.read(_PARAMETERS_BYTES)))
            while chunk := sql.read(_CHUNK_BYTES):
                write(chunk)
        write(b"COMMIT;\n")


def _grant(
    client: PostgreSQLClient, archive: DumpArchive, dump: StoredDump, entries: Path, accounts: Accounts
) -> list[str]:
    """Restore grants, each on its own. Return the errors."""
    database = quoted(client.server.database)
    statements = [
        f"GRANT {privilege} ON DATABASE {database} TO {quoted(grantee)}{' WITH GRANT OPTION' if option else ''};\n"
        for grantee, privilege, option in accounts.grants
        if privilege in ("CREATE", "CONNECT", "TEMPORARY")
    ]
    text = "".join(statements)
    if entries.read_text():
        with archive.read(dump) as (_, stream), client.restore_sql(entries).fed(stream) as sql:
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
