"""The real servers that the tests of the engines run on, by name.

They come from the machine's own Debian release and from others. On Debian 12 the whole matrix is PostgreSQL 15, 17
and 18, MariaDB 10.11 and 11.8, MySQL 9.7, and MySQL 9.7 with a restricted administrator. MATRIX=whole runs all of it;
otherwise tests run on one server of each engine.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Mapping
from functools import partial
from pathlib import Path

from database_support.servers.mysql import start_mariadb, start_mysql
from database_support.servers.postgresql import start_postgresql
from database_support.servers.real_server import RealServer
from devcluster import database_servers
from steersman_databases.api.postgresql_cluster import PostgreSQLClusterSpec

Start = Callable[[], Generator[RealServer]]
WHOLE_MATRIX = os.environ.get("MATRIX") == "whole"


def every_server(*, whole: bool = WHOLE_MATRIX) -> Mapping[str, Start]:
    """Return what starts each server, by names such as `postgresql-15` and `mariadb-11.8`."""
    return {**postgresqls(whole=whole), **like_mysql(whole=whole)}


def postgresqls(*, whole: bool = WHOLE_MATRIX) -> Mapping[str, Start]:
    """Return the PostgreSQL of a cluster without a declared version, or with `whole` each major version."""
    releases = (database_servers.TRIXIE, database_servers.FORKY)
    roots = [Path("/"), *(found for release in releases if (found := database_servers.root(release)))]
    programs = [program for root in roots for program in sorted(root.glob("usr/lib/postgresql/*/bin/postgres"))]
    found = {f"postgresql-{path.parts[-3]}": partial(start_postgresql, path.parent) for path in programs}
    if whole:
        return found
    default = f"postgresql-{PostgreSQLClusterSpec().version}"
    return {default: found[default]} if default in found else dict(list(found.items())[-1:])


def like_mysql(*, whole: bool = WHOLE_MATRIX) -> Mapping[str, Start]:
    """Return MySQL and the machine's own MariaDB, and with `whole` a newer MariaDB."""
    found: dict[str, Start] = {"mariadb-own": partial(start_mariadb, Path("/"))}
    if whole and (trixie := database_servers.root(database_servers.TRIXIE)) is not None:
        found["mariadb-11.8"] = partial(start_mariadb, trixie)
    if (sid := database_servers.root(database_servers.SID)) is not None:
        found["mysql-9.7"] = partial(start_mysql, sid)
    return found


def administrated() -> Mapping[str, Start]:
    """Return MySQL and MariaDB, and in the whole matrix MySQL with a restricted administrator."""
    found = dict(like_mysql())
    if WHOLE_MATRIX and (sid := database_servers.root(database_servers.SID)) is not None:
        found["mysql-9.7-restricted"] = partial(start_mysql, sid, restricted=True)
    return found


def mariadbs() -> Mapping[str, Start]:
    """Return the MariaDB servers."""
    return {name: start for name, start in like_mysql().items() if name.startswith("mariadb-")}


def mysqls() -> Mapping[str, Start]:
    """Return the MySQL servers, without MariaDB."""
    return {name: start for name, start in like_mysql().items() if name.startswith("mysql-")}
