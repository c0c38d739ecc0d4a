"""Directories and files of an instance's containers. images/README.md describes them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class InstancePaths:
    """Mount points of an instance's volumes. Tests mount them elsewhere."""

    volume: Path = Path("/var/lib/steersman/data")
    run: Path = Path("/run/steersman")
    store_file: Path = Path("/etc/steersman/backup/store.json")
    tls: Path = Path("/etc/steersman/tls")
    peer: Path = Path("/etc/steersman/peer")
    wal: Path = Path("/var/lib/steersman/wal")
    source_store_file: Path = Path("/etc/steersman/source/store.json")
    backup_client: Path = Path("/etc/steersman/backup-client")
    termination_log: Path = Path("/dev/termination-log")
    server: Path = Path("/etc/steersman/server")
    owner: Path = Path("/etc/steersman/owner")
    import_source: Path = Path("/etc/steersman/import")
    queries_file: Path = Path("/etc/steersman/queries/queries.json")

    @property
    def wal_volume(self) -> Path:
        """The volume for PostgreSQL's WAL. It is optional."""
        return self.volume.with_name("wal")

    @property
    def mysql_data(self) -> Path:
        """MySQL's data directory."""
        return self.volume / "mysql"

    @property
    def work(self) -> Path:
        """A backup Job's volume for a copy of a MySQL member's data."""
        return self.volume.with_name("work")

    @property
    def postgresql_data(self) -> Path:
        """PostgreSQL's data directory."""
        return self.volume / "pgdata"

    @property
    def shared_settings(self) -> Path:
        """Patroni's copy of the settings that all members share."""
        return self.postgresql_data / "patroni.dynamic.json"

    @property
    def backup_run(self) -> Path:
        """Rendered configuration with credentials, locks and state. Lost with the pod."""
        return self.run / "backup"


PATHS = InstancePaths()
