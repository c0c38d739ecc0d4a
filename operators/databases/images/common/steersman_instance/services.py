"""The services that the agent of each engine runs."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from .archive.pgbackrest import write_configuration
from .archive.store_file import InvalidStoreFile, load_store
from .paths import PATHS, InstancePaths
from .trial_record import is_running, read_settings


def _always() -> bool:
    return True


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """A program that the agent keeps running.

    Args:
        command: argument list; it must not contain a secret.
        enabled: evaluated every few seconds. The program is stopped while this returns False. An exception counts as
            a failed start.
        watched: files whose change is passed on. A missing file is a state like any other.
        on_change: SIGHUP, or stop and start.
        environment: added to the agent's own.
    """

    name: str
    command: Sequence[str]
    enabled: Callable[[], bool] = _always
    watched: Sequence[Path] = ()
    on_change: Literal["reload", "restart"] = "restart"
    environment: Mapping[str, str] = field(default_factory=dict[str, str])


def program(name: str, *arguments: str) -> list[str]:
    """Return the command of a sub-program of ``steersman-instance``."""
    return [sys.executable, "-I", "-m", __package__ or "steersman_instance", name, *arguments]


def postgresql_services(paths: InstancePaths = PATHS) -> list[Service]:
    """Return what the agent of a PostgreSQL instance runs."""
    certificates = (paths.tls / "tls.crt", paths.peer / "ca.crt")

    def configured() -> bool:
        """Render the configuration. Without a store there is nothing to serve."""
        try:
            store = load_store(paths.store_file)
        except InvalidStoreFile as error:
            raise RuntimeError(f"store.json: {error}") from None
        if store is None:
            return False
        write_configuration(store, paths)
        return True

    return [
        Service(
            name="pgbackrest-server",
            command=["pgbackrest", "server"],
            enabled=configured,
            watched=(paths.store_file, *certificates),
            on_change="reload",
        ),
        Service(
            name="archive-report",
            command=program("archive-report"),
            enabled=configured,
            watched=(paths.store_file,),
        ),
        Service(name="metrics", command=program("metrics", "postgresql"), watched=(paths.queries_file,)),
        Service(name="volumes", command=program("volumes", "postgresql")),
        Service(
            name="trial", command=program("trial"), enabled=lambda: is_running(read_settings(paths.shared_settings))
        ),
    ]


def read_replica_services(paths: InstancePaths = PATHS) -> list[Service]:
    """Return what the agent of a PostgreSQL read replica runs. It archives and backs up nothing."""
    return [Service(name="metrics", command=program("metrics", "read-replica"), watched=(paths.queries_file,))]


def mysql_services(paths: InstancePaths = PATHS) -> list[Service]:
    """Return what the agent of a MySQL instance runs."""

    def configured() -> bool:
        """Return True with a store. Without one there is nothing to archive."""
        try:
            return load_store(paths.store_file) is not None
        except InvalidStoreFile as error:
            raise RuntimeError(f"store.json: {error}") from None

    return [
        *(
            Service(name=name, command=program(name), enabled=configured, watched=(paths.store_file,))
            for name in ("binlog", "binlog-report")
        ),
        Service(name="metrics", command=program("metrics", "mysql"), watched=(paths.queries_file,)),
        Service(name="volumes", command=program("volumes", "mysql")),
    ]


SERVICES: Mapping[str, Callable[[], list[Service]]] = {
    "postgresql": postgresql_services,
    "read-replica": read_replica_services,
    "mysql": mysql_services,
}
