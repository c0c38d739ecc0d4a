"""``steersman top``: rates from two samples, tables and errors."""

from __future__ import annotations

import json
from collections.abc import Iterator
from io import StringIO
from typing import Any

import msgspec
import pytest
from rich.console import Console
from typer.testing import CliRunner

from framework_support.controller_env import ControllerEnv, running
from framework_support.widget import Widget
from steersman.controller import Request, RequestReconciler, Result
from steersman.manager import Manager, ManagerOptions
from steersman.manager.serving.debug import DebugHandler
from steersman.manager.serving.http_server import ServerRequest
from steersman_cli import app
from steersman_cli.debug_endpoint import DebugEndpoint
from steersman_cli.top.load import ControllerSample, controller_loads
from steersman_cli.top.view import render
from steersman_testing import virtual_time

RECENT: dict[str, Any] = {
    "controller": "webapp",
    "namespace": "shop",
    "name": "blue",
    "duration_seconds": 2.5,
    "result": "error",
    "errors": ["Conflict"],
    "triggers": [{"reason": "updated", "kind": "Deployment", "object": "shop/blue", "fields": ["status.replicas"]}],
    "omitted_triggers": 3,
}
RUNNING: dict[str, Any] = {
    **RECENT,
    "name": "green",
    "duration_seconds": None,
    "age_seconds": 7.0,
    "result": None,
    "errors": [],
}


def sample(**changes: Any) -> dict[str, Any]:
    """Return a controller of ``/debug/controllers`` after 10 reconciles in 4 seconds."""
    content: dict[str, Any] = {
        "name": "webapp",
        "kind": "WebApp",
        "started": True,
        "workers": 2,
        "running": [RUNNING],
        "queue": {"depth": {"0": 3, "-100": 4}, "delayed_keys": 5, "oldest_seconds": 1.5},
        "reconciles": {"success": 8, "error": 2},
        "reconcile_seconds": 4.0,
        "slowest": [RECENT],
    }
    return {**content, **changes}


def decoded(content: dict[str, Any]) -> ControllerSample:
    return msgspec.convert(content, ControllerSample)


def later(**changes: Any) -> dict[str, Any]:
    """Return a sample after 6 more reconciles, with one error."""
    return sample(reconciles={"success": 13, "error": 3}, reconcile_seconds=7.0, **changes)


