"""A cluster in memory with a pooler: its pod, and what is told at the console in the place of PgBouncer's."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from database_support.unit.cluster_harness import KEY, ClusterHarness
from steersman.api.apps_v1 import Deployment
from steersman.api.core_v1 import Pod
from steersman.client import MergePatch
from steersman.controller import ReconcilerContext
from steersman.meta import ObjectKey
from steersman_databases.api.cluster_common import PoolerSettings
from steersman_databases.cluster.parts.engine_parts import EngineParts
from steersman_databases.engines.server import ClientKeyPair, ServerEndpoint
from steersman_databases.features.pooler.admin_console import Command


class PoolerHarness(ClusterHarness):
    """With one pod of PgBouncer, which remembers what it was asked for."""

    commands: tuple[tuple[str, Command], ...] = ()

    def engine_parts(self, context: ReconcilerContext) -> EngineParts:
        return replace(super().engine_parts(context), pgbouncer_admin=self.run_command)

    @property
    def commands_sent(self) -> list[Command]:
        return [command for _, command in self.commands]

    @property
    def pauses(self) -> list[Command]:
        """What was said of clients that wait."""
        return [command for command in self.commands_sent if command != "RECONNECT"]

    def deployment(self, role: str = "rw") -> Deployment:
        found = self.server.read(Deployment, ObjectKey(KEY.namespace, f"orders-pooler-{role}"))
        assert found is not None
        return found

    async def run_command(
        self, endpoint: ServerEndpoint, login: ClientKeyPair, trusted: bytes, command: Command
    ) -> None:
        assert b"PRIVATE KEY" in login.key and b"CERTIFICATE" in trusted
        self.commands = (*self.commands, (endpoint.host, command))

    async def start(self) -> None:
        """Two instances and a pooler are there and serve."""
        await self.create(instances=2, pooler=PoolerSettings())
        await self.ready()
        await self.start_pooler()

    async def start_pooler(self, **status: Any) -> None:
        """As the controller of Deployments and a kubelet would."""
        deployment = self.deployment()
        assert deployment.spec.selector is not None
        self.server.load(
            {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {
                    "name": "pooler",
                    "namespace": KEY.namespace,
                    "labels": dict(deployment.spec.selector.match_labels),
                },
                "spec": {"containers": [{"name": "pgbouncer", "image": "pgbouncer"}]},
            }
        )
        status = status or {"podIP": "10.1.2.3", "conditions": [{"type": "Ready", "status": "True"}]}
        key = ObjectKey(KEY.namespace, "pooler")
        await self.client.patch(Pod, key, MergePatch({"status": status}), subresource="status")
