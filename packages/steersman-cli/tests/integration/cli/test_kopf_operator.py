"""Removal of the marks of a real Kopf operator."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import venv
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from steersman.client import Client
from steersman.errors import NotFound
from steersman.meta import ApiResource, ObjectKey, unstructured
from steersman_cli.app import app
from steersman_testing.envtest import Envtest

REQUIREMENTS = Path(__file__).parents[5] / "benchmarks" / "kopf_operator" / "requirements.txt"
BUCKET = ApiResource("kopf.example.com", "v1", "Bucket", "buckets")
BUCKETS = unstructured(BUCKET)
KEY = ObjectKey("default", "photos")
OPERATOR = """
import kopf

@kopf.on.create("kopf.example.com", "v1", "buckets")
def made(patch, **_):
    patch.status["phase"] = "Ready"

@kopf.on.delete("kopf.example.com", "v1", "buckets")
def removed(**_):
    pass
"""


@pytest.fixture(scope="module")
def kopf_python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Interpreter of an environment with Kopf."""
    directory = tmp_path_factory.mktemp("kopf") / "venv"
    venv.create(directory, with_pip=True)
    python = directory / "bin" / "python"
    command = [python, "-m", "pip", "install", "--quiet", "--no-deps", "--require-hashes", "-r", REQUIREMENTS]
    subprocess.run(list(map(str, command)), check=True)
    return python


@asynccontextmanager
async def kopf_running(python: Path, source: Path, kubeconfig: Path) -> AsyncGenerator[None]:
    process = await asyncio.create_subprocess_exec(
        *(str(python), "-m", "kopf", "run", "--namespace", "default", str(source)),
        env={**os.environ, "KUBECONFIG": str(kubeconfig)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        yield
    finally:
        process.send_signal(signal.SIGTERM)
        await process.wait()


async def marked_bucket(client: Client) -> None:
    """Create a bucket, and wait until Kopf has handled it."""
    await client.create(BUCKETS.of({"metadata": {"name": KEY.name, "namespace": KEY.namespace}, "spec": {}}))
    async with asyncio.timeout(60):
        while (await client.get(BUCKETS, KEY)).content.get("status", {}).get("phase") != "Ready":
            await asyncio.sleep(0.1)


def migrate(source: Path, kubeconfig: Path, *options: str) -> list[dict[str, object]]:
    arguments = ["migrate", "kopf", str(source), "--cluster", *options, "-o", "json", "--kubeconfig", str(kubeconfig)]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


async def test_deletion_after_kopf_needs_the_removal(envtest: Envtest, kopf_python: Path, tmp_path: Path) -> None:
    source = tmp_path / "buckets.py"
    source.write_text(OPERATOR)
    schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    version: dict[str, Any] = {
        "name": "v1",
        "served": True,
        "storage": True,
        "schema": schema,
        "subresources": {"status": {}},
    }
    names = {"plural": "buckets", "kind": "Bucket"}
    spec = {"group": BUCKET.group, "scope": "Namespaced", "names": names, "versions": [version]}
    envtest.install_crds(
        {
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {"name": "buckets.kopf.example.com"},
            "spec": spec,
        }
    )
    async with envtest.client() as client:
        async with kopf_running(kopf_python, source, envtest.kubeconfig):
            await marked_bucket(client)
        await client.delete(BUCKETS, KEY)
        assert (await client.get(BUCKETS, KEY)).metadata.deletion_timestamp is not None, "the finalizer blocks it"
        [listed] = await asyncio.to_thread(migrate, source, envtest.kubeconfig)
        assert listed["finalizers"] and listed["annotations"] and not listed["removed"]
        [removed] = await asyncio.to_thread(migrate, source, envtest.kubeconfig, "--remove")
        assert removed["removed"]
        with pytest.raises(NotFound):
            await client.get(BUCKETS, KEY)
