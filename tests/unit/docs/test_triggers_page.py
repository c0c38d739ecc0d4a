"""Run the operator of "Choose what triggers a reconcile"."""

from __future__ import annotations

import asyncio
import importlib
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from steersman.client import Client, MergePatch
from steersman.controller import Channel, Controller
from steersman.manager import Manager
from steersman.meta import ObjectKey, ObjectMeta, find_condition
from steersman_manifests.rbac import cluster_role
from steersman_testing import InMemoryApiServer, virtual_runtime, virtual_time

PAGE = Path(__file__).parents[3] / "docs" / "how-to" / "choose-what-triggers.md"
FIRST_USER, SECOND_USER = ObjectKey("default", "ann"), ObjectKey("default", "bob")


@pytest.fixture
def page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Any]:
    """Imports a file of the page, with its parts in their order."""

    def load(name: str) -> Any:
        parts = re.findall(rf'^```python title="{name}.py"\n(.*?)^```$', PAGE.read_text(), re.MULTILINE | re.DOTALL)
        (tmp_path / f"{name}.py").write_text("\n\n".join(parts))
        monkeypatch.delitem(sys.modules, name, raising=False)
        return importlib.import_module(name)

    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    return load


def create_load_balancer(server: InMemoryApiServer, name: str, target: str, user: str) -> None:
    server.load(
        {
            "apiVersion": "example.com/v1",
            "kind": "DatabaseUser",
            "metadata": {"name": name, "namespace": "default", "labels": {"target": target}},
            "spec": {"user": user, "passwordSecret": f"{name}-password"},
        }
    )
    metadata = {"name": f"{name}-password", "namespace": "default"}
    server.load({"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": {"password": "eA=="}})


@virtual_time
async def test_triggers_page_operator_reconciles_as_described(page: Callable[[str], Any]) -> None:
    users = page("users")
    runtime = virtual_runtime()
    server = InMemoryApiServer(runtime)
    server.register(users.DatabaseUser)
    create_load_balancer(server, "ann", "Orders", "ann")
    create_load_balancer(server, "bob", "stock", "bob")
    manager, alarms = Manager(server, runtime=runtime), Channel("alarms")
    controller: Controller = users.setup(manager, "orders", alarms)
    running = asyncio.create_task(manager.run())
    await runtime.clock.sleep(1)

    def why(name: str) -> list[list[str]]:
        return [[str(t) for t in info.triggers] for info in controller.recent() if info.request.name == name]

    async def ready(key: ObjectKey) -> str | None:
        status = (await Client(server).get(users.DatabaseUser, key)).status
        condition = find_condition(status.conditions, "Ready") if status else None
        return condition.message if condition else None

    assert await ready(FIRST_USER) == "the user can log in"
    assert await ready(SECOND_USER) is None

    client = Client(server, field_manager="user")
    before = len(why("ann"))
    await client.patch(
        users.Secret, ObjectKey("default", "ann-password"), MergePatch({"metadata": {"labels": {"rotated": "1"}}})
    )
    await runtime.clock.sleep(1)
    alarms.enqueue(FIRST_USER)
    await runtime.clock.sleep(1)
    assert why("ann")[before:] == [
        ["Secret default/ann-password updated: metadata.labels.rotated"],
        ["external by alarms"],
    ]

    await client.patch(users.DatabaseUser, FIRST_USER, MergePatch({"spec": {"user": "root"}}))
    await runtime.clock.sleep(1)
    assert await ready(FIRST_USER) == "spec.user: root is the database's own"
    await runtime.clock.sleep(700)
    assert ["external by timer"] in why("bob")

    rules = cluster_role("page", manager.permissions)["rules"]
    assert any("secrets" in rule["resources"] and "watch" in rule["verbs"] for rule in rules)
    manager.stop()
    await running


@virtual_time
async def test_triggers_page_optional_kind_is_applied(page: Callable[[str], Any]) -> None:
    monitoring = page("monitoring")
    server = InMemoryApiServer(runtime := virtual_runtime())
    server.register(monitoring.WebApp)
    server.load(
        monitoring.WebApp(metadata=ObjectMeta(name="shop", namespace="default"), spec=monitoring.WebAppSpec())
    )
    manager = Manager(server, runtime=runtime)
    monitoring.setup(manager)
    running = asyncio.create_task(manager.run())
    await runtime.clock.sleep(30)
    server.register(monitoring.ServiceMonitor.api_resource)
    await runtime.clock.sleep(30)
    assert server.read(monitoring.ServiceMonitor, ObjectKey("default", "shop")) is not None
    manager.stop()
    await running
