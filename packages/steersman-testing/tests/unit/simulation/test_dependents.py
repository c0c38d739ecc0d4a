"""Dependents under faults: they converge, and prune undeclared ones only."""

from __future__ import annotations

import os
from typing import Annotated, Any

from steersman.api.apply import batch, core, meta
from steersman.api.batch_v1 import Job
from steersman.api.core_v1 import ConfigMap
from steersman.client import MergePatch
from steersman.controller import Request, RequestReconciler, Result
from steersman.dependents import DEPENDENT_OF_LABEL
from steersman.manager import Manager
from steersman.meta import Field, ObjectKey, ObjectMeta, Resource, Spec, Status, resource
from steersman_testing import World, simulate

# SIMULATE=whole tries all places. The default tries evenly spread ones.
MAX_PLACES, RANDOM_RUNS = (None, 50) if os.environ.get("SIMULATE") == "whole" else (20, 2)
KEY = ObjectKey("default", "shop")


class ShopSpec(Spec):
    pages: Annotated[tuple[str, ...], Field(max_items=5)] = ()


class ShopStatus(Status):
    reason: str = ""


@resource(group="example.com", version="v1")
class Shop(Resource[ShopSpec, ShopStatus]):
    """An object with pages, and a Job that follows them."""


def metadata(name: str) -> meta.ObjectMeta:
    return meta.ObjectMeta(name=name, namespace=KEY.namespace)


def page(name: str) -> core.ConfigMap:
    return core.ConfigMap(metadata=metadata(name), data={"title": name})


# Half of the dependents at least: an outage during all changes of the scenario must not stop the prune.
BASE = tuple(page(f"base-{number}") for number in range(3))


def check_job() -> batch.Job:
    container = core.Container(name="check", image="check:1")
    template = core.PodTemplateSpec(spec=core.PodSpec(containers=[container], restart_policy="Never"))
    return batch.Job(metadata=metadata("check"), spec=batch.JobSpec(template=template))


class ShopReconciler(RequestReconciler[Shop]):
    async def reconcile(self, request: Request) -> Result:
        shop = await self.client.get(Shop, request)
        pages = tuple(page(name) for name in shop.spec.pages)
        state = await self.dependents.apply(shop, [BASE, check_job(), pages])
        await self.client.apply_status(shop, ShopStatus(reason=state.reason))
        return Result()


def setup(manager: Manager) -> None:
    manager.controller(Shop).owns(ConfigMap, prune=True).owns(Job).complete(ShopReconciler)


async def scenario(world: World[None]) -> None:
    await world.client.create(Shop(metadata=ObjectMeta(name=KEY.name, namespace=KEY.namespace), spec=ShopSpec()))
    for pages in (("home", "news", "help"), ("home", "news"), ("news", "shop"), ()):
        await world.client.patch(Shop, KEY, MergePatch({"spec": {"pages": list(pages)}}))
        await world.settle()


async def job_controller(world: World[None]) -> None:
    """Complete each Job after two seconds."""
    while True:
        await world.sleep(2)
        for job in world.read_all(Job):
            if not job.status.conditions:
                status = {"conditions": [{"type": "Complete", "status": "True"}]}
                await world.client.patch(Job, job.key, MergePatch({"status": status}), subresource="status")


FOREIGN: Any = [
    {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": KEY.namespace, "labels": labels},
    }
    for name, labels in (("foreign", {}), ("foreign-with-label", {DEPENDENT_OF_LABEL: "operator.shop"}))
]


def foreign_objects_stay(world: World[None]) -> None:
    for manifest in FOREIGN:
        assert world.read(ConfigMap, ObjectKey(KEY.namespace, manifest["metadata"]["name"])) is not None


def pages_follow_the_job(world: World[None]) -> None:
    job = world.read(Job, ObjectKey(KEY.namespace, "check"))
    is_complete = job is not None and bool(job.status.conditions)
    names = {found.metadata.name for found in world.read_all(ConfigMap, KEY.namespace)}
    assert is_complete or not names & {"home", "news", "help", "shop"}


def test_simulated_faults_converge() -> None:
    report = simulate(
        setup,
        scenario,
        kinds=[Shop],
        manifests=FOREIGN,
        actors=[job_controller],
        invariants=[foreign_objects_stay, pages_follow_the_job],
        max_places=MAX_PLACES,
        random_runs=RANDOM_RUNS,
    )
    assert report.random_runs == RANDOM_RUNS
