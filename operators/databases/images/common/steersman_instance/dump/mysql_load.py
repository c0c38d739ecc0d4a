"""Restore of a dump or running server into MySQL or MariaDB.

MySQL cannot undo CREATE TABLE. So a table marks an unfinished restore, and the next pod of the Job repeats it. A dump
drops each object before it creates it.
"""

from __future__ import annotations

import os
import re
import secrets
from collections.abc import Iterator, Sequence
from typing import IO

from ..jobs import JobFailed, JobFields, JobRefused, Result, log
from ..paths import InstancePaths
from .import_problem import require_none
from .mysql_client import (
    MARKER,
    MysqlClient,
    MysqlGrant,
    parse_grants,
    quoted,
    quoted_account,
)
from .mysql_import import imported_source
from .mysql_problems import version_problems
from .processes import ClientFailed
from .program import require_login
from .server import administrator_login, read_login, read_server
from .source import DumpSource, is_import, stored_source

_ACCOUNT = rb"`(?:[^`]|``)*`@`(?:[^`]|``)*`"
# Without it, the owner of the database becomes the definer. mysqldump writes it at the start of a line only.
_DEFINERS = (
    (re.compile(rb"^/\*!50013 DEFINER=" + _ACCOUNT + rb" "), b"/*!50013 "),
    (re.compile(rb"^CREATE DEFINER=" + _ACCOUNT + rb" "), b"CREATE "),
    (re.compile(rb"^(/\*!50003 CREATE\*/ )/\*!50017 DEFINER=" + _ACCOUNT + rb"\*/ "), rb"\1"),
    (re.compile(rb"^(/\*!50106 CREATE\*/ )/\*!50117 DEFINER=" + _ACCOUNT + rb"\*/ "), rb"\1"),
)
_END = b"-- Dump completed"
_PRIVILEGE = re.compile(r"[A-Z][A-Z ]*")


def run(job: JobFields, paths: InstancePaths) -> Result:
    """Restore a dump or import a server. Return the result for the operator.

    Raises:
        JobFailed: a server or the restore failed.
        JobRefused: the source does not fit, or the database has objects.
        ArchiveError: the store failed.
    """
    server = read_server(job, paths.server)
    login = require_login(read_login(paths.owner), "the owner of the database")
    owner = MysqlClient(server, login, paths.run, dict(os.environ))
    try:
        version, found = owner.version(), owner.objects()
    except ClientFailed as error:
        raise JobFailed("ServerUnreachable", f"The server cannot be read: {error}.") from None
    if found and MARKER not in found:
        raise JobRefused(
            "DatabaseNotEmpty",
            f"Database {server.database} has objects already, such as {found[0]}. Drop them, or restore into another"
            " one.",
        )
    source = imported_source(job, paths, owner) if is_import(job) else stored_source(job, paths, "mysql")
    require_fitting(source, version)
    log(f"restoring {source.name} of {source.version}")
    try:
        grants = _restore(owner, source)
    except ClientFailed as error:
        message = f"{source.name} cannot be restored: {error}."
        raise JobRefused("RestoreFailed", f"{message} Drop the objects of database {server.database}.") from None
    problems = list(source.problems)
    if (administrator := administrator_login(server)) is not None:
        problems += _grant(MysqlClient(server, administrator, paths.run, dict(os.environ)), grants)
    elif grants:
        problems += ["the Job has no account of the administrator"]
    owner.script().complaints(f"DROP TABLE IF EXISTS {quoted(MARKER)};\n")
    warning = {"warning": f"{len(problems)} grants failed, first: {problems[0][:300]}"} if problems else {}
    return {"restore": {**source.result, **warning}}


def require_fitting(source: DumpSource, version: str) -> None:
    """Reject a newer source, or one of the other product. Raises JobRefused."""
    require_none(version_problems(source.name, source.version, version))


def without_definers(lines: Iterator[bytes]) -> Iterator[bytes]:
    """Yield the lines of a dump without accounts of the source."""
    for line in lines:
        if line.startswith((b"/*!50", b"CREATE DEFINER=")):
            for pattern, replacement in _DEFINERS:
                line = pattern.sub(replacement, line)
        yield line


def _restore(client: MysqlClient, source: DumpSource) -> list[MysqlGrant]:
    """Restore objects and rows, and return the grants of the source."""
    client.script().run(f"CREATE TABLE IF NOT EXISTS {quoted(MARKER)} (id int PRIMARY KEY);\n")
    last = b""
    with client.script().sink() as write, source.read() as (accounts, stream):
        for line in without_definers(_lines(stream)):
            write(line)
            last = line if line.strip() else last
    if not last.startswith(_END):
        raise ClientFailed("the dump is not complete")
    return parse_grants(accounts["grants"])


def _lines(stream: IO[bytes]) -> Iterator[bytes]:
    while line := stream.readline():
        yield line


def _grant(client: MysqlClient, grants: Sequence[MysqlGrant]) -> list[str]:
    """Create missing accounts, which are locked, and grant. Return the errors."""
    try:
        present = client.account_names()
    except ClientFailed as error:
        return [f"the administrator cannot read accounts: {error}"]
    missing = sorted({each.account for each in grants} - present)
    statements = [
        f"CREATE USER {quoted_account(each)} IDENTIFIED BY '{secrets.token_hex(24)}' ACCOUNT LOCK;\n"
        for each in missing
    ]
    statements += [grant_statement(client.server.database, each) for each in grants]
    lines = client.script(stop=False).complaints("".join(statements))
    return [line for line in lines if line.startswith("ERROR ")]


def grant_statement(database: str, grant: MysqlGrant) -> str:
    """Return the statement of a grant in a database."""
    if not _PRIVILEGE.fullmatch(grant.privilege):
        raise ValueError(f"{grant.privilege!r} is not a privilege")
    columns = f" ({quoted(grant.column)})" if grant.column else ""
    target = quoted(grant.table) if grant.table else "*"
    # In the name of a database, these are patterns.
    name = database if grant.table else re.sub(r"([\\_%])", r"\\\1", database)
    option = " WITH GRANT OPTION" if grant.option else ""
    account = quoted_account(grant.account)
    return f"GRANT {grant.privilege}{columns} ON {quoted(name)}.{target} TO {account}{option};\n"
