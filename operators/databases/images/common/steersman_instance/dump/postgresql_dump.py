"""The Job of a dump of one PostgreSQL database."""

from __future__ import annotations

from ..jobs import JobFailed, JobFields, JobRefused, Result, require_store
from ..paths import InstancePaths
from .postgresql_client import PostgreSQLClient
from .processes import ClientFailed
from .program import make_dump, open_dumps, require_login
from .server import administrator_login, read_server


def run(job: JobFields, paths: InstancePaths) -> Result:
    """Dump the database with its roles and grants. Return the result for the operator.

    Raises:
        JobFailed: the server cannot be reached, or pg_dump failed.
        JobRefused: job.json is malformed, or the server is newer than pg_dump.
        ArchiveError: the store failed.
    """
    store = require_store(paths.store_file)
    server = read_server(job, paths.server)
    client = PostgreSQLClient(server, require_login(administrator_login(server), "the administrator"), paths.run)
    try:
        state, newest = client.state(), client.program_major()
        accounts = client.accounts()
    except ClientFailed as error:
        raise JobFailed("ServerUnreachable", f"The server cannot be read: {error}.") from None
    if state.major > newest:
        raise JobRefused(
            "UnsupportedVersion", f"The server has PostgreSQL {state.version}, which pg_dump {newest} cannot dump."
        )
    archive = open_dumps(store, paths)
    return make_dump(job, store, archive, state.version, accounts.document(), client.dump().output())
