"""A PostgreSQL that archives into a real object store, and the programs of Jobs on it.

All run as an unprivileged user with the programs of a Debian release. A Job's program runs in a PID namespace of its
own, as in a pod: when it ends, everything that it started ends.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import psycopg

from database_support.archive.authority import Authority
from database_support.servers.process import (
    UNPRIVILEGED_UID,
    DatabaseServerProcess,
    data_directory,
    environment,
    free_port,
    unprivileged,
)
from database_support.unit.image_script import IMAGES
from devcluster import database_servers
from devcluster.store import ObjectStore
from devcluster.target import wait_until
from steersman_databases.engines import ServerEndpoint
from steersman_instance.archive.pgbackrest import CLIENT_NAME, STANZA, configuration_file
from steersman_instance.paths import InstancePaths

DRIVER = Path(__file__).with_name("job_process.py")
PASSPHRASE = "0123456789abcdef0123456789abcdef"
SOURCE_PATH = "orders/postgresqlcluster.orders/0a1b2c3d"
CLONE_PATH = "orders/postgresqlcluster.clone/99999999"
_PACKAGES = ("steersman_instance", "steersman_pod")


@dataclass
class Volumes:
    """The volumes of a pod below one directory, with the store file of one archive.

    Args:
        data: where members of the cluster have their data volume; the pod has its own unless given.
    """

    directory: Path
    store: ObjectStore
    separate_wal: bool = False
    data: Path | None = None

    @property
    def paths(self) -> InstancePaths:
        at = self.directory
        return InstancePaths(
            volume=self.data or at / "volume",
            run=at / "run",
            store_file=at / "backup/store.json",
            tls=at / "tls",
            peer=at / "peer",
            wal=at / ("wal" if self.separate_wal else "no-wal-volume"),
            source_store_file=at / "source/store.json",
            backup_client=at / "client",
            termination_log=at / "termination-log",
            server=at / "server",
            owner=at / "owner",
        )

    def create(self) -> None:
        for name in ("volume", "run", "backup", "source", "tls", "peer", "client", *(["wal"] * self.separate_wal)):
            (self.directory / name).mkdir(parents=True, mode=0o700)
        give(self.directory)


@dataclass(frozen=True)
class JobOutcome:
    """How a Job's program ended."""

    code: int
    result: Mapping[str, Any]
    logs: str


