"""The operator in the docstring of ``steersman`` is complete, typed, and works."""

from __future__ import annotations

import ast
import asyncio
import importlib
import importlib.util
import inspect
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

import steersman
from steersman import Manager
from steersman.api.core_v1 import ConfigMap
from steersman.meta import ObjectKey
from steersman_testing import InMemoryApiServer, virtual_runtime, virtual_time


def tour_code() -> str:
    text = inspect.getdoc(steersman) or ""
    begin, end = text.index("    from typing import Annotated"), text.index("``steersman manifests greeting``")
    return textwrap.dedent(text[begin:end])


@pytest.fixture
def greeting(tmp_path: Path) -> Any:
    file = tmp_path / "greeting.py"
    file.write_text(tour_code())
    spec = importlib.util.spec_from_file_location("greeting", file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["greeting"] = module
    spec.loader.exec_module(module)
    return module


@pytest.mark.requirement("pattern/language")
@virtual_time
async def test_tour_creates_config_map(greeting: Any) -> None:
    runtime = virtual_runtime()
    server = InMemoryApiServer(runtime)
    server.register(greeting.Greeting)
    server.load(
        {
            "apiVersion": "example.com/v1",
            "kind": "Greeting",
            "metadata": {"name": "first", "namespace": "default"},
            "spec": {"name": "World"},
        }
    )
    manager = Manager(server, runtime=runtime)
    greeting.setup(manager)
    task = asyncio.create_task(manager.run())
    await asyncio.sleep(1)
    words = server.read(ConfigMap, ObjectKey("default", "first"))
    assert words is not None
    assert words.data["words"] == "Hello World"
    manager.stop()
    await task


def test_tour_has_at_most_40_lines() -> None:
    lines = [line for line in tour_code().splitlines() if line.strip()]
    assert len(lines) <= 40


def declared() -> dict[str, str]:
    """Return the public names and the packages that define them."""
    source = ast.parse(Path(steersman.__file__).read_text())
    imports = [node for node in ast.walk(source) if isinstance(node, ast.ImportFrom)]
    packages = [node for node in imports if node.module is not None and node.module.startswith("steersman.")]
    return {alias.name: package.module or "" for package in packages for alias in package.names}


def test_public_names_are_importable() -> None:
    packages = declared()
    assert sorted(packages) == sorted(steersman.__all__)
    for name, package in packages.items():
        assert getattr(steersman, name) is getattr(importlib.import_module(package), name)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        steersman.nothing  # type: ignore[attr-defined]  # noqa: B018


def test_package_import_loads_no_modules() -> None:
    program = "import sys; before = set(sys.modules); import steersman; print(*(set(sys.modules) - before))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=30)
    assert not any(name.startswith(("steersman.", "aiohttp", "msgspec")) for name in done.stdout.split())
