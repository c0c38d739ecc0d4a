"""Run the Python code of the README."""

from __future__ import annotations

import asyncio
import importlib
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from steersman.api.apps_v1 import Deployment
from steersman.api.core_v1 import Service
from steersman.client import Client
from steersman.manager import Manager
from steersman.meta import ObjectKey, ObjectMeta
from steersman_manifests.crd import definition
from steersman_manifests.rbac import cluster_role
from steersman_testing import InMemoryApiServer, virtual_runtime, virtual_time

ROOT = Path(__file__).parents[3]
FENCE = re.compile(r"^```python *(?P<options>[^\n]*)\n(?P<code>.*?)^```$", re.MULTILINE | re.DOTALL)

WriteModule = Callable[[str, str, str], Any]


@pytest.fixture
def module_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[WriteModule]:
    """Write the blocks of a page into a module, and import it."""
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    written: list[str] = []

    def write(name: str, page: str, options: str) -> Any:
        found = [m["code"] for m in FENCE.finditer((ROOT / page).read_text()) if m["options"] == options]
        assert found, f"{page} has no Python block with {options!r}"
        (tmp_path / f"{name}.py").write_text("\n\n".join(found))
        written.append(name)
        return importlib.import_module(name)

    yield write
    for name in written:
        del sys.modules[name]


def granted_permissions(manager: Manager) -> dict[str, list[str]]:
    """Return the verbs of the generated role by resource."""
    rules = cluster_role("documented", manager.permissions)["rules"]
    return {resource: rule["verbs"] for rule in rules for resource in rule["resources"]}


def test_readme_class_generates_schema(module_of: WriteModule) -> None:
    kind = module_of("webapp", "README.md", "").WebApp
    version = definition(kind)["spec"]["versions"][0]
    spec = version["schema"]["openAPIV3Schema"]["properties"]["spec"]
    assert spec["required"] == ["image"]
    assert spec["properties"]["replicas"] == {
        "description": "How many pods to run.",
        "type": "integer",
        "format": "int64",
        "minimum": 0,
        "maximum": 100,
        "default": 1,
    }
    assert version["subresources"]["scale"]["statusReplicasPath"] == ".status.readyReplicas"


@virtual_time
async def test_readme_operator_reconciles_web_app(module_of: WriteModule) -> None:
    page = module_of("webapp", "README.md", "")
    runtime = virtual_runtime()
    server = InMemoryApiServer(runtime)
    server.register(page.WebApp)
    manager = Manager(server, runtime=runtime)
    page.setup(manager)
    running = asyncio.create_task(manager.run())
    user, shop = Client(server, field_manager="user"), ObjectKey("default", "shop")

    metadata = ObjectMeta(name=shop.name, namespace=shop.namespace)
    await user.create(page.WebApp(metadata=metadata, spec=page.WebAppSpec(image="shop:1", replicas=2)))
    await runtime.clock.sleep(1)
    deployment = await user.get(Deployment, shop)
    assert deployment.spec is not None
    assert deployment.spec.replicas == 2
    assert (await user.get(page.WebApp, shop)).status.observed_generation == 1

    await user.delete(Service, shop)
    await runtime.clock.sleep(1)
    assert (await user.get(Service, shop)).controller_reference is not None

    await user.delete(page.WebApp, shop)
    await runtime.clock.sleep(1)
    assert server.read(Deployment, shop) is None

    manager.stop()
    await running
    assert {"create", "patch", "watch"} <= set(granted_permissions(manager)["deployments"])