@dataclass
class ArchivedPostgreSQL:
    """A primary with its archive. ``store_fields`` is the store file that its pods have."""

    directory: Path
    store: ObjectStore
    volumes: Volumes
    path: str = SOURCE_PATH
    _process: DatabaseServerProcess | None = None

    @property
    def paths(self) -> InstancePaths:
        return self.volumes.paths

    def store_fields(self, **changed: object) -> dict[str, object]:
        return {
            "format": 1,
            "engine": "postgresql",
            "cluster_uid": "0a1b2c3d-0000-0000-0000-000000000000",
            "path": self.path,
            "bucket": self.store.bucket,
            "endpoint": self.store.host_endpoint,
            "region": self.store.region,
            "addressing": "Path",
            "ca": self.store.ca_file.read_text(),
            "accessKeyId": self.store.credentials.access_key_id,
            "secretAccessKey": self.store.credentials.secret_access_key,
            "passphrase": PASSPHRASE,
            **changed,
        }

    def create(self) -> None:
        """Initialise the data and the archive, and start the server."""
        self.volumes.create()
        write_store(self.paths.store_file, self.store_fields())
        data = self.paths.postgresql_data
        as_pod(["initdb", f"--pgdata={data}", "--username=postgres", "--auth=trust", "--data-checksums", "--no-sync"])
        settings = {
            "listen_addresses": "",
            "unix_socket_directories": str(self.paths.run),
            "archive_mode": "always",
            "archive_command": self.pgbackrest_command("archive-push %p"),
            "wal_keep_size": "0",
            "max_wal_size": "64MB",
            "shared_buffers": "16MB",
            "autovacuum": "off",
            "checkpoint_timeout": "1h",
            # Replay needs as many as there were, whatever the recovering server would choose.
            "max_prepared_transactions": "7",
            "track_commit_timestamp": "on",
        }
        lines = "".join(f"{name} = '{value}'\n" for name, value in settings.items())
        (data / "postgresql.conf").write_text(lines)
        # Only the program renders pgBackRest's configuration.
        self.job("render", {})
        self.start()
        self.pgbackrest("stanza-create")
        self.sql("CREATE TABLE marks (name text PRIMARY KEY, at timestamptz DEFAULT clock_timestamp())")

    def start(self, *, replica: bool = False) -> None:
        """Start the server and wait until it is a primary, or a replica that accepts queries."""
        data = self.paths.postgresql_data
        self._process = DatabaseServerProcess(self.paths.run, ["postgres", "-D", str(data)])
        accepts = partial(self.accepts, replica=replica)
        wait_until("PostgreSQL accepts connections", accepts, seconds=30, interval=0.05)

    def stop(self) -> None:
        """Stop as a pod does: fast, with a last archived segment."""
        as_pod(["pg_ctl", "stop", "-w", "-m", "fast", "-D", str(self.paths.postgresql_data)])
        self._process = None

    def terminate(self) -> None:
        if self._process is not None:
            self._process.stop(signal.SIGQUIT)

    def crash(self) -> None:
        """End the server as a node that loses its power does."""
        if self._process is not None:
            self._process.stop(signal.SIGKILL)
            self._process = None

    def accepts(self, *, replica: bool = False) -> bool:
        try:
            return self.sql("SELECT pg_is_in_recovery()") == [(replica,)]
        except psycopg.OperationalError:
            return False

    def timeline(self) -> int:
        return int(self.sql("SELECT timeline_id FROM pg_control_checkpoint()")[0][0])

    def sql(self, statement: str) -> list[Any]:
        with psycopg.connect(
            host=str(self.paths.run), user="postgres", dbname="postgres", autocommit=True
        ) as session:
            cursor = session.execute(statement.encode())
            return cursor.fetchall() if cursor.description else []

    def mark(self, name: str) -> str:
        """Commit a row. Return the position after its commit."""
        self.sql(f"INSERT INTO marks VALUES ('{name}')")
        return str(self.sql("SELECT pg_current_wal_insert_lsn()")[0][0])

    def now(self) -> str:
        """Return the server's time in RFC 3339."""
        return self.sql("SELECT clock_timestamp() AT TIME ZONE 'UTC'")[0][0].isoformat() + "Z"

    def archive_all(self) -> None:
        """Switch the segment and wait until the archive has it."""
        # An empty segment would not be switched.
        self.sql("SELECT pg_logical_emit_message(false, 'test', 'switch')")
        name = self.sql("SELECT pg_walfile_name(pg_switch_wal())")[0][0]
        last = "SELECT last_archived_wal FROM pg_stat_archiver"
        wait_until(f"{name} is archived", lambda: (self.sql(last)[0][0] or "") >= name, seconds=30, interval=0.05)

    def pgbackrest_command(self, command: str) -> str:
        return f"pgbackrest --config={configuration_file(self.paths)} --stanza={STANZA} {command}"

    def pgbackrest(self, *arguments: str) -> str:
        return as_pod([*self.pgbackrest_command("").split(), *arguments])

    def rewind(self, lsn: str) -> None:
        """Recover this very cluster to a position, as a recovery in place does: the rest of its WAL is abandoned."""
        self.stop()
        as_pod(
            [
                *self.pgbackrest_command("--delta --type=lsn --target-action=promote").split(),
                f"--target={lsn}",
                "restore",
            ]
        )
        self.start()

    @contextmanager
    def pgbackrest_server(self) -> Generator[tuple[int, Volumes]]:
        """Run pgBackRest's TLS server, as an agent does. Yield its port and the pod of a backup Job."""
        port = free_port()
        pod = Volumes(self.directory / "backup-pod", self.store, data=self.paths.volume)
        pod.create()
        certify_members(self.paths, pod.paths.backup_client)
        write_store(pod.paths.store_file, self.store_fields())
        # The pods of a cluster have the same paths.
        (pod.paths.run / ".s.PGSQL.5432").symlink_to(self.paths.run / ".s.PGSQL.5432")
        give(self.volumes.directory, pod.directory)
        configuration = configuration_file(self.paths)
        command = ["pgbackrest", f"--config={configuration}", f"--tls-server-port={port}", "server"]
        process = DatabaseServerProcess(self.paths.peer, command)
        try:
            process.wait_for(ServerEndpoint("127.0.0.1", port))
            yield port, pod
        finally:
            process.stop(signal.SIGTERM)

    def job(self, program: str, document: Mapping[str, object], *, moment: str = "") -> JobOutcome:
        return run_job(self.volumes, program, document, moment=moment)


@contextmanager
def archived_postgresql(store: ObjectStore) -> Generator[ArchivedPostgreSQL]:
    """A running primary that archives into a store."""
    with data_directory() as directory:
        server = ArchivedPostgreSQL(directory, store, Volumes(directory / "source", store))
        try:
            server.create()
            yield server
        finally:
            server.terminate()


