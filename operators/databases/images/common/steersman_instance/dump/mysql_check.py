"""Dry run of an import of MySQL or MariaDB. It only reads the source."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import replace

from ..jobs import JobFailed, JobFields, Result
from ..paths import InstancePaths
from .import_check import (
    CheckReport,
    DeclaredDatabase,
    read_optional,
    room_notes,
    target_server,
    unreachable_target,
)
from .import_problem import ImportProblem
from .mysql_accounts import accounts_document
from .mysql_client import MysqlClient, is_mariadb
from .mysql_problems import MysqlTarget, problems_of, read_content, read_target
from .processes import ClientFailed, ClientProgram
from .server import ServerAddress
from .source import name_of, source_client_directory, source_server, unreadable

_VERSION = re.compile(r"Ver (\S+)")
_SIZE = """
SELECT JSON_ARRAY(COALESCE(SUM(DATA_LENGTH + INDEX_LENGTH), 0)) FROM information_schema.TABLES
WHERE TABLE_SCHEMA = DATABASE()
"""
# As GRANTEE, these accounts have privileges on all databases.
_GLOBAL = """
SELECT DISTINCT JSON_ARRAY(GRANTEE) FROM information_schema.USER_PRIVILEGES WHERE PRIVILEGE_TYPE = 'SELECT'
"""
_PROGRAMS = """
SELECT JSON_ARRAY(COUNT(*)) FROM (
    SELECT 1 FROM information_schema.ROUTINES WHERE ROUTINE_SCHEMA = DATABASE() AND ROUTINE_TYPE = 'FUNCTION'
    UNION ALL SELECT 1 FROM information_schema.TRIGGERS WHERE TRIGGER_SCHEMA = DATABASE()) found
"""
_TRUSTED = "SELECT JSON_ARRAY(@@log_bin AND NOT @@log_bin_trust_function_creators)"
_DATABASE = "information_schema"
_SYSTEM = ("'mysql.", "'mariadb.", "'root'@'localhost'")


def run(job: JobFields, paths: InstancePaths) -> Result:
    """Compare the source with the new server. Return the report for the user.

    Raises:
        JobFailed: a server cannot be reached.
        JobRefused: job.json or a Secret is malformed.
    """
    server, login = source_server(job, paths)
    declared = DeclaredDatabase.parse(job)
    client = MysqlClient(server, login, source_client_directory(paths), dict(os.environ))
    try:
        found = read_content(client)
        size, programs = (int(client.rows(query)[0][0]) for query in (_SIZE, _PROGRAMS))
        everywhere = [str(name) for (name,) in client.rows(_GLOBAL)]
    except ClientFailed as error:
        raise unreadable(server, error) from None
    accounts, notes = read_optional(lambda: accounts_document(client, found.version, login.username), login.username)
    name = name_of(server)
    target, target_problems = _target(job, paths, declared, creates_programs=programs > 0)
    return CheckReport(
        source_version=_product(found.version),
        source_bytes=size,
        target_version=_product(target.version),
        problems=[*problems_of(name, login.username, found, target), *target_problems],
        left_out={
            "accounts with privileges on all databases": [
                each for each in everywhere if not each.startswith((*_SYSTEM, f"'{login.username}'@"))
            ]
        },
        notes=[*notes, *room_notes(name, size, declared)],
        accounts=accounts,
    ).result()


def _product(version: str) -> str:
    return f"{'MariaDB' if is_mariadb(version) else 'MySQL'} {version}"


def _target(
    job: JobFields, paths: InstancePaths, declared: DeclaredDatabase, *, creates_programs: bool
) -> tuple[MysqlTarget, list[ImportProblem]]:
    """Return the new server with its problems. Raises JobFailed."""
    given = target_server(job, paths)
    try:
        if given is None:
            return MysqlTarget(version=_image_version(), is_group=declared.is_group), []
        server, login = given
        address: ServerAddress = replace(server, database=_DATABASE)
        client = MysqlClient(address, login, paths.run, dict(os.environ))
        return read_target(client), list(_program_problems(client)) if creates_programs else []
    except ClientFailed as error:
        raise unreachable_target(error) from None


def _program_problems(client: MysqlClient) -> Iterator[ImportProblem]:
    """Yield the problem of a server that refuses functions and triggers."""
    ((refuses,),) = client.rows(_TRUSTED)
    if refuses:
        yield ImportProblem(
            "RightsMissing",
            "The new server lets only administrators create functions and triggers. Set"
            " log_bin_trust_function_creators to ON there.",
        )


def _image_version() -> str:
    """Return the version of the server of this image. Raises ClientFailed and JobFailed."""
    text = ClientProgram(("mysqld", "--no-defaults", "--version"), dict(os.environ)).run()
    version = _VERSION.search(text)
    if version is None:
        raise JobFailed("InternalError", f"mysqld reports no version: {text[:100]}")
    return version[1]