@pytest.fixture
def endpoint(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Responses of the debug endpoint, without a wait between them."""
    responses: list[Any] = [[sample()], [later()]]
    remaining: Iterator[Any] = iter(responses)

    def fetch(endpoint: DebugEndpoint, path: str, query: str) -> Any:
        return next(remaining)

    monkeypatch.setattr("steersman_cli.top.load.fetch_json", fetch)
    monkeypatch.setattr("time.sleep", float)
    return responses


def test_load_is_difference_of_two_samples() -> None:
    (load,) = controller_loads([decoded(sample())], [decoded(later())], 2.0)
    assert (load.reconciles_per_second, load.errors_per_second, load.mean_seconds) == (3.0, 0.5, 0.5)
    assert (load.waiting, load.oldest_seconds, load.delayed, load.busy, load.errors) == (7, 1.5, 5, 1, 3)
    assert [(each.name, each.seconds) for each in load.slow] == [("green", 7.0), ("blue", 2.5)]


def test_load_of_restarted_operator_starts_at_zero() -> None:
    restarted = sample(reconciles={"success": 4, "error": 0}, reconcile_seconds=1.0, running=[], slowest=[])
    (load,) = controller_loads([decoded(later())], [decoded(restarted)], 2.0)
    assert (load.reconciles_per_second, load.errors_per_second, load.mean_seconds) == (2.0, 0.0, 0.25)


@pytest.mark.parametrize(
    "restarted",
    [
        {"reconciles": {"success": 400, "error": 0}, "reconcile_seconds": 100.0},
        {"reconciles": {"success": 400, "error": 9}, "reconcile_seconds": 0.1},
        {"reconciles": {"success": 1, "error": 9}, "reconcile_seconds": 100.0},
    ],
)
def test_busy_restarted_operator_has_no_negative_rates(restarted: dict[str, Any]) -> None:
    before, after = decoded(later()), decoded(sample(running=[], slowest=[], **restarted))
    idle = decoded(sample(name="idle"))
    load, other = controller_loads([before, idle], [after, idle], 2.0)
    total = sum(restarted["reconciles"].values())
    assert (load.reconciles_per_second, load.mean_seconds) == (total / 2, restarted["reconcile_seconds"] / total)
    assert load.errors_per_second == restarted["reconciles"]["error"] / 2
    # All controllers are of one process.
    assert other.reconciles_per_second > 0


def test_view_fits_80_columns_and_says_why() -> None:
    loads = controller_loads([decoded(sample())], [decoded(later(started=False))], 2.0)
    console = Console(width=80, record=True, file=StringIO())
    console.print(render(loads, limit=5, note="unreachable"))
    lines = console.export_text().splitlines()
    assert max(map(len, lines)) <= 80
    header, controller = lines[0].split(), lines[1].split()
    assert dict(zip(header[:4], controller[:4], strict=True)) == {
        "controller": "webapp",
        "state": "standby",
        "busy": "1/2",
        "queue": "7",
    }
    text = " ".join(" ".join(lines).split())
    assert "7.000 webapp shop/green running updated Deployment shop/blue: status.replicas" in text
    assert "error, Conflict" in text
    assert text.endswith("unreachable")


def test_view_limits_slow_reconciles() -> None:
    loads = controller_loads([], [decoded(sample())], 2.0)
    console = Console(width=80, record=True, file=StringIO())
    console.print(render(loads, limit=0))
    assert "green" not in console.export_text()


@pytest.mark.usefixtures("endpoint")
def test_top_json_has_load() -> None:
    result = CliRunner().invoke(app, ["top", "-o", "json"])
    assert result.exit_code == 0
    (load,) = json.loads(result.output)
    assert (load["name"], load["errors"], load["slow"][0]["result"]) == ("webapp", 3, None)


@pytest.mark.usefixtures("endpoint")
def test_top_without_terminal_prints_one_sample() -> None:
    result = CliRunner().invoke(app, ["top"], env={"COLUMNS": "80"})
    assert result.exit_code == 0
    assert result.output.startswith("controller")


def test_top_of_older_operator_says_update(endpoint: list[Any]) -> None:
    del endpoint[0][0]["reconciles"]
    result = CliRunner().invoke(app, ["top", "--once"])
    assert result.exit_code == 2
    assert "update Steersman in the operator" in result.output


def test_top_of_unreachable_operator_says_how_to_start_it() -> None:
    result = CliRunner().invoke(app, ["top", "--once", "--url", "http://127.0.0.1:1"])
    assert result.exit_code == 2
    assert "Other operators need --debug-bind-address=127.0.0.1:8082" in result.output


def test_top_of_other_scheme_is_rejected() -> None:
    result = CliRunner().invoke(app, ["top", "--url", "file:///etc/passwd"])
    assert result.exit_code == 2
    assert "must start with http:// or https://" in result.output


class IdleReconciler(RequestReconciler[Widget]):
    async def reconcile(self, request: Request) -> Result:
        return Result()


@virtual_time
async def test_sample_decodes_page_of_a_manager() -> None:
    world = ControllerEnv()
    world.create_widgets("a", "b")
    manager = Manager(world.server, ManagerOptions(), world.runtime)
    manager.controller(Widget).complete(IdleReconciler)
    async with running(manager):
        await world.runtime.clock.sleep(1)
        response = await DebugHandler(manager.controllers, manager.cache).handle(
            ServerRequest("/debug/controllers", "limit=10")
        )
    (found,) = msgspec.json.decode(response.body, type=list[ControllerSample])
    (load,) = controller_loads([], [found], 1.0)
    assert (load.name, load.state, len(load.slow)) == ("widget", "active", 2)
    assert load.slow[0].triggers[0]["object"].startswith("orders/")
