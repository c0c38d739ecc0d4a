"""Restores of whole clusters in memory."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from database_support.unit.backup_harness import ReachableStore
from database_support.unit.cluster_harness import KEY, NAMES
from database_support.unit.database_harness import CuttableTransport
from database_support.unit.group_harness import GroupHarness
from database_support.unit.restore_harness import NAME, RestoreHarness
from database_support.unit.shared_start import shared_start
from steersman.api.core_v1 import ConfigMap
from steersman.client import MergePatch
from steersman.manager import Manager
from steersman.meta import ObjectKey
from steersman_databases.api import Restore
from steersman_databases.setup import setup

WHOLE = os.environ.get("SIMULATE") == "whole"


@dataclass
class InPlace(RestoreHarness):
    """A cluster that goes back as a whole."""

    @shared_start
    async def planned(self, instances: int = 3, cluster: Mapping[str, Any] | None = None, **fields: Any) -> None:
        """Declare a cluster and a restore of all of it, and wait for the plan.

        Args:
            cluster: further fields of the cluster.
            fields: further fields of the ``Restore``.
        """
        await self.declare(instances, cluster)
        await self.ready(instances)
        await self.leave_position()
        await self.restore(only=None, **fields)
        await self.replanned()

    async def replanned(self, name: str = NAME) -> None:
        """Let the Job of a plan end, and wait for the plan."""
        await self.until("a plan Job", lambda: self.restores(), 60)
        await self.run_plans()
        await self.until("planned", lambda: self.outcome(name) == "Planned/Planned", 60)

    async def leave_position(self) -> None:
        """Record a position as the leader does, which the restored data do not reach."""
        body = {"metadata": {"annotations": {"optime": "9000000"}}}
        await self.client.patch(ConfigMap, NAMES.dcs_leader, MergePatch(body))

    async def confirm(self, name: str = NAME, value: str | None = None) -> None:
        """Confirm a plan.

        Args:
            value: of ``spec.confirm``. Defaults to the ID of the plan.
        """
        found = self.found(name)
        assert found is not None
        chosen = (found.status.plan.id if found.status.plan else "") if value is None else value
        body = MergePatch({"spec": {"confirm": chosen or None}})
        await self.client.patch(Restore, ObjectKey(KEY.namespace, name), body)

    async def completed(self, instances: int, name: str = NAME) -> None:
        """Wait until a restore is complete, and all instances serve."""
        await self.until("completed", lambda: self.outcome(name) == "Completed/Completed", 600)
        await self.ready(instances)

    def restored(self) -> list[bool]:
        """Tell for each pod with data whether they are restored."""
        volumes = [self.hosts.volumes.get(pod.metadata.annotations.get("volume", "")) for pod in self.pods().values()]
        return [volume.restored for volume in volumes if volume is not None and volume.system]

    def served(self) -> list[bool]:
        """Tell for each round with a primary whether its data are restored."""
        return [is_restored for _, is_restored in self.hosts.serving]

    def hang(self, *pods: str) -> None:
        """Let only these pods not end."""
        self.hosts.hanging = set(pods)

    def assert_one_lineage(self) -> None:
        """Check that previous and restored data are not served at once."""
        assert len({*self.restored()}) <= 1, "never both"

    async def serve_one_lineage(self, transport: CuttableTransport, name: str = NAME) -> None:
        """Check each second that one lineage serves, until the operator is cut off or the restore is complete."""
        for _ in range(240):
            await self.wait(1)
            self.assert_one_lineage()
            if transport.is_cut.is_set() or self.outcome(name) == "Completed/Completed":
                break
        await self.wait(5)
        self.assert_one_lineage()


@dataclass
class GroupInPlace(InPlace, GroupHarness):
    """The same with a cluster of MySQL."""

    def setup(self, manager: Manager) -> None:
        """Adds the operator's controllers, with models of store and server."""
        setup(
            manager,
            sql_engine_for=self.sql_engine,
            mysql_factory=self.engine_parts,
            store_probe=ReachableStore(self.claims),
            copy_servers={"postgresql": self.copies.server, "mysql": self.copies.server},
        )

    def plan_report(self) -> Mapping[str, object]:
        """The plan of a restore, as the program reports it."""
        return {
            "backup": "20260101-000000F",
            "restoresTo": "2025-12-31T23:59:58Z",
            "lostTransactions": 7,
            "overwrites": True,
            "sizeBytes": 8192,
        }

    async def leave_position(self) -> None:
        """Commit transactions that the restored data do not have."""
        self.fake_group.write(5)

    def restored(self) -> list[bool]:
        """Tell for each pod with data whether they are restored."""
        servers = [
            self.fake_group.servers.get(pod.metadata.annotations.get("volume", "")) for pod in self.pods().values()
        ]
        return [server.restored for server in servers if server is not None and server.uuid]

    def served(self) -> list[bool]:
        """Tell for each round with a primary whether its data are restored."""
        return self.fake_group.serving

    def hang(self, *pods: str) -> None:
        """Let only these pods not end."""
        self.fake_group.hanging = set(pods)
