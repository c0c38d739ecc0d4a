"""The Job of a dump of one database of MySQL or MariaDB."""

from __future__ import annotations

import os

from ..jobs import JobFailed, JobFields, Result, require_store
from ..paths import InstancePaths
from .mysql_client import MysqlClient, grants_document
from .processes import ClientFailed
from .program import make_dump, open_dumps, require_login
from .server import administrator_login, read_server


def run(job: JobFields, paths: InstancePaths) -> Result:
    """Dump the database with its grants. Return the result for the operator.

    Raises:
        JobFailed: the server cannot be reached, or mysqldump failed.
        JobRefused: job.json is malformed.
        ArchiveError: the store failed.
    """
    store = require_store(paths.store_file)
    server = read_server(job, paths.server)
    login = require_login(administrator_login(server), "the administrator")
    client = MysqlClient(server, login, paths.run, dict(os.environ))
    try:
        version = client.version()
        grants = [each for each in client.grants() if each.account[0] != login.username]
    except ClientFailed as error:
        raise JobFailed("ServerUnreachable", f"The server cannot be read: {error}.") from None
    archive = open_dumps(store, paths)
    return make_dump(job, store, archive, version, {"grants": grants_document(grants)}, client.dump().output())
