"""Real servers keep the contract of groups, by which the model of simulations is held to them."""

from __future__ import annotations

import contextlib
import os
import signal
import ssl
import time
from collections.abc import Callable, Generator, Sequence
from pathlib import Path
from typing import Any

import pymysql
import pytest

from database_support.contracts.mysql_group import TestGroup
from database_support.servers.member_paths import paths_in
from database_support.servers.mysql_members import TESTER, cached_initialisation, mount_files
from database_support.servers.process import UNPRIVILEGED_UID, data_directory, free_port, unprivileged
from devcluster import database_servers
from framework_support.certificates import CertificateAuthority
from steersman_agent.server.certificates import CertificateReload
from steersman_agent.server.process import MySQLServer, ServerPaths

__all__ = ["TestGroup"]

pytestmark = [pytest.mark.xdist_group("mysql-group-contract"), pytest.mark.timeout(600)]

_ACKNOWLEDGED = 4.0  # seconds within which a client is told that something is kept


class Real:
    """Three servers on loopback, without agents."""

    def __init__(self, directory: Path, root: Path) -> None:
        program = [*unprivileged(), "--pdeathsig=KILL", str(cached_initialisation(root, directory))]
        shown, clients = CertificateAuthority(), CertificateAuthority()
        self.servers: Sequence[MySQLServer] = [
            MySQLServer(_place(directory / str(n), root, shown, clients, tuple(program), n)) for n in range(3)
        ]
        self._written = 0
        self.servers[0].initialise()

    def kill(self, server: MySQLServer) -> None:
        os.kill(int((server.paths.run / "mysqld.pid").read_text()), signal.SIGKILL)
        self.until("it is gone", lambda: not server.is_running)
        server.local.close_kept_connection()

    def write(self, server: MySQLServer) -> bool:
        """One transaction."""
        self._written += 1
        trust = ssl.create_default_context()
        trust.check_hostname, trust.verify_mode = False, ssl.CERT_NONE
        try:
            connection: Any = pymysql.connect(
                host=server.paths.host,
                port=server.paths.port,
                user=TESTER,
                password=TESTER,
                ssl=trust,
                read_timeout=_ACKNOWLEDGED,
            )
            with contextlib.closing(connection), connection.cursor() as cursor:
                cursor.execute(f"CREATE DATABASE written_{self._written}")
        except pymysql.MySQLError:
            return False
        return True

    def add_errant_transaction(self, server: MySQLServer) -> None:
        """One transaction as well."""
        server.local.execute(
            "SET GLOBAL super_read_only = OFF", "SET GLOBAL read_only = OFF", "CREATE DATABASE strayed"
        )

    def until(self, what: str, holds: Callable[[], object], seconds: float = 120) -> None:
        end = time.monotonic() + seconds
        while not holds():
            assert time.monotonic() < end, what
            time.sleep(0.1)

    def end(self) -> None:
        for server in self.servers:
            server.abort_initialisation()
            server.stop(10)


def _place(
    directory: Path,
    root: Path,
    shown: CertificateAuthority,
    clients: CertificateAuthority,
    program: Sequence[str],
    number: int,
) -> ServerPaths:
    mount_files(directory, root, shown, clients)
    (directory / "run").mkdir()
    place = paths_in(directory, program, free_port(), number)
    CertificateReload(place.tls, place.peer, place.trusted_ca).load()
    for each in (place.volume, place.run):
        # What is made in it is the server's as well as ours.
        if os.getuid() == 0:
            os.chown(each, UNPRIVILEGED_UID, UNPRIVILEGED_UID)
        each.chmod(0o2775)
    return place


@pytest.fixture(scope="module")
def group() -> Generator[Real]:
    root = database_servers.root(database_servers.SID)
    if root is None:
        pytest.skip("Debian sid cannot be had; python -m devcluster servers says why")
    former = os.umask(0o002)
    try:
        with data_directory() as directory:
            directory.chmod(0o755)
            real = Real(directory, root)
            try:
                yield real
            finally:
                real.end()
    finally:
        os.umask(former)
