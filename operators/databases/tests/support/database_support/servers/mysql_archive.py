"""A MySQL server with binary logs, an object store, and the programs of the image between them."""

from __future__ import annotations

import os
import signal
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pymysql

from database_support.servers.process import UNPRIVILEGED_UID, DatabaseServerProcess, free_port, program, run
from devcluster.store import ObjectStore
from framework_support.certificates import CertificateAuthority
from steersman_databases.engines import ServerEndpoint
from steersman_databases.engines.mysql.sql.system_accounts import statements
from steersman_databases.engines.naming import BACKUP_ROLE
from steersman_instance.archive.objects import open_objects
from steersman_instance.archive.store_file import Store, parse_store
from steersman_instance.backup import mysql_catalog
from steersman_instance.backup.mysql_base import MysqlArchive
from steersman_instance.backup.mysql_catalog import MysqlCatalog
from steersman_instance.backup.mysql_copy import Donor
from steersman_instance.backup.restic import Restic
from steersman_instance.binlog import chunk_store
from steersman_instance.binlog.chunk_store import ChunkStore
from steersman_instance.binlog.chunks import ChunkCipher
from steersman_instance.binlog.stream import LocalServer
from steersman_instance.mysqld import MysqldProgram
from steersman_instance.paths import InstancePaths

PASSPHRASE = "cGFzc3BocmFzZSBmb3IgdGVzdHMgb25seSwgMzIgYg=="


@dataclass
class ArchivedServer:
    """A lone server as the primary of a cluster, in a directory laid out as a pod's volumes.

    Args:
        root: unpacked Debian packages with MySQL and restic.
        directory: is the server's, and is removed by the caller.
    """

    root: Path
    directory: Path
    port: int = field(default_factory=free_port)
    process: DatabaseServerProcess | None = None

    @property
    def paths(self) -> InstancePaths:
        """The directories of this server's pod."""
        return InstancePaths(volume=self.directory / "volume", run=self.directory / "run")

    @property
    def program(self) -> MysqldProgram:
        """MySQL for servers that a Job starts."""
        options = {
            "basedir": f"{self.root}/usr",
            "lc-messages-dir": f"{self.root}/usr/share/mysql",
            "plugin-dir": f"{self.root}/usr/lib/mysql/plugin",
            "secure-file-priv": "NULL",
            "innodb-flush-method": "nosync",
            "innodb-redo-log-capacity": "16M",
            **({"user": "root"} if os.getuid() == 0 else {}),
        }
        return MysqldProgram((self.mysqld,), None, options)

    @property
    def mysqld(self) -> str:
        """Path of the server program."""
        return program("mysqld", str(self.root / "usr/sbin"))

    @property
    def server(self) -> LocalServer:
        """The server as the agent reaches it."""
        return LocalServer(self.paths.run / "mysqld.sock")

    def sql(self, *commands: str) -> list[tuple[Any, ...]]:
        """Run statements as a client and return the rows of the last one."""
        socket = str(self.paths.run / "mysqld.sock")
        connection = pymysql.connect(unix_socket=socket, user="root", autocommit=True)
        with connection, connection.cursor() as cursor:
            for command in commands:
                cursor.execute(command)
            return list(cursor.fetchall())

    def start(self) -> None:
        """Start the server and wait until it accepts connections."""
        tls = self.directory / "tls"
        options = {
            "datadir": self.paths.volume / "mysql",
            "socket": self.paths.run / "mysqld.sock",
            "pid-file": self.paths.run / "mysqld.pid",
            "port": self.port,
            "bind-address": "127.0.0.1",
            "log-bin": "binlog",
            "binlog-expire-logs-seconds": 0,
            "sync-binlog": 0,
            "gtid-mode": "ON",
            "enforce-gtid-consistency": "ON",
            "plugin-load-add": "mysql_clone.so",
            "mysqlx": "OFF",
            "ssl-ca": tls / "ca.crt",
            "ssl-cert": tls / "tls.crt",
            "ssl-key": tls / "tls.key",
        }
        defaults = [f"--{name}={value}" for name, value in self._base_options().items()]
        command = [self.mysqld, "--no-defaults", *defaults, *(f"--{name}={value}" for name, value in options.items())]
        self.process = DatabaseServerProcess(self.directory, command)
        self.process.wait_for(ServerEndpoint("127.0.0.1", self.port))

    def kill(self) -> None:
        """End the server as a crash does."""
        if self.process is not None:
            self.process.stop(signal.SIGKILL)
            self.process = None

    def stop(self) -> None:
        """Stop the server cleanly."""
        assert self.process is not None
        self.process.stop(signal.SIGTERM)
        self.process = None

    def take_back(self) -> None:
        """Give the files of servers that a Job ran on this volume to the server's user."""
        _give_away(self.directory)

    def donor(self) -> Donor:
        """This server as a backup Job reaches it."""
        return Donor("orders-0", "127.0.0.1", self.port, self.directory / "client")

    def certify(self) -> None:
        """Make the directories and certificates of a pod."""
        for name in ("volume", "run", "tls", "client"):
            (self.directory / name).mkdir(parents=True)
        servers, clients = CertificateAuthority(), CertificateAuthority()
        _write(self.directory / "tls", servers.issue("server", names=["localhost"]), clients)
        _write(self.directory / "client", clients.issue(BACKUP_ROLE), servers)
        _give_away(self.directory)

    def initialise(self) -> None:
        """Make data, certificates and accounts, as a pod has them."""
        self.certify()
        setup = self.directory / "setup.sql"
        setup.write_text("".join(f"{each};\n" for each in ("SET SESSION sql_log_bin = OFF", *statements())))
        _give_away(self.directory)
        options = [f"--{name}={value}" for name, value in self._base_options().items()]
        data = f"--datadir={self.paths.volume / 'mysql'}"
        command = [self.mysqld, "--no-defaults", *options, data, "--initialize-insecure", f"--init-file={setup}"]
        run(command, self.directory)

    def _base_options(self) -> dict[str, str]:
        return {name: value for name, value in self.program.options.items() if name != "user"}


