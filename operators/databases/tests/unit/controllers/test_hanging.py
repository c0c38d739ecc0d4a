"""Clusters whose servers take connections and never answer delay no other one."""

from __future__ import annotations

import os
from dataclasses import replace

import pytest

from database_support.cluster_world import ClusterWorld
from steersman.api.core_v1 import Pod
from steersman.controller import ReconcilerContext
from steersman.meta import FrozenDict, ObjectMeta, is_true
from steersman_databases.api import PostgreSQLCluster, PostgreSQLClusterSpec
from steersman_databases.api.postgresql_cluster import PostgreSQLSettings
from steersman_databases.controllers import ClusterParts, cluster_wiring
from steersman_databases.controllers.outcome import WORKERS
from steersman_databases.engines import Credentials, Endpoint
from steersman_databases.engines.cluster import SettingCatalog
from steersman_databases.engines.errors import ServerUnreachable
from steersman_databases.engines.holder import Holder
from steersman_databases.engines.plan import Change
from steersman_databases.engines.server import Server
from steersman_testing import virtual_time

HUNG = 100 if os.environ.get("SIMULATE") == "whole" else 8
ASKS = PostgreSQLSettings(parameters=FrozenDict({"work_mem": "8MB"}))


class HangingWorld(ClusterWorld):
    """The servers of all clusters hang but those of ``orders``: each question waits as long as the real ones do."""

    def parts(self, context: ReconcilerContext) -> ClusterParts:
        """With all that servers are asked for."""
        return replace(super().parts(context), shown=self.shown, furnish=self.furnish)

    async def shown(self, endpoint: Endpoint) -> str | None:
        """No certificate: also of ``orders``, which is no trouble."""
        if not self.pod_at(endpoint).startswith("orders-"):
            await self.runtime.clock.sleep(3)
        return None

    async def furnish(self, server: Server, administrator: Credentials, holder: Holder) -> tuple[Change, ...]:
        """Nothing is furnished."""
        if not self.pod_at(server.endpoint).startswith("orders-"):
            await self.runtime.clock.sleep(10)
            raise ServerUnreachable(server.endpoint, "no answer in time")
        return ()

    async def settings(self, server: Server) -> SettingCatalog:
        if not self.pod_at(server.endpoint).startswith("orders-"):
            await self.runtime.clock.sleep(5)
            raise ServerUnreachable(server.endpoint, "no answer in time")
        return await super().settings(server)

    def pod_at(self, endpoint: Endpoint) -> str:
        """The pod of this address."""
        return next(p.metadata.name for p in self.server.read_all(Pod) if p.status.pod_ip == endpoint.host)

    def hung(self) -> int:
        """How many clusters have a server that hangs."""
        pods = self.server.read_all(Pod)
        return sum(p.metadata.name.startswith("hung") and is_true(p.status.conditions, "Ready") for p in pods)


async def becomes_ready(world: ClusterWorld) -> float:
    """The seconds that a new cluster takes."""
    begun = world.runtime.clock.monotonic()
    await world.create(instances=1, postgresql=ASKS)
    await world.ready(1)
    return world.runtime.clock.monotonic() - begun


async def becomes_ready_beside(world: HangingWorld, workers: int) -> float:
    """The seconds that a new cluster takes while servers of others hang, of which a new process asks all at once."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cluster_wiring, "WORKERS", workers)
        async with world.operator():
            for number in range(HUNG):
                metadata = ObjectMeta(name=f"hung{number}", namespace="default")
                spec = PostgreSQLClusterSpec(instances=1, postgresql=ASKS)
                await world.client.create(PostgreSQLCluster(metadata=metadata, spec=spec))
            await world.until("all hang", lambda: world.hung() == HUNG)
        async with world.operator():
            await world.rest(1)
            return await becomes_ready(world)


async def becomes_ready_alone() -> float:
    """The seconds that it takes where nobody hangs."""
    world = ClusterWorld()
    async with world.operator():
        return await becomes_ready(world)


@virtual_time
async def test_servers_that_hang_delay_no_other_cluster() -> None:
    """Of a hundred; where there are less, there are less workers too."""
    workers = WORKERS * HUNG // 100
    assert await becomes_ready_beside(HangingWorld(), workers) <= await becomes_ready_alone() + 2


@virtual_time
async def test_more_of_them_than_there_are_workers_delay_it_a_little() -> None:
    """Four for each worker: each is waited for a few seconds in half a minute."""
    assert await becomes_ready_beside(HangingWorld(), HUNG // 4) <= await becomes_ready_alone() + 30
