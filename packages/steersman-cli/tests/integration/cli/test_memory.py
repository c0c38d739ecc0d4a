"""Memory of a scaffolded operator, compared with the limit in its Deployment."""

from __future__ import annotations

import asyncio
import sys
from asyncio.subprocess import DEVNULL
from pathlib import Path
from typing import Any

import pytest
import yaml

from framework_support.projects import CREATE, INIT, create_project, ours
from steersman.client import Client
from steersman.meta import ApiResource, ObjectKey, unstructured
from steersman.meta.quantity import Quantity
from steersman_testing.envtest import Envtest

OBJECTS = 2_000
CONCURRENT_WRITES = 16
TIMEOUT_SECONDS = 240
DATABASE_USER = unstructured(ApiResource("mygroup.handsomeguy.cn", "v1alpha1", "DatabaseUser", "databaseusers"))


@pytest.mark.requirement("overview/limits")
@pytest.mark.timeout(TIMEOUT_SECONDS + 60)
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
async def test_operator_memory_with_2000_objects_is_below_limit(envtest: Envtest, tmp_path: Path) -> None:
    project = create_project(tmp_path / "databaseuser", INIT, CREATE)
    envtest.install_crds(project / "config/crd/bases")
    endpoints = ("--metrics-bind-address", "127.0.0.1:0", "--health-probe-bind-address", "127.0.0.1:0")
    async with envtest.client() as client, asyncio.timeout(TIMEOUT_SECONDS):
        await create_objects(client)
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "databaseuser", "--kubeconfig", str(envtest.kubeconfig), *endpoints),
            cwd=project,
            env=ours(project / "src"),
            # It logs each write, which would fill a pipe.
            stdout=DEVNULL,
            stderr=DEVNULL,
        )
        try:
            await wait_all_ready(client)
            resident = peak_resident_bytes(process.pid)
        finally:
            process.terminate()
            await process.wait()
            for position in range(OBJECTS):
                await client.delete(DATABASE_USER, ObjectKey("default", f"memory-{position}"))
    assert resident < memory_limit(project), f"{resident / 2**20:.0f} MiB"
    print(f"peak {resident / 2**20:.0f} MiB")  # noqa: T201


async def create_objects(client: Client) -> None:
    writes = asyncio.Semaphore(CONCURRENT_WRITES)

    async def create(position: int) -> None:
        metadata = {"name": f"memory-{position}", "namespace": "default"}
        async with writes:
            await client.create(DATABASE_USER.of({"metadata": metadata, "spec": {"foo": f"value {position}"}}))

    async with asyncio.TaskGroup() as group:
        for position in range(OBJECTS):
            group.create_task(create(position))


async def wait_all_ready(client: Client) -> None:
    """Wait until the operator has written the status of all objects."""
    while True:
        found = (await client.list(DATABASE_USER, namespace="default")).items
        if sum(bool(each.to_dict().get("status")) for each in found) >= OBJECTS:
            return
        await asyncio.sleep(1)


def peak_resident_bytes(pid: int) -> int:
    """Return the largest resident set size that the process has had."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    (line,) = (line for line in lines if line.startswith("VmHWM:"))
    return int(line.split()[1]) * 1024


def memory_limit(project: Path) -> int:
    deployment: Any = yaml.safe_load((project / "config/manager/deployment.yaml").read_text())
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    return int(Quantity(container["resources"]["limits"]["memory"]))
