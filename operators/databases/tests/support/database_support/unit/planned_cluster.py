"""A cluster as the planner sees it: three instances that are well, and what may be otherwise."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from steersman.api.apps_v1 import StatefulSet
from steersman.api.core_v1 import PersistentVolumeClaim, Pod, ResourceRequirements
from steersman.meta import ObjectKey, Quantity, decode_builtins
from steersman_databases.cluster.rules.pod_hashes import restart_hash
from steersman_databases.cluster.state import FENCED_INSTANCE, RESTART_HASH, RETIRED, ClusterState, Instance
from steersman_databases.engines.cluster_engine import (
    BootstrapDatabase,
    DeclaredCluster,
    PodTemplateSettings,
    RequestedOperations,
    SynchronousReplication,
)
from steersman_databases.engines.members import Member, Members

KEY = ObjectKey("shop", "orders")
NOW = datetime(2026, 11, 22, tzinfo=UTC)
DECLARED = DeclaredCluster(
    key=KEY,
    uid="1",
    kind="PostgreSQLCluster",
    engine="postgresql",
    version="17",
    image="postgresql:17",
    instances=3,
    storage_size=Quantity("1Gi"),
    wal_size=None,
    pod_settings=PodTemplateSettings(resources=ResourceRequirements(), shm_size=Quantity("64Mi")),
    synchronous=SynchronousReplication(mode="Quorum"),
    bootstrap=BootstrapDatabase(database="orders", owner="orders"),
    writable_services=("orders-rw",),
)


def instance(number: int, *, ready: bool = True, hash_: str | None = None, fenced: bool = False) -> Instance:
    """One that is there; its pod was made for what is declared unless ``hash_`` says otherwise."""
    made_for = restart_hash(DECLARED, DECLARED.image) if hash_ is None else hash_
    notes = {RESTART_HASH: made_for, **({FENCED_INSTANCE: "true"} if fenced else {})}
    owner = {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": f"orders-{number}", "uid": f"uid-{number}"}
    pod = {
        "metadata": {
            "name": f"orders-{number}-0",
            "annotations": notes,
            "creationTimestamp": "2026-11-21T23:59:00Z",
            "ownerReferences": [{**owner, "controller": True}],
        },
        "status": {"conditions": [{"type": "Ready", "status": "True" if ready else "False"}]},
    }
    claim = {"metadata": {"name": f"data-orders-{number}"}, "status": {"phase": "Bound"}}
    template = {"spec": {"containers": [{"name": "server", "image": DECLARED.image}]}}
    stateful = {
        "metadata": {"name": owner["name"], "uid": owner["uid"]},
        "spec": {"replicas": 1, "template": template},
    }
    return Instance(
        ordinal=number,
        pod=decode_builtins(pod, Pod),
        data=decode_builtins(claim, PersistentVolumeClaim),
        statefulset=decode_builtins(stateful, StatefulSet),
    )


def interrupted_removal(number: int) -> Instance:
    """One that was being taken away: its claim is marked, and no more was done."""
    there = instance(number)
    claim = {"metadata": {"name": f"data-orders-{number}", "labels": {RETIRED: "true"}}, "status": {"phase": "Bound"}}
    return replace(there, data=decode_builtins(claim, PersistentVolumeClaim))


def member(number: int, **said: Any) -> Member:
    """A replica that follows, and is synchronous."""
    fields: dict[str, Any] = {"state": "Streaming", "timeline": 1, "lag_bytes": 0, "synchronous": True, **said}
    return Member(pod=ObjectKey("shop", f"orders-{number}-0"), instance=number, **fields)


def primary(number: int, **said: Any) -> Member:
    """The primary."""
    return member(number, role="Primary", state="Running", synchronous=False, **said)


def cluster_state(instances: list[Instance], *members: Member, **agreed: Any) -> ClusterState:
    """A cluster of these, led by whoever is primary."""
    leader = next((m.instance for m in members if m.role == "Primary"), None)
    known = {m.instance: m for m in members}
    fields = dict[str, Any](leader=leader, is_initialized=True) | agreed
    return ClusterState(
        instances=[replace(i, member=known.get(i.ordinal)) for i in instances],
        members=Members(cluster=KEY, members=members, **fields),
        used_ordinals=frozenset(i.ordinal for i in instances),
        now=NOW,
        config_unreadable=False,
    )


THREE = [instance(n) for n in range(3)]
HEALTHY = cluster_state(THREE, primary(0), member(1), member(2))


def requesting(**requests: Any) -> DeclaredCluster:
    """What is declared, and an annotation."""
    return replace(DECLARED, requests=RequestedOperations(**requests))
