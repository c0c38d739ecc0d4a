"""All the real servers that the engines are held to, by name: the machine's own and those of other Debian releases.

Whatever release the machine has, on Debian 12 `make test` has PostgreSQL 15 and 17, MariaDB 10.11 and 11.8,
MySQL 9.7.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from functools import partial
from pathlib import Path

from database_support.mysql_server import start_mariadb, start_mysql
from database_support.postgresql_server import start_postgresql
from database_support.real_server import RealServer
from devcluster import database_servers

Start = Callable[[], Generator[RealServer]]


def every_server() -> Mapping[str, Start]:
    """What starts each of them: `postgresql-15`, `mariadb-11.8`, …"""
    return {**postgresqls(), **like_mysql()}


def postgresqls() -> Mapping[str, Start]:
    """The newest of each major version."""
    roots = [
        Path("/"),
        *(found for release in (database_servers.TRIXIE,) if (found := database_servers.root(release))),
    ]
    programs = [program for root in roots for program in sorted(root.glob("usr/lib/postgresql/*/bin/postgres"))]
    return {f"postgresql-{path.parts[-3]}": partial(start_postgresql, path.parent) for path in programs}


def like_mysql() -> Mapping[str, Start]:
    """MariaDB, the machine's and a newer one, and MySQL."""
    found: dict[str, Start] = {"mariadb-own": partial(start_mariadb, Path("/"))}
    if (trixie := database_servers.root(database_servers.TRIXIE)) is not None:
        found["mariadb-11.8"] = partial(start_mariadb, trixie)
    if (sid := database_servers.root(database_servers.SID)) is not None:
        found["mysql-9.7"] = partial(start_mysql, sid)
    return found


def administrated() -> Mapping[str, Start]:
    """These, and MySQL whose administrator is restricted."""
    found = dict(like_mysql())
    if (sid := database_servers.root(database_servers.SID)) is not None:
        found["mysql-9.7-restricted"] = partial(start_mysql, sid, restricted=True)
    return found


def mariadbs() -> Mapping[str, Start]:
    """Those that are MariaDB."""
    return {name: start for name, start in like_mysql().items() if name.startswith("mariadb-")}


def mysqls() -> Mapping[str, Start]:
    """Those that are MySQL, and no MariaDB."""
    return {name: start for name, start in like_mysql().items() if name.startswith("mysql-")}
