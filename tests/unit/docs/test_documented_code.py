"""The Python in README and tutorials works with the framework as it is."""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from steersman.client import ClusterConfig, connect
from steersman.crd import definition
from steersman.manager import Manager
from steersman.meta import ObjectMeta, to_builtins
from steersman.rbac import cluster_role

ROOT = Path(__file__).parents[3]
FENCE = re.compile(r"^```python *(?P<options>[^\n]*)\n(?P<code>.*?)^```$", re.MULTILINE | re.DOTALL)
MODULES = ("webapp", "greetings", "greetings_role")

Write = Callable[[str, str, str], Any]


@pytest.fixture
def module_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Write]:
    """Writes the blocks of a page down in their order, as a reader would, and imports the file."""
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])

    def write(name: str, page: str, options: str) -> Any:
        found = [m["code"] for m in FENCE.finditer((ROOT / page).read_text()) if m["options"] == options]
        assert found, f"{page} has no Python block with {options!r}"
        (tmp_path / f"{name}.py").write_text("\n\n".join(found))
        return importlib.import_module(name)

    yield write
    for name in MODULES:
        sys.modules.pop(name, None)


def spec_schema(kind: Any) -> dict[str, Any]:
    return definition(kind)["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]


async def granted(setup: Callable[[Manager], None]) -> dict[str, list[str]]:
    """What the role allows, by resource."""
    async with connect(ClusterConfig(server="http://127.0.0.1")) as transport:
        manager = Manager(transport)
        setup(manager)
        rules = cluster_role("documented", manager.permissions)["rules"]
    return {resource: rule["verbs"] for rule in rules for resource in rule["resources"]}


async def test_the_web_app_of_the_readme(module_of: Write) -> None:
    page = module_of("webapp", "README.md", "")
    schema = spec_schema(page.WebApp)
    assert schema["required"] == ["image"]
    assert schema["properties"]["replicas"]["maximum"] == 100
    assert schema["properties"]["image"]["description"] == "The container image to run."

    app = page.WebApp(metadata=ObjectMeta(name="shop", namespace="web"), spec=page.WebAppSpec(image="shop:1"))
    deployment = to_builtins(page.deployment_for(app))
    assert deployment["spec"]["replicas"] == 1
    assert deployment["spec"]["template"]["spec"]["containers"] == [{"name": "web", "image": "shop:1"}]
    assert to_builtins(page.service_for(app))["spec"]["ports"] == [{"port": 80, "targetPort": 8080}]

    allowed = await granted(page.setup)
    assert {"create", "patch", "watch"} <= set(allowed["deployments"])
    assert allowed["webapps/status"] == ["patch"]


async def test_the_operator_of_the_tutorial(module_of: Write) -> None:
    page = module_of("greetings", "docs/tutorials/first-operator.md", 'title="greetings.py"')
    schema = spec_schema(page.Greeting)
    assert schema["required"] == ["recipient"]
    assert schema["properties"]["words"]["default"] == "Hello"

    greeting = page.Greeting(
        metadata=ObjectMeta(name="world", namespace="default"), spec=page.GreetingSpec(recipient="world")
    )
    assert to_builtins(page.config_map_for(greeting))["data"] == {"greeting": "Hello, world!"}

    role = await module_of("greetings_role", "docs/tutorials/first-operator.md", "").role()
    assert role["metadata"]["name"] == "greetings"
    assert (await granted(page.setup))["configmaps"] == ["get", "list", "watch", "create", "patch"]
