"""A cluster of a `Database` that was created by POST, for tests of both API servers."""

from __future__ import annotations

from typing import Any

from steersman.cache import Cache, CachedClient
from steersman.client import Client
from steersman.controller import add_finalizer
from steersman.meta import Object, Quantity, decode_builtins
from steersman.observability.runtime import Runtime
from steersman_databases.api import Cluster, Database
from steersman_databases.core.created_fields import own_created_spec_by_apply
from steersman_databases.sql.database.specs import DedicatedClusterApply, dedicated_cluster

FINALIZER = "databases.steersman.dev/test"


def cluster_of(namespace: str, **spec: Any) -> DedicatedClusterApply:
    metadata = {"name": "orders", "namespace": namespace, "uid": "4711"}
    wire = {"metadata": metadata, "spec": {"engine": "postgresql", "version": "17", **spec}}
    return dedicated_cluster(decode_builtins(wire, Database), Quantity("1Gi"))


async def assert_withdrawn_fields_are_removed(
    live: Client, runtime: Runtime, namespace: str, *, applied_before: bool
) -> None:
    """Withdraw fields of a created cluster that has a finalizer.

    Args:
        applied_before: the cluster is also applied before its fields are moved, as by an older operator.
    """
    client = CachedClient(live, Cache(live, runtime=runtime))
    schedules = [{"name": name, "schedule": "0 1 * * *"} for name in ("daily", "weekly")]
    backup = {"storeRef": {"name": "archive"}, "schedules": schedules}
    limits = {"limits": {"memory": "1Gi"}}
    created: Cluster = await client.create(cluster_of(namespace, backup=backup, resources=limits))
    await add_finalizer(client, created, FINALIZER)
    if applied_before:
        await client.apply(cluster_of(namespace, backup=backup))

    kept = {**backup, "schedules": schedules[:1]}
    applied = await _apply(client, created, cluster_of(namespace, backup=kept, resources=limits))
    assert applied.spec.resources is not None and applied.spec.backup is not None
    assert [schedule.name for schedule in applied.spec.backup.schedules] == ["daily"]
    applied = await _apply(client, applied, cluster_of(namespace))
    assert (applied.spec.resources, applied.spec.backup, applied.spec.instances) == (None, None, 1)
    assert applied.metadata.finalizers == (FINALIZER,)
    assert await own_created_spec_by_apply(client, applied) is applied


async def _apply(client: CachedClient, cluster: Cluster, config: DedicatedClusterApply) -> Cluster:
    present: Object = await own_created_spec_by_apply(client, await client.get(type(cluster), cluster.key))
    return await client.apply(config, uid=present.metadata.uid)
