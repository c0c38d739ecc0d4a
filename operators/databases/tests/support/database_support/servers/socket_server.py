"""A real PostgreSQL whose socket admits all, as a pod's admits its own account."""

from __future__ import annotations

import signal
from collections.abc import Generator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import psycopg

from database_support.servers.postgresql import initialise
from database_support.servers.process import DatabaseServerProcess, data_directory, free_port
from database_support.servers.real_server import ADMINISTRATOR
from devcluster import database_servers
from steersman_databases.engines import ServerEndpoint

PROGRAMS = {
    path.parent.name: path
    for root in (Path("/"), database_servers.root(database_servers.TRIXIE))
    if root is not None
    for path in sorted(root.glob("usr/lib/postgresql/*/bin"))
}
"""By the major version."""


@dataclass
class SocketServer:
    """It can be stopped and started."""

    major: int
    directory: Path
    command: list[str]
    port: int
    process: DatabaseServerProcess | None = None

    def start(self) -> None:
        self.process = DatabaseServerProcess(self.directory, self.command)
        self.process.wait_for(ServerEndpoint("127.0.0.1", self.port))
        self.sql("SELECT 1", database="template1", wait=True)

    def stop(self) -> None:
        if self.process is not None:
            self.process.stop(signal.SIGINT)

    def sql(
        self,
        *batch: str,
        user: str = ADMINISTRATOR.username,
        database: str = "postgres",
        options: str = "",
        wait: bool = False,
    ) -> Sequence[Any]:
        """The rows of the last statement. Raises psycopg.Error."""
        while True:
            try:
                connection = psycopg.connect(
                    host=str(self.directory),
                    port=self.port,
                    user=user,
                    dbname=database,
                    options=options,
                    autocommit=True,
                )
                break
            except psycopg.OperationalError as error:
                if not wait or "starting up" not in str(error):
                    raise
        with closing(connection):
            done = [connection.execute(cast(Any, each)) for each in batch]
            return done[-1].fetchall() if done[-1].description else []


def start_socket_server(major: str) -> Generator[SocketServer]:
    """A server of this major version."""
    with data_directory() as directory:
        command, port = initialise(directory, PROGRAMS[major]), free_port()
        (directory / "data/pg_hba.conf").write_text("local all all trust\n")
        found = SocketServer(
            int(major), directory, [*command, f"-cport={port}", "-clisten_addresses=127.0.0.1"], port
        )
        found.start()
        yield found
        found.stop()
