"""Dry run of an import of PostgreSQL. It only reads the source."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

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
from .postgresql_accounts import accounts_document
from .postgresql_client import USED_ROLES, PostgreSQLClient
from .postgresql_problems import PostgreSQLTarget, problems_of, read_content, read_target
from .processes import ClientFailed, ClientProgram
from .source import name_of, source_client_directory, source_server, unreadable

_CONTROL_LINE = re.compile(r"^\s*(trusted|superuser)\s*=\s*'?(\w+)", re.MULTILINE)
_MAX_CONTROL_BYTES = 64 << 10
_TRUE = ("true", "on", "yes", "1")
_VERSION = re.compile(r"(\d+)\.\S+")
_WITH_PUBLICATIONS = 100_000
_LEFT_OUT = f"""
{USED_ROLES}
SELECT json_build_object(
    'size', pg_database_size(current_database()),
    'owner', (SELECT pg_get_userbyid(datdba) FROM this),
    'event triggers', (SELECT coalesce(json_agg(evtname ORDER BY evtname), '[]') FROM pg_event_trigger),
    'tablespaces', (
        SELECT coalesce(json_agg(spcname ORDER BY spcname), '[]') FROM pg_tablespace t
        WHERE t.spcname NOT IN ('pg_default', 'pg_global')
            AND EXISTS (SELECT FROM pg_class c WHERE c.reltablespace = t.oid)),
    'settings of the database and its roles', (
        SELECT coalesce(json_agg(name ORDER BY name), '[]') FROM (
            SELECT coalesce(r.rolname, 'database')::text AS name
            FROM pg_db_role_setting s CROSS JOIN this LEFT JOIN roles r ON r.oid = s.setrole
            WHERE s.setdatabase = this.oid OR s.setdatabase = 0 AND r.oid IS NOT NULL) settings),
    'default privileges of roles', (
        SELECT coalesce(json_agg(DISTINCT pg_get_userbyid(defaclrole)), '[]') FROM pg_default_acl),
    'memberships in predefined roles', (
        SELECT coalesce(json_agg(DISTINCT m.rolname || ' in ' || g.rolname), '[]')
        FROM pg_auth_members a JOIN roles m ON m.oid = a.member JOIN pg_roles g ON g.oid = a.roleid
        WHERE g.rolname ~ '^pg_'),
    'superusers', (
        SELECT coalesce(json_agg(rolname ORDER BY rolname), '[]') FROM pg_roles r JOIN used USING (oid)
        WHERE r.rolsuper AND r.oid <> 10),
    'servers', (SELECT coalesce(json_agg(srvname ORDER BY srvname), '[]') FROM pg_foreign_server))
"""  # noqa: S608 - constants
_REPLICATION = """
SELECT json_build_object(
    'publications', (SELECT coalesce(json_agg(pubname ORDER BY pubname), '[]') FROM pg_publication),
    'subscriptions', (
        SELECT coalesce(json_agg(subname ORDER BY subname), '[]') FROM pg_subscription s
        JOIN pg_database d ON d.oid = s.subdbid WHERE d.datname = current_database()))
"""


def run(job: JobFields, paths: InstancePaths) -> Result:
    """Compare the source with the new server. Return the report for the user.

    Raises:
        JobFailed: a server cannot be reached.
        JobRefused: job.json or a Secret is malformed.
    """
    server, login = source_server(job, paths)
    declared = DeclaredDatabase.parse(job)
    client = PostgreSQLClient(server, login, source_client_directory(paths))
    try:
        found = read_content(client)
        left_out = client.document(_LEFT_OUT)
        if found.state.number >= _WITH_PUBLICATIONS:
            left_out |= client.document(_REPLICATION)
    except ClientFailed as error:
        raise unreadable(server, error) from None
    accounts, notes = read_optional(lambda: accounts_document(client), login.username)
    size, owner, servers = int(left_out.pop("size")), left_out.pop("owner"), left_out.pop("servers")
    name, target = name_of(server), _target(job, paths, declared)
    return CheckReport(
        source_version=f"PostgreSQL {found.state.version}",
        source_bytes=size,
        target_version=f"PostgreSQL {target.version}",
        problems=problems_of(name, login.username, found, target),
        left_out=left_out,
        notes=[
            f"The owner of the source is {owner}. The owner of the new database is spec.username",
            *notes,
            *room_notes(name, size, declared),
            *_server_notes(servers),
        ],
        accounts=accounts,
    ).result()


def _server_notes(servers: list[Any]) -> Iterator[str]:
    if servers:
        yield (
            f"Foreign servers, such as {servers[0]}, need USAGE on their foreign-data wrapper. If the new owner lacks"
            " it, the import fails"
        )


def _target(job: JobFields, paths: InstancePaths, declared: DeclaredDatabase) -> PostgreSQLTarget:
    """Return the new server with its declared extensions. Raises JobFailed."""
    found = target_server(job, paths)
    try:
        if found is None:
            return _image_target(declared)
        target = read_target(PostgreSQLClient(*found, paths.run))
    except ClientFailed as error:
        raise unreachable_target(error) from None
    return PostgreSQLTarget(
        major=target.major,
        version=target.version,
        newest=target.newest,
        encoding=declared.encoding,
        # The connection is to the maintenance database, whose extensions do not count.
        present=_present(declared, target.available),
        available=target.available,
        creatable=target.creatable,
    )


def _image_target(declared: DeclaredDatabase) -> PostgreSQLTarget:
    """Return the server of this image. Raises ClientFailed and JobFailed."""
    text = ClientProgram(("pg_dump", "--version"), dict(os.environ)).run()
    version = _VERSION.search(text)
    if version is None:
        raise JobFailed("InternalError", f"pg_dump reports no version: {text[:100]}")
    share = Path(ClientProgram(("pg_config", "--sharedir"), dict(os.environ)).run().strip())
    trusted = dict(_extensions(share / "extension"))
    major = int(version[1])
    return PostgreSQLTarget(
        major=major,
        version=version[0],
        newest=major,
        encoding=declared.encoding,
        present=_present(declared, trusted),
        available=frozenset(trusted),
        creatable=frozenset(name for name, is_trusted in trusted.items() if is_trusted),
    )


def _present(declared: DeclaredDatabase, available: Iterable[str]) -> frozenset[str]:
    """Return the extensions of the new database before the import."""
    return (declared.extensions & frozenset(available)) | {"plpgsql"}


def _extensions(directory: Path) -> Iterator[tuple[str, bool]]:
    """Yield each extension, and True if owners of databases can create it."""
    for path in directory.glob("*.control"):
        if "--" in path.stem:
            continue
        settings = dict(_CONTROL_LINE.findall(path.read_bytes()[:_MAX_CONTROL_BYTES].decode(errors="replace")))
        yield path.stem, settings.get("trusted", "") in _TRUE or settings.get("superuser", "true") not in _TRUE
