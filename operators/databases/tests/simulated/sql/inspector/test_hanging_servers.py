"""Clusters whose servers take connections and never answer delay no other one."""

from __future__ import annotations

import os
from dataclasses import replace

import pytest

from database_support.unit.cluster_harness import ClusterHarness
from steersman.api.core_v1 import Pod
from steersman.controller import ReconcilerContext
from steersman.meta import FrozenDict, ObjectMeta, is_true
from steersman_databases.api import PostgreSQLCluster, PostgreSQLClusterSpec
from steersman_databases.api.postgresql_cluster import PostgreSQLSettings
from steersman_databases.cluster import setup as cluster_setup
from steersman_databases.cluster.parts.engine_parts import EngineParts
from steersman_databases.core.outcome import MAX_CONCURRENT_RECONCILES
from steersman_databases.engines import ServerEndpoint, SqlCredentials
from steersman_databases.engines.cluster_engine import SettingCatalog
from steersman_databases.engines.errors import ServerUnreachable
from steersman_databases.engines.server import DatabaseServer
from steersman_databases.engines.sql.data_takeover import DataOwner
from steersman_databases.engines.sql.sql_plan import SqlChange
from steersman_testing import virtual_time

HUNG = 100 if os.environ.get("SIMULATE") == "whole" else 8
ASKS = PostgreSQLSettings(parameters=FrozenDict({"work_mem": "8MB"}))


class HangingWorld(ClusterHarness):
    """The servers of all clusters hang but those of ``orders``: each question waits as long as the real ones do."""

    def engine_parts(self, context: ReconcilerContext) -> EngineParts:
        """With all that servers are asked for."""
        return replace(
            super().engine_parts(context), served_fingerprint=self.shown, ensure_system_accounts=self.furnish
        )

    async def shown(self, endpoint: ServerEndpoint) -> str | None:
        """No certificate: also of ``orders``, which is no trouble."""
        if not self.pod_at(endpoint).startswith("orders-"):
            await self.runtime.clock.sleep(3)
        return None

    async def furnish(
        self, server: DatabaseServer, administrator: SqlCredentials, holder: DataOwner
    ) -> tuple[SqlChange, ...]:
        """Nothing is furnished."""
        if not self.pod_at(server.endpoint).startswith("orders-"):
            await self.runtime.clock.sleep(10)
            raise ServerUnreachable(server.endpoint, "no response in time")
        return ()

    async def settings(self, server: DatabaseServer) -> SettingCatalog:
        if not self.pod_at(server.endpoint).startswith("orders-"):
            await self.runtime.clock.sleep(5)
            raise ServerUnreachable(server.endpoint, "no response in time")
        return await super().settings(server)

    def pod_at(self, endpoint: ServerEndpoint) -> str:
        """The pod of this address."""
        return next(p.metadata.name for p in self.server.read_all(Pod) if p.status.pod_ip == endpoint.host)

    def hung(self) -> int:
        """How many clusters have a server that hangs."""
        pods = self.server.read_all(Pod)
        return sum(p.metadata.name.startswith("hung") and is_true(p.status.conditions, "Ready") for p in pods)


async def becomes_ready(world: ClusterHarness) -> float:
    """The seconds that a new cluster takes."""
    begun = world.runtime.clock.monotonic()
    await world.create(instances=1, postgresql=ASKS)
    await world.ready(1)
    return world.runtime.clock.monotonic() - begun


async def becomes_ready_beside(world: HangingWorld, workers: int) -> float:
    """The seconds that a new cluster takes while servers of others hang, of which a new process asks all at once."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cluster_setup, "MAX_CONCURRENT_RECONCILES", workers)
        async with world.operator():
            for number in range(HUNG):
                metadata = ObjectMeta(name=f"hung{number}", namespace="default")
                spec = PostgreSQLClusterSpec(instances=1, postgresql=ASKS)
                await world.client.create(PostgreSQLCluster(metadata=metadata, spec=spec))
            await world.until("all hang", lambda: world.hung() == HUNG)
        async with world.operator():
            await world.wait(1)
            return await becomes_ready(world)


async def becomes_ready_alone() -> float:
    """The seconds that it takes where nobody hangs."""
    world = ClusterHarness()
    async with world.operator():
        return await becomes_ready(world)


@virtual_time
async def test_hanging_servers_do_not_delay_other_clusters() -> None:
    """Of a hundred; where there are less, there are less workers too."""
    workers = MAX_CONCURRENT_RECONCILES * HUNG // 100
    assert await becomes_ready_beside(HangingWorld(), workers) <= await becomes_ready_alone() + 2


@virtual_time
async def test_more_hanging_servers_than_workers_delay_little() -> None:
    """Four for each worker: each is waited for a few seconds in half a minute."""
    assert await becomes_ready_beside(HangingWorld(), HUNG // 4) <= await becomes_ready_alone() + 30
