"""LeaderService under crashes, lost responses and delayed watches of the operator.

SIMULATE=whole tries all fault points and takes minutes. The default tries evenly spread ones in seconds.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import Any

from steersman import FrozenDict, Manager, ManagerOptions, MergePatch, ObjectKey, ObjectMeta
from steersman.api.core_v1 import Pod
from steersman.api.discovery_v1 import EndpointSlice
from steersman_testing import World, simulate

from leader_operator.api.v1.leaderservice import LeaderService, LeaderServiceSpec, PublishSpec, ServicePort
from leader_operator.controllers.leaderservice import LeaderServiceReconciler
from leader_operator.resources import role_label
from model_pod import KEY, ModelPod
from pods import create_pod, pod, pod_status, set_ready
from store import Store

MAX_FAULTS, RANDOM_RUNS = (None, 50) if os.environ.get("SIMULATE") == "whole" else (6, 1)


@dataclass
class Outside:
    """The store, the pods with sidecars, and the leader of each term."""

    store: Store = field(default_factory=lambda: Store(checks_term=False))
    pods: list[ModelPod] = field(default_factory=list[ModelPod])
    leader_of_term: dict[int, str] = field(default_factory=dict[int, str])


def service(fencing: str) -> LeaderService:
    spec = LeaderServiceSpec(
        selector=FrozenDict({"app": "orders"}),
        ports=(ServicePort(port=80),),
        fencing="Sidecar" if fencing == "Sidecar" else "None",
        publish=PublishSpec(config_map="orders-file", headless=True),
    )
    return LeaderService(metadata=ObjectMeta(name=KEY.name, namespace=KEY.namespace), spec=spec)


def setup(manager: Manager, _: Outside) -> None:
    LeaderServiceReconciler.setup_with_manager(manager)


def published(world: World[Outside]) -> list[str]:
    """Pods that the EndpointSlices of the Service contain."""
    found = world.read(EndpointSlice, ObjectKey("default", "orders-ipv4"))
    endpoints = found.endpoints if found is not None else ()
    return [endpoint.target_ref.name or "" for endpoint in endpoints if endpoint.target_ref is not None]


async def unfenced_scenario(world: World[Outside]) -> None:
    """Replace the leader twice, and change what is published."""
    await world.client.create(service("None"))
    for index in range(3):
        await create_pod(world.client, pod(f"orders-{index}"))
    await world.wait_until("orders-0 leads", lambda: published(world) == ["orders-0"])
    await world.settle()
    await set_ready(world.client, ObjectKey("default", "orders-0"), pod_status(ready=False))
    await world.wait_until("orders-1 leads", lambda: published(world) == ["orders-1"])
    await world.settle()
    await world.client.delete(Pod, ObjectKey("default", "orders-1"))
    await world.wait_until("orders-2 leads", lambda: published(world) == ["orders-2"])
    await world.client.patch(LeaderService, KEY, MergePatch({"spec": {"publish": {"headless": False}}}))
    await world.settle()


async def fenced_scenario(world: World[Outside]) -> None:
    """Kill the leader, and partition the next one. At most one other pod can lead, so that each run is the same."""
    await world.client.create(service("Sidecar"))
    await start_pod(world, 0)
    await wait_for_leader(world, "orders-0")
    await start_pod(world, 1)
    await world.settle()
    world.outside.pods[0].kill()
    await wait_for_leader(world, "orders-1")
    await start_pod(world, 2)
    await world.settle()
    world.outside.pods[1].partition()
    await wait_for_leader(world, "orders-2")
    await world.settle()
    for each in world.outside.pods:
        each.kill()


async def start_pod(world: World[Outside], index: int) -> None:
    created = await create_pod(world.client, pod(f"orders-{index}", sidecar="orders"))
    started = ModelPod(world.server, created.metadata.name, world.outside.store, uid=created.metadata.uid)
    world.outside.pods.append(started)


async def wait_for_leader(world: World[Outside], name: str) -> None:
    def leads() -> bool:
        return leaders(world.outside.pods) == published(world) == [name]

    await world.wait_until(f"{name} leads and is published", leads)


def leaders(pods: list[ModelPod]) -> list[str]:
    return [each.name for each in pods if each.report().leading]


def one_pod_is_published(world: World[Outside]) -> None:
    """Check that traffic, label and term have one pod."""
    for found in world.read_all(EndpointSlice):
        assert len(found.endpoints) <= 1, f"{found.metadata.name} has {len(found.endpoints)} endpoints"
    declared = world.read(LeaderService, KEY)
    if declared is None:
        return
    labelled = [each.metadata.name for each in world.read_all(Pod) if role_label(declared) in each.metadata.labels]
    assert len(labelled) <= 1, f"{labelled} have the label of the leader"
    leader = declared.status.leader
    if leader is not None:
        assert world.outside.leader_of_term.setdefault(leader.term, leader.uid) == leader.uid, (
            "a term has two leaders"
        )


def writers_do_not_overlap(world: World[Outside]) -> None:
    """Check the store without a check of terms."""
    assert world.outside.store.violations() == []


def ignore_uids(obj: dict[str, Any]) -> dict[str, Any]:
    """Remove the random numbers of pods, which differ between runs."""
    if obj["kind"] == "LeaderService" and (leader := obj.get("status", {}).get("leader")):
        return obj | {"status": obj["status"] | {"leader": leader | {"uid": ""}}}
    return obj


def test_faults_of_unfenced_service_are_recovered() -> None:
    report = simulate(
        setup,
        unfenced_scenario,
        outside=Outside,
        kinds=[LeaderService],
        invariants=[one_pod_is_published],
        options=ManagerOptions(name="leader-operator"),
        adjust=ignore_uids,
        random_runs=RANDOM_RUNS,
        max_places=MAX_FAULTS,
    )
    assert sum(report.tried.values()) >= 6


def test_writers_never_overlap_whatever_the_operator_does() -> None:
    report = simulate(
        setup,
        fenced_scenario,
        outside=Outside,
        kinds=[LeaderService],
        invariants=[one_pod_is_published, writers_do_not_overlap],
        options=ManagerOptions(name="leader-operator"),
        adjust=ignore_uids,
        random_runs=RANDOM_RUNS,
        max_places=MAX_FAULTS,
    )
    assert sum(report.tried.values()) >= 6
