"""Several clusters in virtual time: a newer image rolls through them ring by ring, and stops at a broken one."""

from __future__ import annotations

import pytest
from prometheus_client import generate_latest

from database_support.unit.cluster_harness import ClusterHarness
from database_support.unit.fake_patroni import FakePatroniBackend
from steersman.api.core_v1 import Pod
from steersman.client import MergePatch
from steersman.controller import ReconcilerContext
from steersman.manager import Manager
from steersman.meta import ObjectKey, ObjectMeta
from steersman_databases.api import PostgreSQLCluster, PostgreSQLClusterSpec
from steersman_databases.api.autopilot.maintenance import MaintenanceSettings, Ring
from steersman_databases.cluster.parts.engine_parts import EngineParts
from steersman_databases.engines import versions
from steersman_databases.engines.naming import CLUSTER_LABEL, INSTANCE_LABEL
from steersman_databases.engines.postgresql.cluster_engine import PostgreSQLEngine
from steersman_databases.setup import setup
from steersman_testing import virtual_time

FORMER, NEWER = "steersman.dev/postgresql:17", "steersman.dev/postgresql:17-newer"


class FleetHarness(ClusterHarness):
    """Clusters of one instance each. ``limit`` is the operator's option."""

    limit = 1

    def setup(self, manager: Manager) -> None:
        """See `ClusterHarness.setup`."""
        setup(
            manager,
            sql_engine_for=self.sql_engine,
            postgresql_factory=self.engine_parts,
            minor_upgrades_at_once=self.limit,
        )

    def engine_parts(self, context: ReconcilerContext) -> EngineParts:
        """Return PostgreSQL without queries, which the harness supports for one cluster only."""
        return EngineParts(PostgreSQLEngine(), FakePatroniBackend(context.client, self.hosts))

    async def add(self, name: str, ring: Ring = "Default") -> None:
        """Create a cluster, and wait until it is Ready."""
        settings = MaintenanceSettings(minor_upgrades="Automatic", ring=ring)
        declared = PostgreSQLClusterSpec(instances=1, maintenance=settings)
        metadata = ObjectMeta(name=name, namespace="default")
        await self.client.create(PostgreSQLCluster(metadata=metadata, spec=declared))
        await self.until(f"{name} is Ready", lambda: self.get(name).status.phase == "Ready")

    def get(self, name: str) -> PostgreSQLCluster:
        found = self.server.read(PostgreSQLCluster, ObjectKey("default", name))
        assert found is not None
        return found

    def up_to_date(self, name: str) -> tuple[str, str]:
        """Return reason and message of the condition."""
        return next(
            ((c.reason, c.message) for c in self.get(name).status.conditions if c.type == "UpToDate"), ("", "")
        )

    def upgraded(self) -> set[str]:
        """Return the clusters with a pod of the newer image."""
        pods = [pod for pod in self.server.read_all(Pod) if INSTANCE_LABEL in pod.metadata.labels]
        return {pod.metadata.labels[CLUSTER_LABEL] for pod in pods if pod.spec.containers[0].image == NEWER}


def newer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(versions.SUPPORTED_VERSIONS["postgresql"], "17", NEWER)  # type: ignore[arg-type]


@virtual_time
async def test_rings_follow_one_another(monkeypatch: pytest.MonkeyPatch) -> None:
    world = FleetHarness()
    rings: dict[str, Ring] = {"alpha": "Late", "beta": "Default", "gamma": "Default", "omega": "Early"}
    async with world.operator():
        for name, ring in rings.items():
            await world.add(name, ring)
    newer(monkeypatch)
    order: list[str] = []
    async with world.operator():

        def all_are_upgraded() -> bool:
            order.extend(sorted(world.upgraded() - set(order)))
            unready = [name for name in order if world.get(name).status.ready_instances != 1]
            assert len(unready) <= 1, unready
            return len(order) == 4

        await world.until("all are upgraded", all_are_upgraded, 1200)
        await world.until("all are current", lambda: all(world.up_to_date(name)[0] == "Current" for name in rings))
    assert order == ["omega", "beta", "gamma", "alpha"]


@virtual_time
async def test_rollout_stops_at_a_cluster_that_does_not_start(monkeypatch: pytest.MonkeyPatch) -> None:
    """It continues with a higher limit, and when the cluster is Ready."""
    world = FleetHarness()
    async with world.operator():
        for name in ("alpha", "beta", "gamma"):
            await world.add(name)
    newer(monkeypatch)
    waiting = {"state": {"waiting": {"reason": "ErrImagePull", "message": "no such image"}}}
    world.hosts.crashing[NEWER] = waiting
    async with world.operator() as manager:
        await world.until("begun", lambda: world.upgraded() == {"alpha"})
        await world.until("stopped", lambda: blocked(world, "beta"))
        await world.wait(600)
        assert world.upgraded() == {"alpha"} and blocked(world, "gamma")
        assert world.get("beta").status.phase == "Ready"
        metrics = generate_latest(manager.metrics_registry).decode()
        assert (
            'dbcluster="alpha",kind="PostgreSQLCluster",namespace="default",ring="Default",state="Upgrading"'
            in metrics
        )
        assert (
            'dbcluster="beta",kind="PostgreSQLCluster",namespace="default",ring="Default",state="Waiting"' in metrics
        )
    world.limit = 2
    async with world.operator():
        await world.until("continued", lambda: world.upgraded() == {"alpha", "beta"})
        await world.wait(300)
        assert world.upgraded() == {"alpha", "beta"}, "the limit counts both"


def blocked(world: FleetHarness, name: str) -> bool:
    reason, message = world.up_to_date(name)
    return reason == "WaitingForRing" and "waiting for cluster default/alpha to be Ready after the upgrade" in message


@virtual_time
async def test_cluster_without_automatic_upgrades_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    world = FleetHarness()
    async with world.operator():
        await world.add("alpha")
        await world.add("beta")
    newer(monkeypatch)
    await world.client.patch(
        PostgreSQLCluster,
        ObjectKey("default", "alpha"),
        MergePatch({"spec": {"maintenance": {"minorUpgrades": "OnRequest"}}}),
    )
    async with world.operator():
        await world.until("upgraded", lambda: world.upgraded() == {"beta"})
        assert world.up_to_date("alpha")[0] == "MinorUpgradeAvailable"
