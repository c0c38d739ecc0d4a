"""Running MySQL or MariaDB server as the source of a restore. It is checked before anything is written."""

from __future__ import annotations

import os
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from typing import IO, Any

from ..jobs import JobFailed, JobFields
from ..paths import InstancePaths
from .import_problem import require_none
from .mysql_client import MysqlClient, MysqlGrant, grants_document
from .mysql_problems import problems_of, read_content, read_target
from .processes import ClientFailed
from .source import DumpSource, name_of, source_client_directory, source_server, unreadable

# Policies are of the whole server, and the owner of the new database cannot create them. Only MySQL 9.7 has them.
_LEFT_OUT = "--loose-skip-masking-policies"


def imported_source(job: JobFields, paths: InstancePaths, target: MysqlClient) -> DumpSource:
    """Return the running server of job.json.

    Raises:
        JobFailed: a server cannot be reached.
        JobRefused: the database cannot be imported.
    """
    server, login = source_server(job, paths)
    client = MysqlClient(server, login, source_client_directory(paths), dict(os.environ))
    try:
        found = read_content(client)
    except ClientFailed as error:
        raise unreadable(server, error) from None
    try:
        present = read_target(target)
    except ClientFailed as error:
        raise JobFailed("ServerUnreachable", f"The server cannot be read: {error}.") from None
    name = name_of(server)
    require_none(problems_of(name, login.username, found, present))
    grants, problems = _grants(client, login.username)
    return DumpSource(
        name=name,
        version=found.version,
        result={"version": found.version},
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
