"""Data of ConfigMaps and Secrets that the operator caches."""

from __future__ import annotations

import pytest

from database_support.unit.cluster_harness import KEY, ClusterHarness
from steersman.api.core_v1 import ConfigMap, PersistentVolumeClaim, Secret
from steersman.meta import FrozenDict, ObjectKey, ObjectMeta, OwnerReference
from steersman_databases.core.database_naming import MANAGED_BY
from steersman_databases.engines.connection.input_limits import MAX_UNOWNED_BYTES
from steersman_testing import virtual_time

SIZES = {"small": MAX_UNOWNED_BYTES, "large": MAX_UNOWNED_BYTES + 1, "owned": MAX_UNOWNED_BYTES + 1}


@pytest.mark.parametrize("kind", [ConfigMap, Secret])
@virtual_time
async def test_large_unowned_data_are_not_cached(kind: type[ConfigMap] | type[Secret]) -> None:
    world = ClusterHarness()
    async with world.operator() as manager:
        await world.create_ready()
        volume = world.server.read_all(PersistentVolumeClaim)[0]
        name, uid = volume.metadata.name, volume.metadata.uid
        owners = (OwnerReference(api_version="v1", kind="PersistentVolumeClaim", name=name, uid=uid),)
        for name, size in SIZES.items():
            metadata = ObjectMeta(
                name=name,
                namespace=KEY.namespace,
                labels=FrozenDict({"app.kubernetes.io/managed-by": MANAGED_BY}),
                owner_references=owners if name == "owned" else (),
            )
            data = {"content": b"x" * size}
            texts = {"content": "x" * size}
            created = (
                Secret(metadata=metadata, data=FrozenDict(data))
                if kind is Secret
                else ConfigMap(metadata=metadata, data=FrozenDict(texts))
            )
            await world.client.create(created)
        keys = {name: ObjectKey(KEY.namespace, name) for name in SIZES}

        async def cached(name: str) -> ConfigMap | Secret | None:
            return await manager.client.get_or_none(kind, keys[name])

        await world.runtime.clock.sleep(5)
        found = {name: await cached(name) for name in SIZES}
        assert {name: obj is not None and "content" in obj.data for name, obj in found.items()} == {
            "small": True,
            "large": False,
            "owned": True,
        }
