"""Running MySQL or MariaDB server as the source of a restore. It is checked before anything is written."""

from __future__ import annotations

import os
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from typing import IO, Any

from ..jobs import JobFields, JobRefused
from ..paths import InstancePaths
from .mysql_client import MARKER, MysqlClient, MysqlGrant, grants_document
from .processes import ClientFailed
from .source import FIELD, DumpSource, source_server, unreadable

# Without them, mysqldump omits objects silently.
_REQUIRED = ("SELECT", "SHOW VIEW", "TRIGGER", "EVENT", "EXECUTE")
_HOST = "SUBSTRING_INDEX(CURRENT_USER(), '@', -1)"
_USER = f"LEFT(CURRENT_USER(), CHAR_LENGTH(CURRENT_USER()) - CHAR_LENGTH({_HOST}) - 1)"
# A grant on databases has a pattern.
_PRIVILEGES = f"""
SELECT JSON_ARRAY(PRIVILEGE_TYPE) FROM (
    SELECT GRANTEE, PRIVILEGE_TYPE FROM information_schema.USER_PRIVILEGES
    UNION SELECT GRANTEE, PRIVILEGE_TYPE FROM information_schema.SCHEMA_PRIVILEGES WHERE DATABASE() LIKE TABLE_SCHEMA
) found WHERE GRANTEE = CONCAT('''', {_USER}, '''@''', {_HOST}, '''')
"""  # noqa: S608 - a constant
_HIDDEN_ROUTINES = """
SELECT JSON_ARRAY(ROUTINE_NAME) FROM information_schema.ROUTINES
WHERE ROUTINE_SCHEMA = DATABASE() AND ROUTINE_DEFINITION IS NULL
"""
# Policies are of the whole server, and the owner of the new database cannot create them. Only MySQL 9.7 has them.
_LEFT_OUT = "--loose-skip-masking-policies"


def imported_source(job: JobFields, paths: InstancePaths) -> DumpSource:
    """Return the running server of job.json.

    Raises:
        JobFailed: it cannot be reached.
        JobRefused: the database cannot be imported.
    """
    server, login = source_server(job, paths)
    directory = paths.run / "import"
    directory.mkdir(exist_ok=True)
    client = MysqlClient(server, login, directory, dict(os.environ))
    try:
        version = client.version()
        privileges = {str(name) for (name,) in client.rows(_PRIVILEGES)}
        hidden = [str(name) for (name,) in client.rows(_HIDDEN_ROUTINES)]
        is_unfinished = MARKER in client.objects()
    except ClientFailed as error:
        raise unreadable(server, error) from None
    name = f"Database {server.database} of {server.host}"
    _require_readable(name, login.username, [each for each in _REQUIRED if each not in privileges], hidden)
    if is_unfinished:
        raise JobRefused(
            "SourceMismatch",
            f"{name} has table {MARKER}, so a restore into it is not complete. Complete it, or drop the table.",
        )
    grants, problems = _grants(client, login.username)
    return DumpSource(
        name=name,
        version=version,
        result={"version": version},
        problems=problems,
        read=lambda: _dump(client, grants),
    )


@contextmanager
def _dump(client: MysqlClient, grants: Sequence[MysqlGrant]) -> Generator[tuple[Mapping[str, Any], IO[bytes]]]:
    with client.dump(_LEFT_OUT).stream() as stream:
        yield {"grants": grants_document(grants)}, stream


def _grants(client: MysqlClient, user: str) -> tuple[list[MysqlGrant], list[str]]:
    """Return the grants of other accounts, and problems."""
    try:
        client.account_names()
        return [each for each in client.grants() if each.account[0] != user], []
    except ClientFailed as error:
        return [], [f"the source does not show grants to {user}: {error}"]


def _require_readable(name: str, user: str, missing: Sequence[str], hidden: Sequence[str]) -> None:
    """Reject an account that mysqldump needs more rights for. Raises JobRefused."""
    if missing:
        raise JobRefused(
            "RightsMissing",
            f"User {user} of {FIELD}.credentials lacks {', '.join(missing)} on {name}. Grant them on the whole"
            " database, without a role.",
        )
    if hidden:
        raise JobRefused(
            "RightsMissing",
            f"User {user} of {FIELD}.credentials cannot read the text of routine {hidden[0]} of {name}. Grant it"
            " SHOW_ROUTINE, on MariaDB and MySQL 5.7 SELECT on mysql.proc.",
        )
