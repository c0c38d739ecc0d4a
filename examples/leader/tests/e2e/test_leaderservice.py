"""LeaderService in the cluster of the kubeconfig: ``make deploy IMG=…`` first.

The application and the store run in the image of the operator, which has Python.
"""

from __future__ import annotations

import asyncio
import json
import uuid
from asyncio.subprocess import PIPE
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from steersman import Client, FrozenDict, ObjectKey, ObjectMeta, connect, load_config
from steersman.api.apps_v1 import Deployment
from steersman.api.core_v1 import Namespace, Pod
from steersman.api.discovery_v1 import EndpointSlice
from steersman.errors import NotFound, SteersmanError

from leader_operator.api.v1.leaderservice import Leader, LeaderService
from manifests import leader_manifests

pytestmark = pytest.mark.e2e
OPERATOR = ObjectKey("leader-operator-system", "leader-operator")
SUPPORT = Path(__file__).parents[1] / "support"
SCRIPTS = ("store.py", "store_server.py", "application.py")
TIMEOUT_SECONDS = 240.0
ASK = "import urllib.request as u; print(u.urlopen('http://localhost:4040/leader').read().decode())"
STOP = "import os, signal, sys; [os.kill(int(p), getattr(signal, sys.argv[1])) for p in sys.argv[2:]]"
FIND = (
    "import os; print(*[p for p in os.listdir('/proc') if p.isdecimal() "
    "and b'-m\\0leader_operator.sidecar' in open(f'/proc/{p}/cmdline', 'rb').read()])"
)


class CommandFailed(Exception):
    """kubectl exited with an error."""


@asynccontextmanager
async def temporary_namespace(client: Client) -> AsyncGenerator[str]:
    """Create a namespace under the restricted Pod Security Standard."""
    name = f"e2e-leader-{uuid.uuid4().hex[:8]}"
    labels = FrozenDict({"pod-security.kubernetes.io/enforce": "restricted"})
    await client.create(Namespace(metadata=ObjectMeta(name=name, labels=labels)))
    try:
        yield name
    finally:
        await client.delete(Namespace, ObjectKey("", name))


async def kubectl(*arguments: str, stdin: str = "") -> str:
    process = await asyncio.create_subprocess_exec("kubectl", *arguments, stdin=PIPE, stdout=PIPE, stderr=PIPE)
    stdout, stderr = await process.communicate(stdin.encode())
    if process.returncode != 0:
        raise CommandFailed(f"kubectl {' '.join(arguments)}: {stderr.decode()}")
    return stdout.decode()


class Orders:
    """The application in one namespace."""

    def __init__(self, client: Client, namespace: str) -> None:
        self.client = client
        self.namespace = namespace

    async def python(self, pod: str, program: str, *arguments: str) -> str:
        """Run a program in the application's container of a pod."""
        command = ("python3", "-c", program, *arguments)
        return await kubectl("exec", "-n", self.namespace, pod, "-c", "app", "--", *command)

    async def log(self) -> list[tuple[str, str, int]]:
        """Return what the store has printed: result, writer and term."""
        lines = (await kubectl("logs", "-n", self.namespace, "store")).splitlines()
        return [(result, writer, int(term)) for _, result, writer, term in (line.split() for line in lines)]

    async def wait_for_writer(self, after: Leader | None = None) -> Leader:
        """Wait until a leader of a later term has written."""
        async with asyncio.timeout(TIMEOUT_SECONDS):
            while True:
                service = await self.client.get(LeaderService, ObjectKey(self.namespace, "orders"))
                leader = service.status.leader
                term = after.term if after is not None else 0
                writers = await self.log()
                if leader is not None and leader.term > term and ("acknowledged", leader.pod, leader.term) in writers:
                    return leader
                await asyncio.sleep(1)

    async def wait_until_published(self, leader: Leader) -> None:
        async with asyncio.timeout(60):
            while await self._published() != [leader.pod]:
                await asyncio.sleep(1)

    async def _published(self) -> list[str]:
        slices = await self.client.list(EndpointSlice, namespace=self.namespace)
        selected = [s for s in slices.items if s.metadata.labels.get("kubernetes.io/service-name") == "orders"]
        return [e.target_ref.name or "" for s in selected for e in s.endpoints if e.target_ref is not None]


@pytest.mark.requirement("pattern/leader")
async def test_leader_is_replaced_without_overlap() -> None:
    try:
        config = load_config()
    except SteersmanError as error:
        pytest.skip(f"no cluster: {error}")
    async with connect(config) as transport:
        client = Client(transport)
        try:
            operator = await client.get(Deployment, OPERATOR)
        except NotFound:
            pytest.skip("the operator is not deployed: make deploy IMG=…")
        image = operator.spec.template.spec.containers[0].image or ""
        async with temporary_namespace(client) as namespace:
            scripts = {p.name: p.read_text() for p in SUPPORT.glob("*.py")}
            documents = leader_manifests(
                image, {n: scripts[n] for n in ("store.py", "store_server.py", "application.py")}
            )
            items: dict[str, Any] = {"apiVersion": "v1", "kind": "List", "items": documents}
            await kubectl("apply", "-n", namespace, "-f", "-", stdin=json.dumps(items))
            await kubectl("wait", "-n", namespace, "--for=condition=Ready", "--timeout=120s", "pod/store")
            await run_faults(Orders(client, namespace))


async def run_faults(orders: Orders) -> None:
    first = await orders.wait_for_writer()
    await orders.wait_until_published(first)
    response = await orders.python(first.pod, ASK)
    assert json.loads(response)["leading"] is True

    await orders.client.delete(Pod, ObjectKey(orders.namespace, first.pod))
    second = await orders.wait_for_writer(first)
    await orders.wait_until_published(second)
    log = await orders.log()
    assert [entry for entry in log if entry[0] == "refused"] == []

    before = await restarts(orders, second.pod)
    assert before == 0, "the sidecar has ended an application that never led"
    # A frozen sidecar cannot end the application: the store refuses it.
    sidecar = (await orders.python(second.pod, FIND)).split()
    await orders.python(second.pod, STOP, "SIGSTOP", *sidecar)
    third = await orders.wait_for_writer(second)
    assert third.pod != second.pod
    # The thawed sidecar may end this program too, since it runs in the container of the application.
    with suppress(CommandFailed):
        await orders.python(second.pod, STOP, "SIGCONT", *sidecar)
    await orders.wait_until_published(third)
    terms = [term for result, _, term in await orders.log() if result == "acknowledged"]
    assert terms == sorted(terms)
    async with asyncio.timeout(TIMEOUT_SECONDS):
        while await restarts(orders, second.pod) == before:
            await asyncio.sleep(1)


async def restarts(orders: Orders, pod: str) -> int:
    """Return the restarts of the application's container."""
    found = await orders.client.get(Pod, ObjectKey(orders.namespace, pod))
    return sum(c.restart_count for c in found.status.container_statuses if c.name == "app")
