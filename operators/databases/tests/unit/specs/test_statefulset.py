"""The pod of an instance: its containers and their class of service."""

from __future__ import annotations

import dataclasses
from typing import Any

import msgspec
import pytest

from database_support.unit.declared_clusters import declared_cluster
from steersman.api.core_v1 import ResourceRequirements
from steersman.meta import FrozenDict
from steersman_databases.engines.postgresql.cluster_engine import PostgreSQLEngine
from steersman_databases.specs.statefulset import InstanceSettings, instance_pod


def containers(resources: ResourceRequirements, processes: int = 1) -> list[dict[str, Any]]:
    cluster = declared_cluster()
    settings = dataclasses.replace(cluster.pod_settings, resources=resources)
    cluster = dataclasses.replace(cluster, pod_settings=settings, backup_processes=processes)
    parts = PostgreSQLEngine().pod_contribution(cluster, 0)
    pod = instance_pod(cluster, InstanceSettings(ordinal=0, image="postgresql:17"), parts)
    return msgspec.to_builtins(pod)["containers"]


def amounts(**values: str) -> FrozenDict[str, int | str]:
    return FrozenDict[str, int | str](values)


def test_agent_follows_server_and_is_limited() -> None:
    server, agent = containers(ResourceRequirements(limits=amounts(memory="1Gi")))
    assert (server["name"], agent["name"]) == ("server", "agent")
    assert server["resources"] == {"limits": {"memory": "1Gi"}, "requests": {"memory": "1Gi"}}
    assert agent["resources"] == {"limits": {"memory": "256Mi"}, "requests": {"cpu": "10m", "memory": "32Mi"}}
    assert agent["securityContext"] == server["securityContext"]
    assert agent["image"] == server["image"] == "postgresql:17"


def test_agent_memory_grows_with_backup_processes() -> None:
    _, agent = containers(ResourceRequirements(), processes=4)
    assert agent["resources"]["limits"]["memory"] == "448Mi"


@pytest.mark.parametrize(
    ("requests", "guaranteed"),
    [(amounts(), True), (amounts(cpu="1000m", memory="1024Mi"), True), (amounts(cpu="500m", memory="1Gi"), False)],
)
def test_agent_keeps_class_of_service(requests: FrozenDict[str, int | str], guaranteed: bool) -> None:
    limits = amounts(cpu="1", memory="1Gi")
    _, agent = containers(ResourceRequirements(limits=limits, requests=requests))
    assert (agent["resources"]["limits"] == agent["resources"]["requests"]) is guaranteed
