"""What is no variable of a server that runs is refused before a member is given it."""

from __future__ import annotations

import subprocess

from database_support.servers.mysql import RealMySQLServer
from devcluster import database_servers
from steersman_databases.engines.mysql.config.parameters import rejection_reason


def options() -> set[str]:
    """The names of all that mysqld takes at its start, as it tells them itself."""
    root = database_servers.root(database_servers.SID)
    assert root is not None
    command = [
        f"{root}/usr/sbin/mysqld",
        "--no-defaults",
        f"--basedir={root}/usr",
        "--user=root",
        "--verbose",
        "--help",
    ]
    told = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout
    table = told.partition("\n---")[2].partition("\n")[2].partition("\n\n")[0]
    return {line.split()[0].replace("-", "_") for line in table.splitlines()}


async def test_option_that_is_no_variable_is_rejected(mysql: RealMySQLServer) -> None:
    """A server that runs knows none of these, and one that starts would have them until it starts again."""
    told = options()
    assert len(told) > 500
    variables = {name for (name, _) in await mysql.execute("SHOW GLOBAL VARIABLES")}
    assert "innodb_buffer_pool_size" in told & variables
    assert sorted(name for name in told - variables if rejection_reason(name, "1") is None) == []
