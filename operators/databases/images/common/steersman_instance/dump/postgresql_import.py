"""Running PostgreSQL server as the source of a restore. It is checked before anything is written."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from typing import IO, Any

from ..jobs import JobFailed, JobFields
from ..paths import InstancePaths
from .import_problem import require_none
from .postgresql_client import PostgreSQLClient
from .postgresql_problems import problems_of, read_content, read_target
from .processes import ClientFailed
from .server import Accounts
from .source import DumpSource, name_of, source_client_directory, source_server, unreadable


def imported_source(job: JobFields, paths: InstancePaths, target: PostgreSQLClient) -> DumpSource:
    """Return the running server of job.json.

    Raises:
        JobFailed: a server cannot be reached.
        JobRefused: the database cannot be imported.
    """
    server, login = source_server(job, paths)
    client = PostgreSQLClient(server, login, source_client_directory(paths))
    try:
        found, accounts = read_content(client), client.accounts()
    except ClientFailed as error:
        raise unreadable(server, error) from None
    try:
        present = read_target(target)
    except ClientFailed as error:
        raise JobFailed("ServerUnreachable", f"The server cannot be read: {error}.") from None
    name, version = name_of(server), found.state.version
    require_none(problems_of(name, login.username, found, present))
    return DumpSource(name=name, version=version, result={"version": version}, read=lambda: _dump(client, accounts))


@contextmanager
def _dump(client: PostgreSQLClient, accounts: Accounts) -> Generator[tuple[Mapping[str, Any], IO[bytes]]]:
    with client.dump().stream() as stream:
        yield accounts.document(), stream
