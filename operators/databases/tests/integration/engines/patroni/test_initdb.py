"""New data as Patroni has them made, by the real initdb, and whether the server takes them with what it is told."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from database_support.servers.postgresql import RealPostgreSQLServer
from database_support.servers.process import UNPRIVILEGED_UID, data_directory, program, run
from database_support.unit.declared_clusters import declared_cluster
from database_support.unit.image_script import IMAGES
from steersman_databases.engines.cluster_engine import BootstrapDatabase, DeclaredCluster
from steersman_databases.engines.postgresql.ha import patroni


def options(cluster: DeclaredCluster) -> Iterator[str]:
    """As Patroni makes them of its configuration. Source: patroni/postgresql/bootstrap.py, process_user_options."""
    declared: list[str | dict[str, str]] = json.loads(patroni.local_configuration(cluster))["bootstrap"]["initdb"]
    for option in declared:
        if isinstance(option, str):
            yield f"--{option}"
        else:
            yield from (f"--{name}={value}" for name, value in option.items())


@pytest.mark.parametrize(
    "initial",
    [
        BootstrapDatabase(database="orders", owner="orders"),
        BootstrapDatabase(database="orders", owner="orders", locale_provider="icu", locale="de-DE"),
        BootstrapDatabase(
            database="orders", owner="orders", encoding="LATIN1", locale_provider="icu", locale="de-DE"
        ),
        BootstrapDatabase(database="orders", owner="orders", wal_segment_size=64),
    ],
    ids=["default", "icu", "icu-latin1", "large-segments"],
)
def test_initdb_options_take_effect(postgresql: RealPostgreSQLServer, initial: BootstrapDatabase) -> None:
    cluster = replace(declared_cluster(), bootstrap=initial)
    told = patroni.server_parameters(cluster)
    sizes = [f"-c{name}={told[name]}" for name in ("min_wal_size", "max_wal_size", "max_slot_wal_keep_size")]
    with data_directory() as directory:
        data, places = directory / "data", str(postgresql.programs)
        run([program("initdb", places), f"--pgdata={data}", "--no-sync", *options(cluster)], directory)
        # What is computed is not shown before the control file was read, and the sizes compared with it.
        run([program("postgres", places), f"-D{data}", *sizes, "-C", "wal_segment_size"], directory)


@pytest.mark.parametrize(
    ("initial", "message"),
    [
        ({"locale_provider": "libc", "locale": "de_DE.UTF-8"}, 'initdb failed: invalid locale name "de_DE.UTF-8"'),
        ({"encoding": "LATIN1"}, "initdb failed: encoding mismatch The encoding you selected (LATIN1)"),
    ],
    ids=["missing-locale", "encoding-mismatch"],
)
def test_initdb_error_becomes_termination_message(
    postgresql: RealPostgreSQLServer, initial: dict[str, Any], message: str
) -> None:
    cluster = replace(declared_cluster(), bootstrap=BootstrapDatabase(database="orders", owner="orders", **initial))
    with data_directory() as directory:
        termination_log = directory / "termination-log"
        places = {"PATH": f"{postgresql.programs}:{os.environ['PATH']}", "TERMINATION_LOG": str(termination_log)}
        command = ["sh", str(IMAGES / "postgresql/initdb.sh"), *options(cluster), str(directory / "data")]
        done = subprocess.run(command, env=places, capture_output=True, text=True, check=False, user=UNPRIVILEGED_UID)
        assert done.returncode == 1 and "initdb: error" in done.stderr
        written = termination_log.read_text()
        assert written.startswith(message) and written.endswith(". Correct spec.bootstrap.initdb\n")
