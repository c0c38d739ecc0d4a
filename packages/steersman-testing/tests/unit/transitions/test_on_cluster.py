"""Transitions observed from outside, like on a real cluster.

The API server is in memory, and time is virtual.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any

import pytest

from framework_support import webapp
from framework_support.webapp import InProcessOperator, WebApp, setup, setup_with
from steersman.api.core_v1 import ConfigMap, Namespace
from steersman.client import Client, HttpRequest, HttpResponse
from steersman.manager import Manager
from steersman_manifests.crd import definition
from steersman_testing import InMemoryApiServer, run_virtual, virtual_runtime, virtual_time
from steersman_testing.transitions import Budget, ClusterSettleOptions, ExplorationReport, Hints, explore, on_cluster

HINTS = Hints(bad={"spec.image": [webapp.MISSING_IMAGE]})
YEAR = 366 * 86400.0


def run_exploration(
    operator: Callable[[Manager], None],
    *,
    restarts: bool = True,
    changes: int = 60,
    replay: str = "",
    patience: ClusterSettleOptions | None = None,
) -> tuple[ExplorationReport, InMemoryApiServer]:
    async def exploration() -> tuple[ExplorationReport, InMemoryApiServer]:
        server = InMemoryApiServer(virtual_runtime())
        server.register(WebApp)
        user = Client(server, field_manager="user")
        async with InProcessOperator(server, operator, server.runtime) as operator_process:
            restart = operator_process.restart if restarts else None
            system_factory = on_cluster(user, WebApp, restart=restart, settle_options=patience)
            budget = Budget(changes=changes, failures=1)
            return await explore(WebApp, system_factory, HINTS, budget=budget, replay=replay), server

    return run_virtual(exploration(), limit=YEAR)


def test_correct_operator_passes_and_leaves_no_objects() -> None:
    report, server = run_exploration(setup, changes=40)
    report.check()
    assert report.changes >= 40
    assert server.read_all(WebApp) == ()
    assert server.read_all(ConfigMap) == ()
    assert [n for n in server.read_all(Namespace) if n.metadata.name.startswith("transitions-")] == []


def test_exploration_without_restarts_passes() -> None:
    report, _ = run_exploration(setup, restarts=False, changes=15)
    report.check()


def test_convergence() -> None:
    report, _ = run_exploration(setup_with(webapp.NeverRemovesKeys))
    assert [f.oracle for f in report.failures] == ["convergence"]
    places = [str(d) for d in report.failures[0].finding.differences]
    assert places == ['ConfigMap (namespace)/trial data.banner: "a" / missing']


def test_idempotence_failure_names_the_change() -> None:
    report, _ = run_exploration(setup_with(webapp.WritesProcessNumber))
    assert [f.oracle for f in report.failures] == ["idempotence"]
    assert "changed ConfigMap" in report.failures[0].finding.text


def test_settling() -> None:
    replay = '{"start":{"spec":{"title":"a","replicas":20}},"changes":[]}'
    report, _ = run_exploration(
        setup_with(webapp.WritesTimestamps), replay=replay, patience=ClusterSettleOptions(quiet=30)
    )
    assert [f.oracle for f in report.failures] == ["settling"]
    assert "ConfigMap (namespace)/trial" in report.failures[0].finding.text


class SlowTransport:
    """A server with delayed responses."""

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
    server.register(WebApp)
    async with InProcessOperator(SlowTransport(server, 14), setup, server.runtime):
        patience = ClusterSettleOptions(quiet=5)
        async with on_cluster(
            Client(SlowTransport(server, 3)), WebApp, observed=[ConfigMap], settle_options=patience
        )() as system:
            await system.apply({"spec": {"title": "a", "backends": [{"name": "a"}, {"name": "b"}]}})
            seen = await system.settle()
    assert seen.object is not None
    assert seen.object["status"]["conditions"][0]["status"] == "True"


def test_silence() -> None:
    replay = '{"start":{"spec":{"title":"a"}},"changes":[["bad",{"spec.image":"registry.example.com/gone"}]]}'
    report, _ = run_exploration(setup_with(webapp.HidesImageError), replay=replay)
    assert [f.oracle for f in report.failures] == ["silence"]


@virtual_time
async def test_a_cluster_scoped_kind_is_refused() -> None:
    manifest: Mapping[str, Any] = definition(WebApp)
    manifest["spec"]["scope"] = "Cluster"
    with pytest.raises(ValueError, match="WebApp is cluster-scoped"):
        on_cluster(Client(InMemoryApiServer(virtual_runtime())), manifest)
