"""A read replica's program on real PostgreSQL servers, on loopback, as an unprivileged user."""

from __future__ import annotations

import json
import os
import shutil
import signal
import ssl
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg

from database_support.archive.archived_server import as_pod, give
from database_support.archive.authority import Authority
from database_support.servers.process import (
    DatabaseServerProcess,
    data_directory,
    environment,
    free_port,
    unprivileged,
)
from database_support.unit.image_script import IMAGES
from devcluster.target import wait_until
from steersman_databases.engines import ServerEndpoint
from steersman_instance.paths import InstancePaths

DRIVER = Path(__file__).with_name("read_replica_process.py")
POD = "orders-read0-0"
SLOT = "steersman_read_0"
HBA = ("local all all trust", "hostssl replication steersman_replication all cert")
SETTINGS: Mapping[str, str] = {
    "listen_addresses": "127.0.0.1",
    "fsync": "off",
    "shared_buffers": "16MB",
    "max_wal_size": "64MB",
    "min_wal_size": "32MB",
    "ssl": "on",
    "wal_level": "replica",
    "wal_retrieve_retry_interval": "500ms",
}


@dataclass
class Primary:
    """A primary that read replicas can copy. Its directory belongs to the unprivileged user."""

    directory: Path
    certificates: Path
    port: int = field(default_factory=free_port)
    _process: DatabaseServerProcess | None = None

    @property
    def data(self) -> Path:
        return self.directory / "data"

    def create(self) -> None:
        """Make the data with the accounts of a cluster, and start."""
        self.directory.mkdir(mode=0o700)
        give(self.directory)
        as_pod(["initdb", f"--pgdata={self.data}", "--username=postgres", "--auth=trust", "--no-sync"])
        self.configure()
        self.start()
        self.sql("CREATE ROLE steersman_replication LOGIN REPLICATION")
        self.sql("CREATE ROLE steersman_monitor NOLOGIN")
        self.sql("GRANT pg_monitor TO steersman_monitor")
        self.sql("CREATE TABLE marks (name text)")

    def create_standby_of(self, other: Primary) -> None:
        """Copy another server, and follow it."""
        self.directory.mkdir(mode=0o700)
        give(self.directory)
        as_pod(
            [
                "pg_basebackup",
                "-h",
                str(other.directory),
                "-p",
                str(other.port),
                "-U",
                "postgres",
                "-R",
                "-D",
                str(self.data),
            ]
        )
        self.configure()
        self.start()

    def configure(self, **changed: str) -> None:
        tls = self.certificates
        own = {
            "port": str(self.port),
            "unix_socket_directories": str(self.directory),
            "ssl_cert_file": str(tls / "tls/tls.crt"),
            "ssl_key_file": str(tls / "tls/tls.key"),
            "ssl_ca_file": str(tls / "peer/ca.crt"),
        }
        values = {**SETTINGS, **own, **changed}
        (self.data / "postgresql.conf").write_text("".join(f"{n} = '{v}'\n" for n, v in values.items()))
        hba = ("local all all trust", "local replication all trust", *HBA[1:])
        (self.data / "pg_hba.conf").write_text("".join(f"{line}\n" for line in hba))

    def start(self) -> None:
        self._process = DatabaseServerProcess(self.directory, ["postgres", "-D", str(self.data)])
        self._process.wait_for(ServerEndpoint("127.0.0.1", self.port))
        wait_until("the primary accepts connections", self.accepts, seconds=30, interval=0.05)

    def accepts(self) -> bool:
        try:
            self.sql("SELECT 1")
        except psycopg.OperationalError:
            return False
        return True

    def stop(self) -> None:
        if self._process is not None:
            self._process.stop(signal.SIGINT)

    def promote(self) -> None:
        self.sql("SELECT pg_promote()")

    def sql(self, statement: str) -> list[Any]:
        return query(self.directory, self.port, statement)