@contextmanager
def archived_server(root: Path, directory: Path) -> Generator[ArchivedServer]:
    """Run a server during the block."""
    server = ArchivedServer(root, directory)
    server.initialise()
    server.start()
    try:
        yield server
    finally:
        server.kill()


def store_document(server: ObjectStore) -> dict[str, Any]:
    """Return the content of the store file of a cluster whose path is in a local object store."""
    return {
        "format": 1,
        "engine": "mysql",
        "cluster_uid": "0a1b2c3d-0000-0000-0000-000000000000",
        "path": "default/mysqlcluster.orders/0a1b2c3d",
        "bucket": server.bucket,
        "endpoint": server.host_endpoint,
        "region": server.region,
        "addressing": "Path",
        "ca": server.ca_file.read_text(),
        "accessKeyId": server.credentials.access_key_id,
        "secretAccessKey": server.credentials.secret_access_key,
        "passphrase": PASSPHRASE,
        "interval_seconds": 1,
    }


def store_of(server: ObjectStore) -> Store:
    """Return the store of a cluster whose path is in a local object store."""
    return parse_store(store_document(server))


def archive_of(store: Store, root: Path, paths: InstancePaths) -> MysqlArchive:
    """Return the archive of a cluster, with restic from unpacked packages."""
    return MysqlArchive(
        restic=Restic(store, program=str(root / "usr/bin/restic"), paths=paths),
        catalog=MysqlCatalog(open_objects(store, mysql_catalog.DIRECTORY, paths)),
        chunks=ChunkStore(open_objects(store, chunk_store.DIRECTORY, paths), ChunkCipher(store.passphrase)),
    )


def _write(directory: Path, issued: tuple[bytes, bytes], authority: CertificateAuthority) -> None:
    for name, content in {"tls.crt": issued[0], "tls.key": issued[1], "ca.crt": authority.certificate}.items():
        (directory / name).write_bytes(content)


def _give_away(path: Path) -> None:
    if os.getuid() == 0:
        for each in (path, *path.rglob("*")):
            os.chown(each, UNPRIVILEGED_UID, UNPRIVILEGED_UID)
