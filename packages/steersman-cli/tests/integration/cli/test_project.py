"""A scaffolded project runs without edits. End-to-end tests cover the installed packages."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
from asyncio.subprocess import PIPE, STDOUT, Process
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import yaml

from framework_support.crd_foreign import foreign
from framework_support.projects import CREATE, INIT, create_project, prepare_directory
from steersman.client import Client
from steersman.errors import NotFound
from steersman.meta import ApiResource, ObjectKey, unstructured
from steersman_cli.apply import Applier
from steersman_manifests.manifest_files import load_manifests
from steersman_testing.envtest import Envtest
from steersman_testing.envtest.ports import reserve_port

DATABASE_USER = unstructured(ApiResource("mygroup.handsomeguy.cn", "v1alpha1", "DatabaseUser", "databaseusers"))
TIMEOUT_SECONDS = 60

pytestmark = pytest.mark.xdist_group("project")


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the project of the tutorial."""
    return create_project(tmp_path_factory.mktemp("work") / "databaseuser", INIT, CREATE)


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    return prepare_directory(tmp_path_factory.mktemp("programs") / "bin", "databaseuser")


def run_checked(environment: dict[str, str], root: Path, *command: str, **more: str) -> str:
    """Run a command, which must succeed, and return its output."""
    completed = subprocess.run(
        command, cwd=root, env={**environment, **more}, capture_output=True, text=True, check=False
    )
    assert completed.returncode == 0, f"{command}: {completed.stdout}{completed.stderr}"
    return completed.stdout + completed.stderr


@pytest.mark.requirement("design/scaffold")
def test_scaffolded_project_tests_pass(environment: dict[str, str], project: Path, envtest: Envtest) -> None:
    output = run_checked(environment, project, "make", "test", "test-integration")
    assert "2 passed" in output
    assert "1 passed" in output
    assert "skipped" in run_checked(environment, project, "make", "test-e2e", KUBECONFIG="", HOME=str(project))


@pytest.mark.requirement("design/generated-code", "overview/project-commands", "user/scaffold")
async def test_scaffolded_operator_runs(environment: dict[str, str], project: Path, envtest: Envtest) -> None:
    with reserve_port() as reserved:
        debug = f"127.0.0.1:{reserved.getsockname()[1]}"
    kubeconfig = envtest.kubeconfig
    kubeconfig_arguments = ("--kubeconfig", str(kubeconfig))
    before = await asyncio.to_thread(run_steersman, environment, project, "doctor", *kubeconfig_arguments)
    assert before.returncode == 1
    assert "not installed" in before.stdout
    await asyncio.to_thread(run_checked, environment, project, "make", "install", KUBECONFIG=str(kubeconfig))
    after = await asyncio.to_thread(
        run_steersman, environment, project, "doctor", *kubeconfig_arguments, "-o", "yaml"
    )
    assert "installed and served" in after.stdout
    async with running_operator(environment, project, kubeconfig, debug) as operator, envtest.client() as client:
        await read_until(operator, b"cache synced")
        sample = yaml.safe_load((project / "config/samples/mygroup_v1alpha1_databaseuser.yaml").read_text())
        key = ObjectKey("default", sample["metadata"]["name"])
        sample["metadata"]["namespace"] = key.namespace
        await client.apply(DATABASE_USER.of(sample))
        assert await wait_ready(client, key)
        explained = await asyncio.to_thread(
            run_steersman,
            environment,
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
        text = controller.read_text()
        controller.write_text(text.replace("The cluster matches the spec.", "The cluster is ready."))
        await read_until(operator, b"changed: src/databaseuser/controllers/databaseuser.py; restarting")
        await read_until(operator, b"cache synced")
        refused = await asyncio.to_thread(run_steersman, environment, project, "uninstall", *kubeconfig_arguments)
        assert refused.returncode == 2
        assert "objects exist: 1 databaseusers" in refused.stderr
        await client.delete(DATABASE_USER, key)
        operator.send_signal(signal.SIGINT)
        await asyncio.wait_for(operator.wait(), TIMEOUT_SECONDS)
        assert operator.returncode == 0
    removed = await asyncio.to_thread(run_steersman, environment, project, "uninstall", *kubeconfig_arguments)
    assert "databaseusers.mygroup.handsomeguy.cn deleted" in removed.stdout


def run_steersman(environment: dict[str, str], project: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a command and return the completed process."""
    command = ["steersman", *arguments]
    return subprocess.run(command, cwd=project, env=environment, capture_output=True, text=True, check=False)


@asynccontextmanager
async def running_operator(
    environment: dict[str, str], project: Path, kubeconfig: Path, debug: str
) -> AsyncGenerator[Process]:
    """Start ``steersman run``."""
    endpoints = ("--metrics-bind-address", "0", "--health-probe-bind-address", "0", "--debug-bind-address", debug)
    command = ("steersman", "run", "--kubeconfig", str(kubeconfig), *endpoints)
    process = await asyncio.create_subprocess_exec(
        *command, cwd=project, env={**environment, "PYTHONUNBUFFERED": "1"}, stdout=PIPE, stderr=STDOUT
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.terminate()
            await process.wait()


async def read_until(process: Process, expected: bytes) -> None:
    """Read the output until it contains ``expected``."""
    assert process.stdout is not None
    output = b""
    async with asyncio.timeout(TIMEOUT_SECONDS):
        while expected not in output:
            line = await process.stdout.readline()
            assert line, output.decode()
            output += line


async def wait_ready(client: Client, key: ObjectKey) -> bool:
    async with asyncio.timeout(TIMEOUT_SECONDS):
        while True:
            try:
                found = (await client.get(DATABASE_USER, key)).to_dict()
            except NotFound:
                found = {}
            conditions = found.get("status", {}).get("conditions", [])
            if any((c["type"], c["status"]) == ("Ready", "True") for c in conditions):
                return True
            await asyncio.sleep(0.05)


async def test_scaffolded_optional_manifests_are_valid(project: Path, envtest: Envtest) -> None:
    """The manifests match the CRDs of the Prometheus operator and cert-manager."""
    manifests = [
        manifest
        for name in ("prometheus/monitor", "certmanager/certificate", "network-policy/policy")
        for manifest in load_manifests(project / f"config/{name}.yaml")
    ]
    assert [m["kind"] for m in manifests] == ["PodMonitor", "Issuer", "Certificate", "NetworkPolicy"]
    definitions = [foreign()[m["kind"]] for m in manifests if m["kind"] != "NetworkPolicy"]
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "databaseuser-system"}}
    async with envtest.client() as client:
        await Applier(client).apply([*definitions, namespace])
        # The API server rejects unknown fields.
        await Applier(client).apply(manifests)
        await Applier(client).delete([*manifests, *definitions])