@dataclass
class ReadReplicaProcess:
    """A read replica with its volume, which outlives its container."""

    directory: Path
    certificates: Path
    version: str
    port: int = field(default_factory=free_port)
    report_port: int = field(default_factory=free_port)
    _process: subprocess.Popen[str] | None = None

    @property
    def paths(self) -> InstancePaths:
        at = self.directory
        return InstancePaths(
            volume=at / "volume", run=at / "run", tls=self.certificates / "tls", peer=self.certificates / "peer"
        )

    @property
    def log(self) -> Path:
        return self.directory / "output.log"

    def declare(self, primary: Primary, *, max_lag: float = 30.0, **parameters: str) -> None:
        """Write the operator's file."""
        own = {"fsync", "shared_buffers", "max_wal_size", "min_wal_size", "wal_retrieve_retry_interval"}
        declared: dict[str, object] = {
            "host": "127.0.0.1",
            "port": primary.port,
            "parameters": {**{n: v for n, v in SETTINGS.items() if n in own}, **parameters},
            "hba": HBA,
            "ident": [],
            "maxLagSeconds": max_lag,
        }
        fresh = self.directory / "declaration.fresh"
        fresh.write_text(json.dumps(declared))
        give(fresh)
        fresh.replace(self.directory / "declaration.json")

    def create(self) -> None:
        library = self.directory / "lib"
        for name in ("volume", "run"):
            (self.directory / name).mkdir(parents=True, mode=0o700)
        for name in ("steersman_instance", "steersman_pod"):
            shutil.copytree(IMAGES / "common" / name, library / name, ignore=shutil.ignore_patterns("__pycache__"))
        shutil.copy(DRIVER, library)
        self.log.touch()
        give(self.directory)

    def start(self) -> None:
        library = self.directory / "lib"
        given = {
            # The interpreter of the tests has the driver of PostgreSQL.
            "path": [str(library), *(p for p in sys.path if p.endswith("site-packages"))],
            "paths": {name: str(getattr(self.paths, name)) for name in InstancePaths.__slots__},
            "pod": POD,
            "version": self.version,
            "declaration": str(self.directory / "declaration.json"),
            "port": self.port,
            "report_port": self.report_port,
        }
        namespace = ["unshare", "--pid", "--fork", "--kill-child"] if os.geteuid() == 0 else []
        command = [sys.executable, "-I", str(library / DRIVER.name), json.dumps(given)]
        with self.log.open("a") as log:
            self._process = subprocess.Popen(
                [*namespace, *unprivileged(), "--pdeathsig=KILL", *command],
                stdout=log,
                stderr=log,
                env=environment(self.directory),
                cwd=self.directory,
                text=True,
            )

    def stop(self) -> int:
        """Stop it as a kubelet does. Return the exit code."""
        assert self._process is not None
        child = _child_of(self._process.pid) if os.geteuid() == 0 else self._process.pid
        os.kill(child, signal.SIGINT)
        return self._process.wait(60)

    def kill(self) -> None:
        """Kill it with all that it started."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def status(self) -> Mapping[str, Any]:
        """Return what it reports; empty while it does not."""
        return json.loads(self.request("/status")[1] or "{}")

    def is_ready(self) -> bool:
        return self.request("/readiness")[0] == 200

    def request(self, path: str) -> tuple[int, str]:
        context = ssl.create_default_context(cafile=str(self.certificates / "tls/ca.crt"))
        try:
            with urllib.request.urlopen(
                f"https://localhost:{self.report_port}{path}", timeout=5, context=context
            ) as response:
                return response.status, response.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()
        except OSError:
            return 0, ""

    def wait_ready(self) -> None:
        try:
            wait_until("the read replica is ready", self.is_ready, seconds=60, interval=0.1)
        except BaseException as error:
            raise AssertionError(self.log.read_text()[-6000:]) from error

    def sql(self, statement: str) -> list[Any]:
        return query(self.paths.run, self.port, statement)


def query(socket: Path, port: int, statement: str) -> list[Any]:
    """Run a statement as the superuser, on a connection of its own."""
    with psycopg.connect(host=str(socket), port=port, user="postgres", dbname="postgres", autocommit=True) as session:
        cursor = session.execute(statement.encode())
        return cursor.fetchall() if cursor.description else []


@contextmanager
def read_replica_of_new_primary(version: str) -> Generator[tuple[Primary, ReadReplicaProcess]]:
    """A primary that runs, and a read replica that does not yet."""
    with data_directory() as directory:
        certificates = directory / "certificates"
        _certify(certificates)
        primary = Primary(directory / "primary", certificates)
        replica = ReadReplicaProcess(directory / "replica", certificates, version)
        try:
            primary.create()
            replica.create()
            replica.declare(primary)
            yield primary, replica
        finally:
            replica.kill()
            primary.stop()


def _certify(directory: Path) -> None:
    server, client = Authority.create("server"), Authority.create("client")
    for name, issuer, trusted, subject in (
        ("tls", server, server, "localhost"),
        ("peer", client, client, "steersman_replication"),
    ):
        place = directory / name
        place.mkdir(parents=True, mode=0o700)
        certificate, key = issuer.issue(subject)
        (place / "tls.crt").write_bytes(certificate)
        (place / "tls.key").write_bytes(key)
        (place / "tls.key").chmod(0o600)
        (place / "ca.crt").write_bytes(trusted.certificate)
    give(directory)


def _child_of(pid: int) -> int:
    """Return the process in the namespace that `unshare` made."""
    return int(Path(f"/proc/{pid}/task/{pid}/children").read_text().split()[0])
