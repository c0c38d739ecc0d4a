"""What each test of simulated clusters does: create, change and delete the cluster ``default/orders``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from database_support.unit.backup_objects import backup_settings, create_store
from steersman.api.core_v1 import Pod
from steersman.client import MergePatch
from steersman.meta import ObjectKey, ObjectMeta, find_condition
from steersman_databases.engines.naming import CLUSTER_LABEL
from steersman_testing import World

KEY = ObjectKey("default", "orders")
_PREFIX = "databases.steersman.dev/"


@dataclass(frozen=True)
class ClusterUser:
    """A user of the cluster, and the scenarios of both engines.

    Attributes:
        kind: kind of the cluster.
        spec: type of its spec.
    """

    kind: type[Any]
    spec: type[Any]

    async def create(self, world: World[Any], **spec: Any) -> None:
        """Create the cluster and wait until it is Ready."""
        metadata = ObjectMeta(name=KEY.name, namespace=KEY.namespace)
        await world.client.create(self.kind(metadata=metadata, spec=self.spec(**spec)))
        await self.ready(world)

    async def ready(self, world: World[Any]) -> None:
        """Wait until the cluster is as declared."""

        def is_ready() -> bool:
            found = world.read(self.kind, KEY)
            if found is None or found.status.phase != "Ready":
                return False
            generations = found.status.observed_generation, found.metadata.generation
            return generations[0] == generations[1] and found.status.ready_instances == found.spec.instances

        await world.wait_until("Ready", is_ready)
        await world.settle()

    async def change(self, world: World[Any], **spec: Any) -> None:
        """Patch the spec. Fields have their names in JSON."""
        await world.client.patch(self.kind, KEY, MergePatch({"spec": spec}))

    async def annotate(self, world: World[Any], **annotations: str | None) -> None:
        """Patch annotations of the operator. Underscores stand for hyphens."""
        patched = {f"{_PREFIX}{key.replace('_', '-')}": value for key, value in annotations.items()}
        await world.client.patch(self.kind, KEY, MergePatch({"metadata": {"annotations": patched}}))

    async def delete(self, world: World[Any]) -> None:
        """Delete the cluster and wait until its pods are gone."""
        await world.client.delete(self.kind, KEY)
        await world.wait_until("gone", lambda: world.read(self.kind, KEY) is None)
        await world.wait_until(
            "stopped", lambda: not [p for p in world.read_all(Pod) if CLUSTER_LABEL in p.metadata.labels]
        )
        await world.settle()

    def reason(self, world: World[Any], condition: str) -> str:
        """Return the reason of a condition, empty without one."""
        cluster = world.read(self.kind, KEY)
        found = None if cluster is None else find_condition(cluster.status.conditions, condition)
        return "" if found is None else found.reason

    def annotation(self, world: World[Any], name: str) -> str | None:
        """Return an annotation of the operator."""
        found = world.read(self.kind, KEY)
        return None if found is None else found.metadata.annotations.get(f"{_PREFIX}{name}")

    async def life(self, world: World[Any]) -> None:
        """Create, grow and shrink a cluster, and delete it with its data."""
        await self.create(world, instances=1, deletion_policy="Delete")
        await self.change(world, instances=2)
        await self.ready(world)
        await self.change(world, instances=1)
        await self.ready(world)
        await self.delete(world)

    async def retained(self, world: World[Any]) -> None:
        """Delete a cluster and adopt its retained data."""
        await self.create(world, instances=2)
        await self.delete(world)
        await self.create(world, instances=2)

    async def backed_up(self, world: World[Any]) -> None:
        """Delete a cluster with its data, after a final backup that fails at first."""
        programs = world.outside.programs
        await create_store(world.client)
        programs.final_backup_failure = "StoreUnreachable", "it does not respond"
        await self.create(world, instances=2, deletion_policy="Delete", backup=backup_settings())
        programs.needs_final_backup = True
        await world.client.delete(self.kind, KEY)
        await world.wait_until("failed", lambda: self.reason(world, "Ready") == "FinalBackupFailed")
        programs.final_backup_failure = None
        await world.wait_until("gone", lambda: world.read(self.kind, KEY) is None)
        await world.settle()
