"""PostgreSQL instances with the image's archive command, on loopback."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import psycopg

from database_support.servers.process import UNPRIVILEGED_UID, DatabaseServerProcess, free_port, run
from database_support.unit.image_script import IMAGES
from devcluster import database_servers
from devcluster.store import ObjectStore
from steersman_instance.archive.record import FileRecord
from steersman_instance.files import read_json
from steersman_instance.paths import InstancePaths

CLUSTER_UID = "0a1b2c3d-0000-0000-0000-000000000000"
ARCHIVE_PATH = "shop/postgresqlcluster.orders/0a1b2c3d"
_DRIVER = """import sys
from pathlib import Path
sys.path.insert(0, {library!r})
from steersman_instance import paths
paths.PATHS = paths.InstancePaths(
    volume=Path({volume!r}), run=Path({run!r}), store_file=Path({store_file!r})
)
from steersman_instance import __main__
sys.exit(__main__.main(sys.argv[1:]))
"""


def programs_directory(directory: Path) -> Path | None:
    """Link the programs that the image has into a directory. Return None if they are not unpacked."""
    root = database_servers.root(database_servers.TRIXIE)
    if root is None or not (root / "usr/bin/pgbackrest").exists():
        return None
    found = directory / "bin"
    found.mkdir()
    # The rest of that release's programs needs its own C library.
    (found / "pgbackrest").symlink_to(root / "usr/bin/pgbackrest")
    for program in (root / "usr/lib/postgresql/17/bin").iterdir():
        (found / program.name).symlink_to(program)
    return found


class ArchivingInstance:
    """The volumes of one instance below a directory, and the server on them."""

    def __init__(self, directory: Path, store: ObjectStore) -> None:
        self.directory = directory
        self.store = store
        self.port = free_port()
        self.paths = InstancePaths(
            volume=directory / "volume", run=directory / "run", store_file=directory / "backup/store.json"
        )
        self.record = FileRecord(self.paths)
        self._process: DatabaseServerProcess | None = None
        for name in ("volume", "run", "backup"):
            (directory / name).mkdir(parents=True, mode=0o700)
        shutil.copytree(
            IMAGES / "common/steersman_instance",
            directory / "lib/steersman_instance",
            ignore=shutil.ignore_patterns("__pycache__"),
        )
        self.driver = directory / "driver.py"
        self.driver.write_text(
            _DRIVER.format(
                library=str(directory / "lib"),
                **{name: str(getattr(self.paths, name)) for name in ("volume", "run", "store_file")},
            )
        )
        self.command = directory / "pgbackrest-archive"
        self.command.write_text(
            (IMAGES / "postgresql/archive.sh")
            .read_text()
            .replace("/etc/steersman/backup/store.json", str(self.paths.store_file))
            .replace("/var/lib/steersman/data/pgdata", str(self.data))
            .replace("/usr/bin/python3 -I -m steersman_instance", f"/usr/bin/python3 -I {self.driver}")
        )
        self.command.chmod(0o755)
        self._own()

    @property
    def data(self) -> Path:
        return self.paths.postgresql_data

    def declare_store(self, **changed: object) -> None:
        """Write the store file, as the kubelet does after the operator has written the Secret."""
        fields: Mapping[str, object] = {
            "format": 1,
            "engine": "postgresql",
            "cluster_uid": CLUSTER_UID,
            "path": ARCHIVE_PATH,
            "bucket": self.store.bucket,
            "endpoint": self.store.host_endpoint,
            "region": self.store.region,
            "addressing": "Path",
            "ca": self.store.ca_file.read_text(),
            "accessKeyId": self.store.credentials.access_key_id,
            "secretAccessKey": self.store.credentials.secret_access_key,
            "passphrase": "0123456789abcdef",
            **changed,
        }
        self.paths.store_file.write_text(json.dumps(fields))
        self._own()

    def initialise(self) -> None:
        run(["initdb", f"--pgdata={self.data}", "--username=postgres", "--auth=trust", "--no-sync"], self.directory)

    def copy_from(self, primary: ArchivingInstance) -> None:
        """Become a replica of a primary that is stopped."""
        shutil.copytree(primary.data, self.data)
        (self.data / "standby.signal").touch()
        self._own()

    def start(self, primary: ArchivingInstance | None = None) -> None:
        settings = {
            "port": self.port,
            "listen_addresses": "127.0.0.1",
            "unix_socket_directories": self.paths.run,
            "archive_mode": "always",
            "archive_command": f"test ! -x {self.command} || exec {self.command} %p",
            "fsync": "off",
            "autovacuum": "off",
            "shared_buffers": "16MB",
            "wal_keep_size": "0",
            "max_wal_size": "64MB",
        }
        if primary is not None:
            settings["primary_conninfo"] = f"host=127.0.0.1 port={primary.port} user=postgres"
        options = [f"-c{name}={value}" for name, value in settings.items()]
        self._process = DatabaseServerProcess(self.directory, ["postgres", f"-D{self.data}", *options])
        self.wait_until("it accepts connections", self.accepts)

    def accepts(self) -> bool:
        try:
            return bool(self.sql("SELECT 1"))
        except psycopg.OperationalError:
            return False

    def sql(self, statement: str) -> list[Any]:
        with psycopg.connect(host="127.0.0.1", port=self.port, user="postgres", autocommit=True) as session:
            cursor = session.execute(cast(Any, statement))
            return cursor.fetchall() if cursor.description else []

    def switch_segment(self) -> str:
        """Write to the current segment and complete it. Return its name."""
        self.sql("SELECT pg_logical_emit_message(false, 'test', 'row')")
        return str(self.sql("SELECT pg_walfile_name(pg_switch_wal())")[0][0])

    def promote(self) -> None:
        self.sql("SELECT pg_promote()")

    def stop_fast(self) -> float:
        """Stop as Patroni and the kubelet do. Return the seconds that it took."""
        assert self._process is not None
        began = time.monotonic()
        self._process.stop(signal.SIGINT)
        return time.monotonic() - began

    def kill(self) -> None:
        if self._process is not None:
            self._process.stop(signal.SIGQUIT)

    def status_of(self, segment: str) -> str:
        """Return ``ready``, ``done`` or an empty text, as PostgreSQL has it."""
        found = (self.data / "pg_wal/archive_status").glob(f"{segment}.*")
        return next((file.suffix.removeprefix(".") for file in found), "")

    def archive_state(self) -> Mapping[str, Any]:
        """Return what the last archive command recorded."""
        return read_json(self.paths.backup_run / "archive/status.json")

    def run_command(self, segment: str) -> subprocess.CompletedProcess[str]:
        """Run the archive command for a file outside of the server, as Patroni does."""
        return subprocess.run(
            [str(self.command), str(self.data / "pg_wal" / segment)],
            cwd="/",
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    def wait_until(self, what: str, condition: Any, seconds: float = 40) -> None:
        deadline = time.monotonic() + seconds
        while not condition():
            if time.monotonic() > deadline:
                logs = (self.directory / "output.log").read_text(errors="replace")[-3000:]
                raise AssertionError(f"{what}: not within {seconds} s\n{logs}")
            time.sleep(0.05)

    def _own(self) -> None:
        if os.getuid() == 0:
            for path in (self.directory, *self.directory.rglob("*")):
                os.chown(path, UNPRIVILEGED_UID, UNPRIVILEGED_UID, follow_symlinks=False)


def stored_segments(store: ObjectStore) -> set[str]:
    """Return the names of WAL segments and history files that are stored, without their checksums."""
    names = (key.rpartition("/")[2] for key in store.keys(f"{ARCHIVE_PATH}/pgbackrest/archive/"))
    return {name.partition("-")[0] for name in names}
