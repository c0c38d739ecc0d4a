"""From an empty folder to a running operator, with Steersman installed as users have it, and nothing edited."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import subprocess
import sys
import sysconfig
import venv
from asyncio.subprocess import PIPE, STDOUT, Process
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import yaml

from projects import CREATE, INIT
from steersman.client import Client
from steersman.errors import NotFound
from steersman.meta import ApiResource, ObjectKey, unstructured
from steersman.testing.envtest import Envtest
from steersman.testing.envtest.ports import reserve_port

ROOT = Path(__file__).parents[3]
DATABASE_USER = unstructured(ApiResource("mygroup.handsomeguy.cn", "v1alpha1", "DatabaseUser", "databaseusers"))
SECONDS = 60


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment with Steersman's wheel; what the wheel needs is that of the environment of these tests."""
    home = tmp_path_factory.mktemp("installed")
    wheel = ("wheel", "--quiet", "--no-deps", "--no-build-isolation", "--wheel-dir", str(home), str(ROOT))
    subprocess.run([sys.executable, "-m", "pip", *wheel], check=True, env=alone())
    venv.create(home / "venv", symlinks=True)
    python = home / "venv/bin/python"
    (name,) = home.glob("steersman-*.whl")
    install = ("install", "--quiet", "--no-deps", "--no-index", str(name))
    subprocess.run([sys.executable, "-m", "pip", "--python", str(python), *install], check=True, env=alone())
    (packages,) = (home / "venv/lib").glob("python*/site-packages")
    # Read as a path alone: what is installed there in editable form stays unknown.
    (packages / "needed.pth").write_text(sysconfig.get_path("purelib"))
    return home / "venv"


@pytest.fixture(scope="module")
def project(installed: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The project of the tutorial."""
    root = tmp_path_factory.mktemp("work") / "databaseuser"
    root.mkdir()
    for command in (INIT, CREATE):
        run(installed, root, "steersman", *command)
    # As `make` leaves it once all is installed: here everything is.
    (installed / ".databaseuser").touch()
    return root


def alone(**more: str) -> dict[str, str]:
    """An environment in which nothing leads to this repository."""
    return {k: v for k, v in os.environ.items() if k != "PYTHONPATH" and not k.startswith("PYTEST")} | more


def run(installed: Path, root: Path, program: str, *arguments: str, **environment: str) -> str:
    """What a program of that environment says, which must succeed."""
    path = f"{installed / 'bin'}{os.pathsep}{os.environ['PATH']}"
    variables = alone(VIRTUAL_ENV=str(installed), PATH=path, **environment)
    program = shutil.which(program, path=path) or program
    ended = subprocess.run(
        [program, *arguments], cwd=root, env=variables, capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, f"{program} {arguments}: {ended.stdout}{ended.stderr}"
    return ended.stdout + ended.stderr


def test_it_is_the_wheel_that_is_used(installed: Path) -> None:
    found = run(installed, installed, "python", "-c", "import steersman; print(steersman.__file__)")
    assert str(installed) in found


def test_its_tests_pass_at_once(installed: Path, project: Path, envtest: Envtest) -> None:
    assert "2 passed" in run(installed, project, "make", "test")
    assert "1 passed" in run(installed, project, "make", "test-integration")
    assert "skipped" in run(installed, project, "make", "test-e2e", KUBECONFIG="", HOME=str(project))


async def test_the_operator_runs(installed: Path, project: Path, envtest: Envtest) -> None:
    with reserve_port() as reserved:
        debug = f"127.0.0.1:{reserved.getsockname()[1]}"
    kubeconfig = envtest.kubeconfig
    at = ("--kubeconfig", str(kubeconfig))
    before = await asyncio.to_thread(steersman, installed, project, "doctor", *at)
    assert before.returncode == 1
    assert "it is not installed" in before.stdout
    await asyncio.to_thread(run, installed, project, "make", "install", KUBECONFIG=str(kubeconfig))
    after = await asyncio.to_thread(steersman, installed, project, "doctor", *at, "-o", "yaml")
    assert "it is installed, and served" in after.stdout
    async with running(installed, project, kubeconfig, debug) as operator, envtest.client() as client:
        await until(operator, b"cache synced")
        sample = yaml.safe_load((project / "config/samples/mygroup_v1alpha1_databaseuser.yaml").read_text())
        key = ObjectKey("default", sample["metadata"]["name"])
        sample["metadata"]["namespace"] = key.namespace
        await client.apply(DATABASE_USER.of(sample))
        assert await until_ready(client, key)
        explained = await asyncio.to_thread(
            steersman,
            installed,
            project,
            "explain",
            "databaseuser",
            str(key),
            "--url",
            f"http://{debug}",
            "-o",
            "json",
        )
        reasons = {t["reason"] for r in json.loads(explained.stdout)["recent"] for t in r["triggers"]}
        assert reasons & {"created", "added", "initial"}, explained.stdout
        controller = project / "src/databaseuser/controllers/databaseuser.py"
        controller.write_text(controller.read_text().replace("all is as it should be", "all is well"))
        await until(operator, b"changed: src/databaseuser/controllers/databaseuser.py; starting anew")
        await until(operator, b"cache synced")
        refused = await asyncio.to_thread(steersman, installed, project, "uninstall", *at)
        assert refused.returncode == 2
        assert "there are still 1 databaseusers" in refused.stderr
        await client.delete(DATABASE_USER, key)
        operator.send_signal(signal.SIGINT)
        await asyncio.wait_for(operator.wait(), SECONDS)
        assert operator.returncode == 0
    removed = await asyncio.to_thread(steersman, installed, project, "uninstall", *at)
    assert "databaseusers.mygroup.handsomeguy.cn deleted" in removed.stdout


def steersman(installed: Path, project: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """How a command ends, whatever it says."""
    command = [str(installed / "bin/steersman"), *arguments]
    return subprocess.run(command, cwd=project, env=alone(), capture_output=True, text=True, check=False)


@asynccontextmanager
async def running(installed: Path, project: Path, kubeconfig: Path, debug: str) -> AsyncGenerator[Process]:
    """``steersman run``."""
    endpoints = ("--metrics-bind-address", "0", "--health-probe-bind-address", "0", "--debug-bind-address", debug)
    command = (str(installed / "bin/steersman"), "run", "--kubeconfig", str(kubeconfig), *endpoints)
    process = await asyncio.create_subprocess_exec(
        *command, cwd=project, env=alone(PYTHONUNBUFFERED="1"), stdout=PIPE, stderr=STDOUT
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.terminate()
            await process.wait()


async def until(process: Process, words: bytes) -> None:
    """Reads what it says until it says ``words``."""
    assert process.stdout is not None
    said = b""
    async with asyncio.timeout(SECONDS):
        while words not in said:
            line = await process.stdout.readline()
            assert line, said.decode()
            said += line


async def until_ready(client: Client, key: ObjectKey) -> bool:
    async with asyncio.timeout(SECONDS):
        while True:
            try:
                found = (await client.get(DATABASE_USER, key)).to_dict()
            except NotFound:
                found = {}
            conditions = found.get("status", {}).get("conditions", [])
            if any((c["type"], c["status"]) == ("Ready", "True") for c in conditions):
                return True
            await asyncio.sleep(0.05)
