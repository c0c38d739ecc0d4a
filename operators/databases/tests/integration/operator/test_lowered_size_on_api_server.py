"""A size that a volume has not reached is lowered on a real API server."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import Any, cast

from database_support.unit.planned_cluster import DECLARED, instance
from steersman.api.core_v1 import Namespace, PersistentVolumeClaim
from steersman.api.storage_v1 import StorageClass
from steersman.client import Client, MergePatch
from steersman.errors import AlreadyExists
from steersman.meta import ObjectMeta, Quantity, decode_builtins
from steersman.observability.runtime import Runtime
from steersman_databases.core.context import ClusterContext
from steersman_databases.features.storage.stage import StorageCondition, VolumeReconciler
from steersman_testing.envtest import Envtest

KEY = DECLARED.names.data_pvc(0)


class NoEvents:
    """Recorder that drops all Events."""

    def normal(self, *_: object) -> None:
        """Drop an Event."""


async def resize(client: Client, size: str) -> tuple[str, StorageCondition]:
    """Declare a size, and return the request of the PVC and the condition."""
    pvc = await client.get(PersistentVolumeClaim, KEY)
    declared = replace(DECLARED, storage_size=Quantity(size))
    fields: dict[str, Any] = {"cluster": pvc, "events": NoEvents()}
    context = ClusterContext(declared=declared, client=cast("Any", client), clock=Runtime().clock, **fields)
    condition = await VolumeReconciler(context).resize([replace(instance(0), data=pvc)])
    found = await client.get(PersistentVolumeClaim, KEY)
    return str(found.spec.resources.requests["storage"]), condition


async def test_pvc_request_is_lowered_to_more_than_capacity(envtest: Envtest) -> None:
    async with envtest.client() as client:
        with suppress(AlreadyExists):
            await client.create(Namespace(metadata=ObjectMeta(name=KEY.namespace)))
        expandable = {
            "metadata": {"name": "expandable"},
            "provisioner": "example.com/csi",
            "allowVolumeExpansion": True,
        }
        await client.create(decode_builtins(expandable, StorageClass))
        metadata = {"name": KEY.name, "namespace": KEY.namespace}
        resources = {"requests": {"storage": "1Gi"}}
        spec = {"storageClassName": "expandable", "accessModes": ["ReadWriteOnce"], "resources": resources}
        pvc = await client.create(decode_builtins({"metadata": metadata, "spec": spec}, PersistentVolumeClaim))
        status = MergePatch({"status": {"phase": "Bound", "capacity": {"storage": "1Gi"}}})
        await client.patch(PersistentVolumeClaim, KEY, status, subresource="status")
        try:
            assert (await resize(client, "10Ti"))[0] == "10Ti"
            requested, condition = await resize(client, "10Gi")
            assert (requested, condition.reason) == ("10Gi", "Resizing")
            requested, condition = await resize(client, "1Gi")
            assert (requested, condition.reason) == ("10Gi", "Resizing")
            assert "Declare a size above 1Gi" in condition.message
        finally:
            await client.patch(PersistentVolumeClaim, KEY, MergePatch({"metadata": {"finalizers": None}}))
            await client.delete(PersistentVolumeClaim, KEY, uid=pvc.metadata.uid)
