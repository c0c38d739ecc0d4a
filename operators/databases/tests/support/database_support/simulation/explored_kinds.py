"""The database operator through the changes that users make: Kubernetes in memory, its servers models."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any

from database_support.unit.kubelet import DatabaseKubelet, RunningServers
from steersman.api.core_v1 import Secret
from steersman.client import Client, Transport
from steersman.manager import Manager, ManagerOptions
from steersman.meta import ObjectKey
from steersman_databases.api import (
    Backup,
    BackupStore,
    Database,
    DatabaseUser,
    MySQLCluster,
    PostgreSQLCluster,
    Restore,
)
from steersman_databases.core.database_naming import DatabaseNames
from steersman_databases.engines import SUPPORTED_VERSIONS, ServerEndpoint, SqlCredentials
from steersman_databases.engines.registry import SQL_ENGINES
from steersman_databases.engines.sql.inspection import PUBLIC
from steersman_databases.setup import setup
from steersman_databases.sql.server_resolver import host_of
from steersman_testing import InMemoryApiServer, virtual_runtime
from steersman_testing.apiserver.values import JsonObject
from steersman_testing.transitions import Hints, InMemorySystem, SystemFactory, SystemUnderTest

KEY = ObjectKey("default", "trial")
VERSIONS = {engine: next(iter(versions)) for engine, versions in SUPPORTED_VERSIONS.items()}
ELSEWHERE = [
    f"spec.{field}"
    for field in (
        "clusterRef",
        "serverRef",
        "owner",
        "encoding",
        "collation",
        "characterType",
        "localeProvider",
        "locale",
        # Without an object store, a required final backup holds up the deletion; its own tests have the store.
        "backup",
        # Their own tests fill volumes and move the clock.
        "autogrow",
        "maintenance",
        # The model of a node runs pods with any resources.
        "resources",
        "template",
        "connectionLimit",
        "extensions",
        "schemas",
        "adopt",
    )
]
"""Fields that ``test_database_fields.py`` follows, or names who does, which it checks itself: they need other servers
than the one that a ``Database`` makes.
"""


def hints(engine: str, deletion_policy: str) -> Hints:
    """What the schema does not say; the first ``Database`` has this engine and policy."""
    spec = {"engine": engine, "version": VERSIONS[engine], "deletionPolicy": deletion_policy}
    return Hints(
        start={"spec": spec},
        examples={
            "spec.version": [*VERSIONS.values(), "9"],
            "spec.databaseName": ["orders", 'The "orders"; of Köln', "template1", "mysql", "x" * 64],
            "spec.monitoring.slowStatementThreshold": ["1s", "250ms"],
            "spec.username": ["alice", "Älice's", "postgres", "root", "y" * 63],
        },
        bad={"spec.version": ["16", "latest"]},
        rejection_reasons=["RetainedDataMismatch"],
        exclude=[*ELSEWHERE, *(["spec.deletionPolicy"] if deletion_policy == "Delete" else [])],
        # A group tells whose data it has, and how often it was founded; a retained volume stays as large.
        ignore=["ConfigMap.metadata.annotations"]
        + (["PersistentVolumeClaim.spec.resources"] if deletion_policy == "Retain" else []),
    )


def systems(kind: type[Any], *present: JsonObject) -> SystemFactory:
    """A cluster each, whose passwords differ from the others'. ``present`` is there before the operator is."""
    made = 0

    @asynccontextmanager
    async def system() -> AsyncGenerator[SystemUnderTest]:
        nonlocal made
        made += 1
        place = _Cluster(made, present)
        async with InMemorySystem(kind, place.server, place.operator, observe=place.contents) as ready:
            yield ready

    return system


class _Cluster:
    """What outlives the operator's process."""

    def __init__(self, number: int, present: Sequence[JsonObject]) -> None:
        self.runtime = virtual_runtime(number)
        self.server = InMemoryApiServer(self.runtime)
        for kind in (Backup, BackupStore, Database, DatabaseUser, MySQLCluster, PostgreSQLCluster, Restore):
            self.server.register(kind)
        self.server.load(*present)
        self.machines = RunningServers()

    @asynccontextmanager
    async def operator(self, transport: Transport) -> AsyncGenerator[Manager]:
        """A process of the operator, and what a cluster does meanwhile."""
        options = ManagerOptions(name="steersman-databases", graceful_shutdown_timeout=0)
        manager = Manager(transport, options, self.runtime)
        setup(
            manager,
            self.machines.sql_engine,
            postgresql_factory=self.machines.postgresql,
            mysql_factory=self.machines.mysql,
        )
        kubelet = DatabaseKubelet(self.server, Client(self.server, field_manager="kubelet"), self.machines)
        running = asyncio.create_task(kubelet.run(self.runtime.clock))
        try:
            yield manager
        finally:
            running.cancel()
            with suppress(asyncio.CancelledError):
                await running

    def contents(self) -> dict[str, Any]:
        """Whether the Secret of the ``Database`` opens what it should; retained servers hold more."""
        database = self.server.read(Database, KEY)
        if database is None or database.spec.cluster_ref is not None:
            return {}
        engine = SQL_ENGINES[database.engine]
        server = self.machines.servers.get(ServerEndpoint(host_of(KEY), engine.port))
        held = server.databases.get(database.database_name) if server is not None and server.up else None
        if server is None or held is None:
            return {}
        secret = self.server.read(Secret, DatabaseNames(KEY).application_secret)
        data = {k: v.decode() for k, v in secret.data.items()} if secret is not None else {}
        credentials = SqlCredentials(data.get("user", ""), data.get("password", ""))
        return {
            f"Server of {KEY.name}": {
                "opens": server.can_log_in(credentials, data.get("dbname", "")),
                "owner": held.owner if server.has_owners else None,
                "public": any(one.grantee == PUBLIC for one in held.privileges),
            }
        }
