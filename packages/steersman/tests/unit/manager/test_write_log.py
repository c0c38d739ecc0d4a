"""One log line for each write that changed something."""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from typing import Any

import pytest
import structlog
from structlog.testing import capture_logs

from framework_support.controller_env import ControllerEnv, key, running
from framework_support.widget import Widget
from steersman.api.apply import core, meta
from steersman.api.core_v1 import ConfigMap, Secret
from steersman.client import MergePatch
from steersman.controller import Reconciler, Result
from steersman.manager import Manager, ManagerOptions
from steersman_testing import virtual_time


@pytest.fixture
def level() -> Generator[None]:
    """Restore the log level."""
    before = structlog.get_config()["wrapper_class"]
    yield
    structlog.configure(wrapper_class=before)


class Writer(Reconciler[Widget]):
    """Writes a Secret, which is not cached, a ConfigMap, and the status."""

    async def reconcile(self, obj: Widget) -> Result | None:
        names = meta.ObjectMeta(name=obj.metadata.name, namespace=obj.metadata.namespace)
        await self.client.apply(core.Secret(metadata=names, string_data={"password": "hunter2"}), owner=obj)
        await self.client.apply(core.ConfigMap(metadata=names, data={"depth": str(obj.spec.depth)}), owner=obj)
        await self.status(obj, depth=obj.spec.depth)
        self.events.normal(obj, "Written", "all is written")
        return Result(requeue_after=60)

    async def cleanup(self, obj: Widget) -> Result | None:
        await self.client.delete(Secret, obj.key)
        await self.client.patch(Widget, obj.key, MergePatch({"metadata": {"labels": {}}}))
        return None


def operator(world: ControllerEnv) -> Manager:
    manager = Manager(world.server, ManagerOptions(), world.runtime)
    manager.controller(Widget).owns(ConfigMap).complete(Writer)
    return manager


def writes(lines: list[Any]) -> list[tuple[str, ...]]:
    found = [line for line in lines if line["event"] == "object written"]
    assert all(line["object"] == "orders/a" and line["log_level"] == "info" for line in found)
    return [(line["verb"], line["kind"], line.get("subresource", ""), line["reason"]) for line in found]


@pytest.mark.requirement("programming/logs")
@virtual_time
async def test_changing_writes_are_logged_once_with_reason() -> None:
    world = ControllerEnv()
    world.create_widgets("a")
    with capture_logs() as lines:
        async with running(operator(world)):
            await asyncio.sleep(300)
            assert writes(lines) == [
                ("patch", "Widget", "", "Widget orders/a initial"),
                ("apply", "Secret", "", "Widget orders/a initial"),
                ("apply", "ConfigMap", "", "Widget orders/a initial"),
                ("apply", "Widget", "status", "Widget orders/a initial"),
            ]
            lines.clear()
            await world.client.patch(Widget, key("a"), MergePatch({"spec": {"depth": 2}}))
            await asyncio.sleep(1)
            reason = "Widget orders/a updated: spec.depth and 1 more"
            assert writes(lines)[:2] == [("apply", "ConfigMap", "", reason), ("apply", "Widget", "status", reason)]
            lines.clear()
            await world.client.delete(Widget, key("a"))
            await asyncio.sleep(1)
            assert [(verb, kind) for verb, kind, _, _ in writes(lines)] == [("delete", "Secret"), ("patch", "Widget")]
    assert "hunter2" not in str(lines)


@virtual_time
async def test_writes_are_not_logged_above_info(level: None) -> None:
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger("warning"))
    world = ControllerEnv()
    world.create_widgets("a")
    with capture_logs() as lines:
        async with running(operator(world)):
            await asyncio.sleep(1)
    assert [line for line in lines if line["component"] == "writes"] == []
