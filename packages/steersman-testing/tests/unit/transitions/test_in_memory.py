"""Observation of an in-memory operator: its writes, errors and convergence."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

from framework_support.webapp import WebApp, WebAppReconciler, setup_with
from steersman.api.apply import core, meta
from steersman.api.core_v1 import ConfigMap
from steersman.client import Client, MergePatch, Transport
from steersman.controller import Request, Result, add_finalizer, remove_finalizer
from steersman.manager import Manager, ManagerOptions
from steersman.meta import ApiResource, ObjectKey, unstructured
from steersman_testing import InMemoryApiServer, run_virtual, virtual_runtime, virtual_time
from steersman_testing.transitions import (
    Budget,
    ExplorationReport,
    InMemorySystem,
    SystemUnderTest,
    explore,
    in_memory,
)

YEAR = 366 * 86400.0
WHOLE = os.environ.get("SIMULATE") == "whole"
START = {"spec": {"title": "a"}}
SHARED = ObjectKey("default", "trial")


def run_exploration(operator: Callable[[Manager], None], *, changes: int = 0, replay: str = "") -> ExplorationReport:
    exploration = explore(WebApp, in_memory(WebApp, operator), budget=Budget(changes=changes), replay=replay)
    return run_virtual(exploration, limit=YEAR)


def test_requeue_is_not_an_error() -> None:
    class Requeues(WebAppReconciler):
        async def reconcile(self, request: Request) -> Result:
            await super().reconcile(request)
            return Result(requeue_after=20)

    run_exploration(setup_with(Requeues), changes=12).check()


def test_error_between_requeues_is_reported() -> None:
    class RequeuesAndFails(WebAppReconciler):
        async def reconcile(self, request: Request) -> Result:
            webapp = await self.client.get(WebApp, request)
            if webapp.spec.replicas == 0:
                raise RuntimeError("no replicas")
            await super().reconcile(request)
            return Result(requeue_after=20)

    report = run_exploration(
        setup_with(RequeuesAndFails), replay='{"start":{"spec":{"title":"a","replicas":0}},"changes":[]}'
    )
    assert [f.oracle for f in report.failures] == ["silence"]
    assert "RuntimeError" in report.failures[0].finding.text


@virtual_time
async def test_periodic_reconcile_without_change_is_settled() -> None:
    class Requeues(WebAppReconciler):
        async def reconcile(self, request: Request) -> Result:
            await super().reconcile(request)
            await self.runtime.clock.sleep(2)
            return Result(requeue_after=20)

    async with in_memory(WebApp, setup_with(Requeues))() as system:
        await system.apply(START)
        assert (await system.settle()).settled


REVIEWS = ApiResource("shop.example.com", "v1", "Review", "reviews", True)


@virtual_time
async def test_custom_kind_named_like_review_is_written() -> None:
    class CreatesReview(WebAppReconciler):
        async def apply_backends(self, webapp: WebApp) -> None:
            review = {
                "apiVersion": REVIEWS.api_version,
                "kind": REVIEWS.kind,
                "metadata": {"name": str(self.runtime.random.getrandbits(32)), "namespace": "default"},
            }
            await self.client.create(unstructured(REVIEWS).of(review))

    async with in_memory(WebApp, setup_with(CreatesReview), kinds=[REVIEWS])() as system:
        await system.apply(START)
        seen = await system.settle()
    assert "POST /apis/shop.example.com/v1/namespaces/default/reviews" in seen.writes


class CorrectsDrift(WebAppReconciler):
    """Applies objects even without a change."""

    async def apply_backends(self, webapp: WebApp) -> None:
        await self.client.patch(ConfigMap, webapp.key, MergePatch({"data": {"title": webapp.spec.title}}))


@asynccontextmanager
async def system_with_actor(actor: Callable[[Client], Coroutine[Any, Any, None]]) -> AsyncGenerator[SystemUnderTest]:
    """Run an operator, and an actor that restarts with it."""
    runtime = virtual_runtime()
    server = InMemoryApiServer(runtime)
    server.register(WebApp)

    @asynccontextmanager
    async def operator(transport: Transport) -> AsyncGenerator[Manager]:
        manager = Manager(transport, ManagerOptions(graceful_shutdown_timeout=0), runtime)
        setup_with(CorrectsDrift)(manager)
        working = asyncio.create_task(actor(Client(server, field_manager="neighbour")))
        yield manager
        await working

    async with InMemorySystem(WebApp, server, operator) as system:
        yield system


@virtual_time
async def test_foreign_writes_are_not_operator_writes() -> None:
    written = 0

    async def actor(client: Client) -> None:
        nonlocal written
        written += 1
        stamp = core.ConfigMap(metadata=meta.ObjectMeta(name="stamp", namespace="default"), data={"n": str(written)})
        await client.apply(stamp)

    async with system_with_actor(actor) as system:
        await system.apply(START)
        first = await system.settle()
        await system.resync()
        again = await system.settle()
    assert "PATCH /api/v1/namespaces/default/configmaps/trial" in first.writes
    assert not [w for w in first.writes if "stamp" in w]
    assert written == 2
    assert again.state["ConfigMap default/stamp"]["data"] == {"n": "2"}
    assert again.writes == ()


@virtual_time
async def test_drift_correction_is_an_operator_write() -> None:
    async def actor(client: Client) -> None:
        await asyncio.sleep(5)
        await client.patch(ConfigMap, SHARED, MergePatch({"data": {"title": "smudged"}}))

    async with system_with_actor(actor) as system:
        await system.apply(START)
        await system.settle()
        await system.resync()
        again = await system.settle()
    assert again.writes == ("PATCH /api/v1/namespaces/default/configmaps/trial",)


class CreatesNamespace(WebAppReconciler):
    """Creates an owned Namespace for each WebApp."""

    finalizer = "shop.example.com/tenant"

    async def reconcile(self, request: Request) -> Result:
        webapp = await self.client.get(WebApp, request)
        namespace = ObjectKey("", f"tenant-{webapp.metadata.name}")
        if webapp.metadata.deletion_timestamp is not None:
            await self.client.delete(unstructured(NAMESPACES), namespace)
            await remove_finalizer(self.client, webapp, self.finalizer)
            return Result()
        await add_finalizer(self.client, webapp, self.finalizer)
        await self.client.apply(core.Namespace(metadata=meta.ObjectMeta(name=namespace.name)))
        metadata = meta.ObjectMeta(name="title", namespace=namespace.name)
        await self.client.apply(core.ConfigMap(metadata=metadata, data={"title": webapp.spec.title}))
        return await super().reconcile(request)


NAMESPACES = ApiResource("", "v1", "Namespace", "namespaces", False)


def test_a_namespace_that_stays_is_found() -> None:
    class LeaksNamespace(CreatesNamespace):
        async def reconcile(self, request: Request) -> Result:
            webapp = await self.client.get(WebApp, request)
            return await super().reconcile(request) if webapp.spec.replicas else Result()

        async def write_status(self, webapp: WebApp, status: Any, reason: str, message: str) -> None:
            return

    start = '{"start":{"spec":{"title":"a"}},"changes":[["alter",{"spec.replicas":0}]]}'
    report = run_exploration(setup_with(LeaksNamespace), replay=start)
    assert [f.oracle for f in report.failures] == ["convergence"]
    assert "Namespace tenant-trial: there / missing" in str(report.failures[0])


def test_operator_managing_namespaces_is_explored() -> None:
    recreate_twice = (
        '{"start":{"spec":{"title":"a"}},"changes":[["recreate"],["alter",{"spec.replicas":2}],["recreate"]]}'
    )
    report = run_exploration(setup_with(CreatesNamespace), changes=150, replay="" if WHOLE else recreate_twice)
    report.check()
    assert report.changes >= 3
