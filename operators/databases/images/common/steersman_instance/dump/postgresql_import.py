"""Running PostgreSQL server as the source of a restore. It is checked before anything is written."""

from __future__ import annotations

import json
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from typing import IO, Any

from ..jobs import JobFailed, JobFields, JobRefused
from ..paths import InstancePaths
from .postgresql_client import PostgreSQLClient, ServerState
from .processes import ClientFailed
from .server import Accounts
from .source import FIELD, DumpSource, source_server, unreadable

# pg_dump reads tables and sequences, and the definitions of all other objects.
_SOURCE = """
WITH own AS (
    SELECT n.oid AS schema, c.oid, c.relkind, format('%I.%I', n.nspname, c.relname) AS name
    FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
    WHERE n.nspname NOT IN ('pg_catalog', 'information_schema') AND n.nspname !~ '^pg_(toast|temp)'
        AND c.relkind IN ('r', 'p', 'S')
        AND NOT EXISTS (
            SELECT FROM pg_depend d
            WHERE d.classid = 'pg_class'::regclass AND d.objid = c.oid AND d.deptype = 'e'))
SELECT json_build_object(
    'encoding', getdatabaseencoding(),
    'extensions', (SELECT coalesce(json_agg(extname ORDER BY extname), '[]') FROM pg_extension),
    'denied', (
        SELECT coalesce(json_agg(name ORDER BY name), '[]') FROM own
        WHERE NOT has_schema_privilege(schema, 'USAGE')
            OR NOT CASE relkind WHEN 'S' THEN has_sequence_privilege(oid, 'SELECT')
                ELSE has_table_privilege(oid, 'SELECT') END),
    'filtered', (
        SELECT coalesce(json_agg(name ORDER BY name), '[]') FROM own
        WHERE relkind <> 'S' AND row_security_active(oid)))
"""
# Owners of a database can create trusted extensions.
_TARGET = """
SELECT json_build_object(
    'encoding', getdatabaseencoding(),
    'present', (SELECT coalesce(json_agg(extname), '[]') FROM pg_extension),
    'available', (SELECT coalesce(json_agg(name), '[]') FROM pg_available_extensions),
    'creatable', (
        SELECT coalesce(json_agg(DISTINCT name), '[]') FROM pg_available_extension_versions
        WHERE trusted OR NOT superuser))
"""


def imported_source(job: JobFields, paths: InstancePaths, target: PostgreSQLClient) -> DumpSource:
    """Return the running server of job.json.

    Raises:
        JobFailed: a server cannot be reached.
        JobRefused: the database cannot be imported.
    """
    server, login = source_server(job, paths)
    directory = paths.run / "import"
    directory.mkdir(exist_ok=True)
    client = PostgreSQLClient(server, login, directory)
    try:
        state, accounts, found = client.state(), client.accounts(), _read(client, _SOURCE)
    except ClientFailed as error:
        raise unreadable(server, error) from None
    try:
        present, newest = _read(target, _TARGET), target.program_major()
    except ClientFailed as error:
        raise JobFailed("ServerUnreachable", f"The server cannot be read: {error}.") from None
    name = f"Database {server.database} of {server.host}"
    _require_supported(name, state, newest)
    _require_readable(name, login.username, found)
    require_extensions(name, found["extensions"], present)
    require_encoding(name, str(found["encoding"]), str(present["encoding"]))
    return DumpSource(
        name=name, version=state.version, result={"version": state.version}, read=lambda: _dump(client, accounts)
    )


@contextmanager
def _dump(client: PostgreSQLClient, accounts: Accounts) -> Generator[tuple[Mapping[str, Any], IO[bytes]]]:
    with client.dump().stream() as stream:
        yield accounts.document(), stream


def _read(client: PostgreSQLClient, sql: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads("\n".join(client.rows(sql)))
    return found


def _require_supported(name: str, state: ServerState, newest: int) -> None:
    """Reject a server that is newer than pg_dump. Raises JobRefused."""
    if state.major > newest:
        raise JobRefused(
            "UnsupportedVersion",
            f"{name} is of PostgreSQL {state.version}, which pg_dump {newest} cannot dump. Upgrade the operator.",
        )


def _require_readable(name: str, user: str, found: Mapping[str, Any]) -> None:
    """Reject tables that the account cannot read as a whole. Raises JobRefused."""
    denied: Sequence[str] = found["denied"]
    if denied:
        raise JobRefused(
            "RightsMissing",
            f"User {user} of {FIELD}.credentials cannot read {_amount(denied)} of {name}. Grant it USAGE on the"
            " schemas and SELECT on the tables and sequences, or the role pg_read_all_data.",
        )
    filtered: Sequence[str] = found["filtered"]
    if filtered:
        raise JobRefused(
            "RightsMissing",
            f"Row-level security hides rows of {_amount(filtered)} of {name} from user {user} of {FIELD}.credentials."
            " Use the owner of the tables or a user with BYPASSRLS.",
        )


def require_extensions(name: str, extensions: Sequence[str], present: Mapping[str, Any]) -> None:
    """Reject extensions that the restore cannot create. Raises JobRefused."""
    missing = [each for each in extensions if each not in present["present"]]
    unavailable = [each for each in missing if each not in present["available"]]
    if unavailable:
        raise JobRefused(
            "ExtensionUnavailable",
            f"{name} has extension {', '.join(unavailable)}, which the new server does not offer. Drop it on the"
            " source, or use a server with it.",
        )
    undeclared = [each for each in missing if each not in present["creatable"]]
    if undeclared:
        raise JobRefused(
            "ExtensionMissing",
            f"{name} has extension {', '.join(undeclared)}, which only an administrator can create. Declare it in"
            " spec.extensions.",
        )


def require_encoding(name: str, source: str, target: str) -> None:
    """Reject an encoding whose characters the target may lack. Raises JobRefused."""
    if source == target or (target == "UTF8" and source != "SQL_ASCII"):
        return
    raise JobRefused(
        "EncodingMismatch",
        f"{name} has encoding {source}, and the new database has {target}. Create a new Database with spec.encoding"
        f" {source}{'' if source == 'SQL_ASCII' else ' or UTF8'}.",
    )


def _amount(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{len(names)} tables or sequences, such as {names[0]},"
