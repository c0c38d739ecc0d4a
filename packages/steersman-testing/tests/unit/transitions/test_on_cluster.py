"""Transitions seen from outside, as on a real cluster: here the API server is in memory, and time virtual."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any

import pytest

from framework_support import harbour
from framework_support.harbour import Harbour, Process, setup, setup_with
from steersman.api.core_v1 import ConfigMap, Namespace
from steersman.client import Client, HttpRequest, HttpResponse
from steersman.crd import definition
from steersman.manager import Manager
from steersman_testing import InMemoryApiServer, run_virtual, virtual_runtime, virtual_time
from steersman_testing.transitions import Budget, ClusterPatience, Hints, Report, explore, on_cluster

HINTS = Hints(bad={"spec.image": [harbour.GONE]})
YEAR = 366 * 86400.0


def explored(
    operator: Callable[[Manager], None],
    *,
    restarts: bool = True,
    changes: int = 60,
    replay: str = "",
    patience: ClusterPatience | None = None,
) -> tuple[Report, InMemoryApiServer]:
    async def exploration() -> tuple[Report, InMemoryApiServer]:
        server = InMemoryApiServer(virtual_runtime())
        server.register(Harbour)
        user = Client(server, field_manager="user")
        async with Process(server, operator, server.runtime) as process:
            restart = process.restart if restarts else None
            systems = on_cluster(user, Harbour, restart=restart, patience=patience)
            budget = Budget(changes=changes, failures=1)
            return await explore(Harbour, systems, HINTS, budget=budget, replay=replay), server

    return run_virtual(exploration(), limit=YEAR)


def test_a_right_operator_passes_and_nothing_stays() -> None:
    report, server = explored(setup, changes=100)
    report.check()
    assert report.changes >= 100
    assert server.read_all(Harbour) == ()
    assert server.read_all(ConfigMap) == ()
    assert [n for n in server.read_all(Namespace) if n.metadata.name.startswith("transitions-")] == []


def test_it_needs_no_restart_to_be_explored() -> None:
    report, _ = explored(setup, restarts=False, changes=30)
    report.check()


def test_convergence() -> None:
    report, _ = explored(setup_with(harbour.KeepsTheBanner))
    assert [f.oracle for f in report.failures] == ["convergence"]
    places = [str(d) for d in report.failures[0].finding.differences]
    assert places == ['ConfigMap (namespace)/trial data.banner: "a" / missing']


def test_idempotence_says_what_changed() -> None:
    report, _ = explored(setup_with(harbour.SignsItsWork))
    assert [f.oracle for f in report.failures] == ["idempotence"]
    assert "changed ConfigMap" in report.failures[0].finding.text


def test_settling() -> None:
    replay = '{"start":{"spec":{"title":"a","berths":20}},"changes":[]}'
    report, _ = explored(setup_with(harbour.KeepsTheLog), replay=replay, patience=ClusterPatience(quiet=30))
    assert [f.oracle for f in report.failures] == ["settling"]
    assert "ConfigMap (namespace)/trial" in report.failures[0].finding.text


class Slow:
    """A server that takes its time to answer."""

    def __init__(self, server: InMemoryApiServer, seconds: float) -> None:
        self._server = server
        self._seconds = seconds

    async def request(self, request: HttpRequest) -> HttpResponse:
        await asyncio.sleep(self._seconds)
        return await self._server.request(request)

    def stream(self, request: HttpRequest) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        return self._server.stream(request)

    async def close(self) -> None:
        return


@virtual_time
async def test_a_cluster_that_is_slow_is_waited_for_longer() -> None:
    server = InMemoryApiServer(virtual_runtime())
    server.register(Harbour)
    async with Process(Slow(server, 14), setup, server.runtime):
        patience = ClusterPatience(quiet=5)
        async with on_cluster(Client(Slow(server, 3)), Harbour, observed=[ConfigMap], patience=patience)() as system:
            await system.apply({"spec": {"title": "a", "lanterns": [{"name": "a"}, {"name": "b"}]}})
            seen = await system.settle()
    assert seen.object is not None
    assert seen.object["status"]["conditions"][0]["status"] == "True"


def test_silence() -> None:
    replay = '{"start":{"spec":{"title":"a"}},"changes":[["bad",{"spec.image":"registry.example.com/gone"}]]}'
    report, _ = explored(setup_with(harbour.SaysNothing), replay=replay)
    assert [f.oracle for f in report.failures] == ["silence"]


@virtual_time
async def test_a_cluster_scoped_kind_is_refused() -> None:
    manifest: Mapping[str, Any] = definition(Harbour)
    manifest["spec"]["scope"] = "Cluster"
    with pytest.raises(ValueError, match="Harbour is cluster-scoped"):
        on_cluster(Client(InMemoryApiServer(virtual_runtime())), manifest)
