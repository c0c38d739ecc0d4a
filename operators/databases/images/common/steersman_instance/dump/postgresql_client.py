"""PostgreSQL's client programs: queries, dumps and restores of one database."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from ..files import replace_file
from .processes import ClientFailed, ClientProgram
from .server import Accounts, Login, ServerAddress, parse_accounts

_SSL_MODES = {"VerifyFull": "verify-full", "VerifyCA": "verify-ca", "Require": "require", "Disable": "disable"}
_CONNECT_SECONDS = 10
_LOCK_WAIT = "60s"
_VERSION = re.compile(r"(\d+)\.")

_STATE = """
SELECT json_build_object(
    'version', current_setting('server_version_num')::int,
    'text', split_part(current_setting('server_version'), ' ', 1))
"""
# Roles that objects of this database name, and their members. Superusers of another server have other names.
USED_ROLES = """
WITH RECURSIVE this AS (SELECT oid, datdba, datacl FROM pg_database WHERE datname = current_database()),
used (oid) AS (
    SELECT d.refobjid FROM pg_shdepend d, this
    WHERE d.refclassid = 'pg_authid'::regclass
        AND (d.dbid = this.oid OR d.dbid = 0 AND d.classid = 'pg_database'::regclass AND d.objid = this.oid)
    UNION SELECT m.member FROM pg_auth_members m JOIN used ON used.oid = m.roleid
),
roles AS (
    SELECT r.oid, r.rolname FROM pg_roles r JOIN used USING (oid)
    WHERE NOT r.rolsuper AND r.rolname <> session_user AND r.rolname !~ '^pg_'
)
"""
"""Start of a query with the tables this, used and roles."""
_ACCOUNTS = f"""{USED_ROLES}
SELECT json_build_object(
    'owner', (SELECT pg_get_userbyid(datdba) FROM this),
    'names', (SELECT coalesce(json_agg(rolname ORDER BY rolname), '[]') FROM roles),
    'memberships', (
        SELECT coalesce(json_agg(json_build_array(g.rolname, m.rolname) ORDER BY g.rolname, m.rolname), '[]')
        FROM (SELECT DISTINCT roleid, member FROM pg_auth_members) a
        JOIN roles g ON g.oid = a.roleid JOIN roles m ON m.oid = a.member),
    'grants', (
        SELECT coalesce(json_agg(json_build_array(r.rolname, a.privilege_type, a.is_grantable)
            ORDER BY r.rolname, a.privilege_type), '[]')
        FROM this, aclexplode(this.datacl) a JOIN roles r ON r.oid = a.grantee WHERE a.grantee <> this.datdba))
"""  # noqa: S608 - a constant
_CONTENT = """
WITH own AS (
    SELECT oid, nspname FROM pg_namespace
    WHERE nspname NOT IN ('pg_catalog', 'information_schema') AND nspname !~ '^pg_(toast|temp)')
SELECT json_build_object(
    'extensions', (SELECT coalesce(json_agg(extname), '[]') FROM pg_extension),
    'schemas', (SELECT coalesce(json_agg(nspname), '[]') FROM own),
    'objects', (
        SELECT coalesce(json_agg(name), '[]') FROM (
            SELECT own.nspname || '.' || c.relname AS name FROM pg_class c JOIN own ON own.oid = c.relnamespace
            WHERE c.relkind IN ('r', 'p', 'v', 'm', 'S', 'f') AND NOT EXISTS (
                SELECT FROM pg_depend d
                WHERE d.classid = 'pg_class'::regclass AND d.objid = c.oid AND d.deptype IN ('e', 'i', 'a'))
            UNION ALL
            SELECT own.nspname || '.' || p.proname FROM pg_proc p JOIN own ON own.oid = p.pronamespace
            WHERE NOT EXISTS (
                SELECT FROM pg_depend d
                WHERE d.classid = 'pg_proc'::regclass AND d.objid = p.oid AND d.deptype = 'e')
            LIMIT 3) found))