@contextmanager
def empty_volumes(source: ArchivedPostgreSQL, **changed: object) -> Generator[Volumes]:
    """The volumes of a new cluster that recovers from a source."""
    with data_directory() as directory:
        volumes = Volumes(directory / "new", source.store, bool(changed.pop("separate_wal", False)))
        volumes.create()
        write_store(volumes.paths.source_store_file, source.store_fields(**changed))
        own = source.store_fields(path=CLONE_PATH, cluster_uid="99999999")
        write_store(volumes.paths.store_file, own)
        yield volumes


def run_job(volumes: Volumes, program: str, document: Mapping[str, object], *, moment: str = "") -> JobOutcome:
    """Run a Job's program.

    Args:
        moment: where the process is killed; job_process.py lists them.
    """
    library = volumes.directory / "lib"
    if not library.exists():
        for name in _PACKAGES:
            shutil.copytree(IMAGES / "common" / name, library / name, ignore=shutil.ignore_patterns("__pycache__"))
        shutil.copy(DRIVER, library)
        give(library)
    spec = volumes.directory / "job.json"
    spec.write_text(json.dumps({"format": 1, "engine": "postgresql", "version": "17", **document}))
    log = volumes.paths.termination_log
    log.write_text("")
    give(spec, log)
    paths = {name: str(getattr(volumes.paths, name)) for name in InstancePaths.__slots__}
    namespace = ["unshare", "--pid", "--fork", "--kill-child"] if os.geteuid() == 0 else []
    command = ["/usr/bin/python3", "-I", str(library / DRIVER.name), json.dumps(paths), program, str(spec), moment]
    done = subprocess.run(
        [*namespace, *unprivileged(), *command],
        capture_output=True,
        text=True,
        env=environment(volumes.directory),
        timeout=110,
        check=False,
    )
    text = log.read_text()
    return JobOutcome(done.returncode, json.loads(text) if text else {}, done.stdout + done.stderr)


@contextmanager
def recovered_server(volumes: Volumes, *, archive: bool = False) -> Generator[ArchivedPostgreSQL]:
    """The recovered cluster, started on its volumes as an instance. ``archive``: into its own path."""
    server = ArchivedPostgreSQL(volumes.directory.parent, volumes.store, volumes, CLONE_PATH)
    command = server.pgbackrest_command("archive-push %p") if archive else "/bin/true"
    with (volumes.paths.postgresql_data / "postgresql.conf").open("a") as file:
        file.write(f"unix_socket_directories = '{volumes.paths.run}'\narchive_command = '{command}'\n")
    try:
        server.start()
        yield server
        server.stop()
    finally:
        server.terminate()


def marks(volumes: Volumes) -> list[str]:
    """Return the rows of a recovered cluster, in order."""
    with recovered_server(volumes) as server:
        return [name for (name,) in server.sql("SELECT name FROM marks ORDER BY at")]


def certify_members(paths: InstancePaths, backup_client: Path) -> None:
    """Write the certificates of an instance and of a backup Job, each of an authority of its own."""
    authorities = {name: Authority.create(name) for name in ("server", "client")}
    server, client = authorities["server"], authorities["client"]
    for directory, issuer, trusted, name in (
        (paths.tls, server, client, "localhost"),
        (backup_client, client, server, CLIENT_NAME),
    ):
        certificate, key = issuer.issue(name)
        (directory / "tls.crt").write_bytes(certificate)
        (directory / "tls.key").write_bytes(key)
        (directory / "tls.key").chmod(0o600)
        (directory / "ca.crt").write_bytes(trusted.certificate)
    (paths.peer / "ca.crt").write_bytes(client.certificate)


def write_store(file: Path, fields: Mapping[str, object]) -> None:
    file.write_text(json.dumps(fields))
    give(file)


def give(*paths: Path) -> None:
    """Make the unprivileged user the owner."""
    if os.getuid() == 0:
        for path in paths:
            for each in (path, *path.rglob("*")):
                os.chown(each, UNPRIVILEGED_UID, UNPRIVILEGED_UID, follow_symlinks=False)


def as_pod(command: Sequence[str]) -> str:
    """Run a program of the image as the unprivileged user. Return its output."""
    done = subprocess.run(
        [*unprivileged(), *command],
        capture_output=True,
        text=True,
        env={**environment(Path("/tmp"))},
        cwd="/",
        check=False,
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
    return done.stdout


def programs() -> str | None:
    """Return the search path with PostgreSQL and pgBackRest, or None if they are not unpacked."""
    root = database_servers.root(database_servers.TRIXIE)
    if root is None:
        return None
    return f"{root}/usr/lib/postgresql/17/bin:{root}/usr/bin:{os.environ['PATH']}"
