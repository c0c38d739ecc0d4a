"""What is seen of an operator in memory: its own writes, its errors, and when all has come to rest."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

from framework_support.harbour import Harbour, HarbourReconciler, setup_with
from steersman.api.apply.core_v1 import ConfigMapApply, NamespaceApply
from steersman.api.core_v1 import ConfigMap
from steersman.client import Client, MergePatch, Transport
from steersman.controller import Request, Result, add_finalizer, remove_finalizer
from steersman.manager import Manager, ManagerOptions
from steersman.meta import ApiResource, ObjectKey, ObjectMetaApply, unstructured
from steersman_testing import InMemoryApiServer, run_virtual, virtual_runtime, virtual_time
from steersman_testing.transitions import Budget, InMemorySystem, Report, System, explore, in_memory

YEAR = 366 * 86400.0
START = {"spec": {"title": "a"}}
SHARED = ObjectKey("default", "trial")


def explored(operator: Callable[[Manager], None], *, changes: int = 0, replay: str = "") -> Report:
    exploration = explore(Harbour, in_memory(Harbour, operator), budget=Budget(changes=changes), replay=replay)
    return run_virtual(exploration, limit=YEAR)


def test_who_asks_to_run_again_is_not_in_error() -> None:
    class Watchful(HarbourReconciler):
        async def reconcile(self, request: Request) -> Result:
            await super().reconcile(request)
            return Result(requeue=True)

    explored(setup_with(Watchful), changes=12).check()


def test_an_error_among_runs_that_were_asked_for_is_one() -> None:
    class Watchful(HarbourReconciler):
        async def reconcile(self, request: Request) -> Result:
            harbour = await self.client.get(Harbour, request)
            if harbour.spec.berths == 0:
                raise RuntimeError("no berths")
            await super().reconcile(request)
            return Result(requeue=True)

    report = explored(setup_with(Watchful), replay='{"start":{"spec":{"title":"a","berths":0}},"changes":[]}')
    assert [f.oracle for f in report.failures] == ["silence"]
    assert "RuntimeError" in report.failures[0].finding.text


@virtual_time
async def test_who_looks_again_now_and_then_and_finds_nothing_is_at_rest() -> None:
    class Watchful(HarbourReconciler):
        async def reconcile(self, request: Request) -> Result:
            await super().reconcile(request)
            await self.runtime.clock.sleep(2)
            return Result(requeue_after=20)

    async with in_memory(Harbour, setup_with(Watchful))() as system:
        await system.apply(START)
        assert (await system.settle()).settled


REVIEWS = ApiResource("shop.example.com", "v1", "Review", "reviews", True)


@virtual_time
async def test_custom_kinds_are_written_whatever_their_names() -> None:
    class Reviews(HarbourReconciler):
        async def light(self, harbour: Harbour) -> None:
            review = {
                "apiVersion": REVIEWS.api_version,
                "kind": REVIEWS.kind,
                "metadata": {"name": str(self.runtime.random.getrandbits(32)), "namespace": "default"},
            }
            await self.client.create(unstructured(REVIEWS).of(review))

    async with in_memory(Harbour, setup_with(Reviews), serves=[REVIEWS])() as system:
        await system.apply(START)
        seen = await system.settle()
    assert "POST /apis/shop.example.com/v1/namespaces/default/reviews" in seen.writes


class Insists(HarbourReconciler):
    """Sends what is there already, too."""

    async def light(self, harbour: Harbour) -> None:
        await self.client.patch(ConfigMap, harbour.key, MergePatch({"data": {"title": harbour.spec.title}}))


@asynccontextmanager
async def system_beside(neighbour: Callable[[Client], Coroutine[Any, Any, None]]) -> AsyncGenerator[System]:
    """An operator, and a neighbour who does its work each time that the operator starts."""
    runtime = virtual_runtime()
    server = InMemoryApiServer(runtime)
    server.register(Harbour)

    @asynccontextmanager
    async def operator(transport: Transport) -> AsyncGenerator[Manager]:
        manager = Manager(transport, ManagerOptions(graceful_shutdown_timeout=0), runtime)
        setup_with(Insists)(manager)
        working = asyncio.create_task(neighbour(Client(server, field_manager="neighbour")))
        yield manager
        await working

    async with InMemorySystem(Harbour, server, operator) as system:
        yield system


@virtual_time
async def test_what_others_write_is_none_of_the_operators_writes() -> None:
    written = 0

    async def neighbour(client: Client) -> None:
        nonlocal written
        written += 1
        stamp = ConfigMapApply(metadata=ObjectMetaApply(name="stamp", namespace="default"), data={"n": str(written)})
        await client.apply(stamp)

    async with system_beside(neighbour) as system:
        await system.apply(START)
        first = await system.settle()
        await system.look_again()
        again = await system.settle()
    assert "PATCH /api/v1/namespaces/default/configmaps/trial" in first.writes
    assert not [w for w in first.writes if "stamp" in w]
    assert written == 2
    assert again.state["ConfigMap default/stamp"]["data"] == {"n": "2"}
    assert again.writes == ()


@virtual_time
async def test_what_the_operator_puts_right_is_its_write() -> None:
    async def neighbour(client: Client) -> None:
        await asyncio.sleep(5)
        await client.patch(ConfigMap, SHARED, MergePatch({"data": {"title": "smudged"}}))

    async with system_beside(neighbour) as system:
        await system.apply(START)
        await system.settle()
        await system.look_again()
        again = await system.settle()
    assert again.writes == ("PATCH /api/v1/namespaces/default/configmaps/trial",)


class Landlord(HarbourReconciler):
    """Gives each harbour a Namespace, which goes with it."""

    finalizer = "sea.example.com/quarter"

    async def reconcile(self, request: Request) -> Result:
        harbour = await self.client.get(Harbour, request)
        quarter = ObjectKey("", f"quarter-{harbour.metadata.name}")
        if harbour.metadata.deletion_timestamp is not None:
            await self.client.delete(unstructured(NAMESPACES), quarter)
            await remove_finalizer(self.client, harbour, self.finalizer)
            return Result()
        await add_finalizer(self.client, harbour, self.finalizer)
        await self.client.apply(NamespaceApply(metadata=ObjectMetaApply(name=quarter.name)))
        where = ObjectMetaApply(name="title", namespace=quarter.name)
        await self.client.apply(ConfigMapApply(metadata=where, data={"title": harbour.spec.title}))
        return await super().reconcile(request)


NAMESPACES = ApiResource("", "v1", "Namespace", "namespaces", False)


def test_a_namespace_that_stays_is_found() -> None:
    class Careless(Landlord):
        async def reconcile(self, request: Request) -> Result:
            harbour = await self.client.get(Harbour, request)
            return await super().reconcile(request) if harbour.spec.berths else Result()

        async def report(self, harbour: Harbour, status: Any, reason: str, message: str) -> None:
            return

    start = '{"start":{"spec":{"title":"a"}},"changes":[["alter",{"spec.berths":0}]]}'
    report = explored(setup_with(Careless), replay=start)
    assert [f.oracle for f in report.failures] == ["convergence"]
    assert "Namespace quarter-trial: there / missing" in str(report.failures[0])


def test_an_operator_that_makes_and_deletes_namespaces_is_explored() -> None:
    report = explored(setup_with(Landlord), changes=150)
    report.check()
    assert report.coverage.count("recreate") == (11, 11)