"""


@dataclass(frozen=True, slots=True)
class ServerState:
    """Version of a server: a number such as 170005, and text."""

    number: int
    version: str

    @property
    def major(self) -> int:
        """Major version."""
        return self.number // 10_000


@dataclass(frozen=True, slots=True)
class DatabaseContent:
    """Content of the target of a restore.

    Args:
        objects: names of some objects that no extension owns.
    """

    extensions: frozenset[str]
    schemas: frozenset[str]
    objects: Sequence[str]


class PostgreSQLClient:
    """Client programs as one account.

    Args:
        run: directory for the file with the password.
        programs: directory of the programs. Defaults to the search path.
    """

    def __init__(self, server: ServerAddress, login: Login, run: Path, programs: Path | None = None) -> None:
        self.server, self.login = server, login
        self._programs = programs
        self._environment = _environment(server, login, run)

    def state(self) -> ServerState:
        """Connect and return the server's version. Raises ClientFailed."""
        found = self.document(_STATE)
        return ServerState(int(found["version"]), str(found["text"]))

    def accounts(self) -> Accounts:
        """Return the roles of the database. Raises ClientFailed."""
        return parse_accounts(self.document(_ACCOUNTS))

    def content(self) -> DatabaseContent:
        """Return what is in the database. Raises ClientFailed."""
        found = self.document(_CONTENT)
        return DatabaseContent(
            frozenset(map(str, found["extensions"])), frozenset(map(str, found["schemas"])), list(found["objects"])
        )

    def role_names(self) -> frozenset[str]:
        """Return the names of all roles. Raises ClientFailed."""
        found = self.document("SELECT json_build_object('roles', json_agg(rolname)) FROM pg_roles")
        return frozenset(map(str, found["roles"]))

    def program_major(self) -> int:
        """Return the major version of pg_dump. Raises ClientFailed."""
        text = self._program("pg_dump", "--version").run()
        found = _VERSION.search(text)
        if found is None:
            raise ClientFailed(f"pg_dump reports no version: {text[:100]}")
        return int(found[1])

    def dump(self) -> ClientProgram:
        """Return pg_dump of the database. The store compresses, so that equal parts of two dumps are stored once."""
        options = ("--format=custom", "--compress=0", f"--lock-wait-timeout={_LOCK_WAIT}", "--no-password")
        return self._program("pg_dump", *options)

    def restore_list(self) -> ClientProgram:
        """Return pg_restore, which lists the objects of a dump."""
        return self._program("pg_restore", "--list")

    def restore_sql(self, objects: Path, *options: str) -> ClientProgram:
        """Return pg_restore, which prints the SQL of the listed objects."""
        # Tablespaces are directories of the source.
        left_out = ("--no-owner", "--no-tablespaces", "--no-publications", "--no-subscriptions")
        return self._program("pg_restore", f"--use-list={objects}", *left_out, "--file=-", *options)

    def script(self, *, stop: bool = True) -> ClientProgram:
        """Return psql, which runs SQL of its input.

        Args:
            stop: at the first error.
        """
        return self._program("psql", "-XAtq", "--no-password", f"--set=ON_ERROR_STOP={int(stop)}", "--file=-")

    def rows(self, sql: str) -> list[str]:
        """Run a statement and return its rows. Raises ClientFailed."""
        # The search path must not have a function of the database's users before the server's own.
        return self.script().run(f"SET search_path = pg_catalog;\n{sql};\n").splitlines()

    def document(self, sql: str) -> dict[str, Any]:
        """Run a query with one JSON object, and return it. Raises ClientFailed."""
        return cast("dict[str, Any]", json.loads("\n".join(self.rows(sql))))

    def _program(self, name: str, *arguments: str) -> ClientProgram:
        program = name if self._programs is None else str(self._programs / name)
        return ClientProgram((program, *arguments), self._environment)


def quoted(name: str) -> str:
    """Return a name as a quoted identifier."""
    return '"' + name.replace('"', '""') + '"'


def _environment(server: ServerAddress, login: Login, run: Path) -> dict[str, str]:
    """Write the password to a file, and return the variables of libpq."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PG")}
    environment |= {
        "LC_MESSAGES": "C",
        "PGHOST": server.host,
        "PGPORT": str(server.port),
        "PGDATABASE": server.database,
        "PGUSER": login.username,
        "PGSSLMODE": _SSL_MODES[server.tls],
        "PGGSSENCMODE": "disable",
        "PGCLIENTENCODING": "UTF8",
        "PGCONNECT_TIMEOUT": str(_CONNECT_SECONDS),
        "PGAPPNAME": "steersman-dump",
        "PGOPTIONS": "-c client_min_messages=warning",
        # An empty home has no certificate, service or password of its own.
        "HOME": str(run),
    }
    if server.tls in ("VerifyFull", "VerifyCA"):
        # With this file, libpq would verify the authority in mode require as well.
        environment["PGSSLROOTCERT"] = str(server.authorities)
    if login.certificate:
        environment |= {"PGSSLCERT": str(server.files / "tls.crt"), "PGSSLKEY": str(server.files / "tls.key")}
    if login.password:
        passwords = run / f"password-{login.username.encode().hex()[:64]}"
        escaped = login.password.replace("\\", "\\\\").replace(":", "\\:")
        replace_file(passwords, f"*:*:*:*:{escaped}\n")
        environment["PGPASSFILE"] = str(passwords)
    return environment
