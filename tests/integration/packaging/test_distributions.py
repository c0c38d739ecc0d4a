"""The wheels of this checkout, installed into virtual environments of their own."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from scripts.versions import root_version

from framework_support import runtime_only_operator
from framework_support.package_index import build_wheels
from framework_support.runtime_only_operator import Widget, setup, webhook_options
from steersman.manager import Manager, ManagerOptions
from steersman.meta import ObjectKey, unstructured
from steersman_manifests.crd import definition
from steersman_testing import InMemoryApiServer
from steersman_testing.envtest import Envtest

pytestmark = [pytest.mark.timeout(400), pytest.mark.xdist_group("distributions")]

CHECKOUT = Path(__file__).parents[3]
FRAMEWORK = {"steersman", "steersman-cel", "steersman-cli", "steersman-manifests", "steersman-testing"}
EXTRAS = "[tracing,uvloop,webhooks]"
READY_TIMEOUT_SECONDS = 60
# Prints the public names that cannot be imported, the modules that should be absent, and pytest's plugins.
INSPECTION = """
import importlib, json, pkgutil
from importlib.metadata import entry_points
from importlib.util import find_spec

import steersman

failures, names = [], 0
modules = ["steersman", *(m.name for m in pkgutil.walk_packages(steersman.__path__, "steersman."))]
for name in modules:
    try:
        module = importlib.import_module(name)
        for public in getattr(module, "__all__", ()):
            getattr(module, public)
            names += 1
    except Exception as error:
        failures.append(f"{name}: {error!r}")
absent = (
    *("cel_expr_python", "copier", "hypothesis", "pytest"),
    *("steersman_cel", "steersman_cli", "steersman_manifests", "steersman_testing"),
)
print(json.dumps({
    "failures": failures,
    "names": names,
    "present": [name for name in absent if find_spec(name)],
    "pytest_plugins": [e.value for e in entry_points(group="pytest11")],
    "scripts": [e.name for e in entry_points(group="console_scripts") if e.value.startswith("steersman")],
}))
"""


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Directory of all wheels of the framework."""
    directory = tmp_path_factory.mktemp("wheels")
    build_wheels(directory)
    return directory


@pytest.fixture(scope="module")
def runtime_python(wheels: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Python of an environment with the wheel ``steersman`` and its dependencies only."""
    environment = tmp_path_factory.mktemp("runtime")
    subprocess.run([sys.executable, "-m", "venv", str(environment)], check=True)
    python = environment / "bin/python"
    (wheel,) = wheels.glob("steersman-*.whl")
    pip(python, "install", "--quiet", f"steersman{EXTRAS} @ {wheel.as_uri()}")
    return python


def pip(python: Path, *arguments: str) -> None:
    command = [str(python), "-m", "pip", "--disable-pip-version-check", *arguments]
    completed = subprocess.run(command, capture_output=True, text=True, check=False)
    assert completed.returncode == 0, completed.stderr


def test_wheels_have_one_version(wheels: Path) -> None:
    built = {tuple(path.name.split("-")[:2]) for path in wheels.glob("*.whl")}
    assert built == {(name.replace("-", "_"), root_version(CHECKOUT)) for name in FRAMEWORK}


def test_runtime_wheel_imports_without_other_distributions(runtime_python: Path) -> None:
    completed = subprocess.run(
        [str(runtime_python), "-I", "-c", INSPECTION], capture_output=True, text=True, check=True
    )
    found: dict[str, Any] = json.loads(completed.stdout)
    assert found["names"] > 200
    assert {**found, "names": 0} == {
        "failures": [],
        "names": 0,
        "present": [],
        "pytest_plugins": [],
        "scripts": [],
    }


async def test_runtime_wheel_runs_operator_with_webhook(runtime_python: Path, envtest: Envtest) -> None:
    serving = envtest.webhooks
    manager = Manager(InMemoryApiServer(), ManagerOptions(webhooks=webhook_options()))
    setup(manager)
    envtest.install_crds(definition(Widget))
    arguments = (f"{serving.host}:{serving.port}", str(serving.directory), str(envtest.kubeconfig))
    process = await asyncio.create_subprocess_exec(
        *(str(runtime_python), "-I", runtime_only_operator.__file__, *arguments), stderr=asyncio.subprocess.PIPE
    )
    try:
        await wait_listening(serving.host, serving.port)
        await asyncio.to_thread(envtest.install_webhooks, *manager.webhooks.configurations(webhook_options()))
        kind = unstructured(Widget.api_resource)
        key = ObjectKey("default", "one")
        async with envtest.client() as client, asyncio.timeout(READY_TIMEOUT_SECONDS):
            created = await client.create(
                kind.of({"metadata": {"name": key.name, "namespace": key.namespace}, "spec": {}})
            )
            assert created.to_dict()["spec"] == {"size": 3}
            while "status" not in (found := (await client.get(kind, key)).to_dict()):
                assert process.returncode is None
                await asyncio.sleep(0.1)
            assert found["status"]["size"] == 3
            await client.delete(kind, key)
    finally:
        if process.returncode is None:
            process.terminate()
        _, errors = await process.communicate()
    assert process.returncode == 0, errors.decode()


async def wait_listening(host: str, port: int) -> None:
    async with asyncio.timeout(READY_TIMEOUT_SECONDS):
        while True:
            try:
                _, writer = await asyncio.open_connection(host, port)
            except ConnectionRefusedError:
                await asyncio.sleep(0.1)
            else:
                writer.close()
                return


def test_extras_install_the_other_distributions(wheels: Path, runtime_python: Path, tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    options = ("--quiet", "--dry-run", "--ignore-installed", "--find-links", str(wheels), "--report", str(report))
    pip(runtime_python, "install", *options, f"steersman[cli,testing]=={root_version(CHECKOUT)}")
    found: dict[str, Any] = json.loads(report.read_text())
    installed = {entry["metadata"]["name"]: entry["metadata"]["version"] for entry in found["install"]}
    assert {name: installed.get(name) for name in FRAMEWORK} == dict.fromkeys(FRAMEWORK, root_version(CHECKOUT))
    assert {"copier", "hypothesis", "cel-expr-python"} <= set(installed)
