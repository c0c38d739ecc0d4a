"""``make demo-operator``: the operator of this example, without a cluster."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from rich.console import Console
from rich.table import Table
from steersman import Client, MergePatch, NotFound, ObjectKey, SteersmanError, connect, load_config
from steersman.api.apps_v1 import Deployment
from steersman.api.core_v1 import Service
from steersman.meta import ApiResource, unstructured

PROJECT = Path(__file__).parents[1]
DATABASE_CRD = PROJECT.parents[1] / "operators/databases/config/crd/bases/databases.steersman.dev_databases.yaml"
MYAPP = unstructured(ApiResource("example.com", "v1", "MyApp", "myapps"))
KEY = ObjectKey("default", "my-application")
SAMPLE: dict[str, Any] = {
    "metadata": {"name": KEY.name, "namespace": KEY.namespace},
    "spec": {"version": "1.2.0", "replicas": 3},
}
STEP_TIMEOUT_SECONDS = 30.0
START_TIMEOUT_SECONDS = 60.0
STOP_TIMEOUT_SECONDS = 20.0
POLL_INTERVAL_SECONDS = 0.02


class DemoFailed(Exception):
    """A step did not succeed in time."""


class DevProcess:
    """``steersman dev`` with its log file.

    Attributes:
        kubeconfig: kubeconfig of its API server.
    """

    def __init__(self, directory: Path) -> None:
        self.kubeconfig = directory / "kubeconfig"
        self._log = directory / "dev.log"
        options = ["--no-reload", "--kubeconfig", str(self.kubeconfig), "--crd", str(DATABASE_CRD)]
        with self._log.open("wb") as log:
            # With a session of its own, it receives Ctrl-C from here only.
            self._process = subprocess.Popen(
                [sys.executable, "-m", "steersman_cli", "dev", *options],
                cwd=PROJECT,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    @property
    def log(self) -> str:
        """Output so far."""
        return self._log.read_text(errors="replace")

    async def is_running(self) -> bool:
        """Return True if the operator's caches are complete."""
        if self._process.poll() is not None:
            raise DemoFailed(f"steersman dev ended with exit code {self._process.returncode}")
        return "cache synced" in self.log

    def recent_triggers(self) -> list[dict[str, Any]]:
        """Return why the newest reconciles ran, from the debug endpoint."""
        found = re.search(r"Debug endpoint\s+(http://\S+)/debug", self.log)
        if found is None:
            return []
        with urllib.request.urlopen(f"{found[1]}/debug/controllers/myapp/recent?limit=10", timeout=10) as response:
            return [trigger for run in json.load(response) for trigger in run["triggers"]]

    def stop(self) -> int:
        """Stop the operator and its API server; return the exit code."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGINT)
        try:
            return self._process.wait(STOP_TIMEOUT_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            return self._process.wait()


class Demo:
    """The steps of the demonstration."""

    def __init__(self, console: Console, dev: DevProcess) -> None:
        self._console = console
        self._dev = dev

    async def run(self) -> None:
        """Run all steps. Raises DemoFailed or SteersmanError."""
        with self._step("Start an API server in memory and the operator: steersman dev"):
            await wait_until(self._dev.is_running, START_TIMEOUT_SECONDS)
        async with self._client() as client:
            await self._create(client)
            await self._change(client)
            await self._heal(client)
            await self._delete(client)

    async def _create(self, client: Client) -> None:
        with self._step("Create a MyApp: version 1.2.0, 3 replicas"):
            await client.create(MYAPP.of(SAMPLE))
            await wait_until(lambda: is_ready(client, "1.2.0", 3))
        await self._show(client)

    async def _change(self, client: Client) -> None:
        with self._step("Change the spec: version 1.3.0, 5 replicas"):
            await client.patch(MYAPP, KEY, MergePatch({"spec": {"version": "1.3.0", "replicas": 5}}))
            await wait_until(lambda: is_ready(client, "1.3.0", 5))
        await self._show(client)

    async def _heal(self, client: Client) -> None:
        with self._step("Scale the Deployment to 1 by hand: the operator scales it back"):
            await client.patch(Deployment, KEY, MergePatch({"spec": {"replicas": 1}}))
            await wait_until(lambda: has_replicas(client, 5))
        before = await client.get(Service, KEY)
        with self._step("Delete the Service by hand: the operator creates it again"):
            await client.delete(Service, KEY)
            await wait_until(lambda: is_replaced(client, before.metadata.uid))
        reason = ""
        async with asyncio.timeout(STEP_TIMEOUT_SECONDS):
            while not reason:
                triggers = await asyncio.to_thread(self._dev.recent_triggers)
                named = (f"{t['kind']} {t['object']} {t['reason']}" for t in triggers if t.get("object"))
                reason = next((name for name in named if name.startswith("Service ")), "")
        self._console.print(f"    It reconciled because of: {reason}", highlight=False)

    async def _delete(self, client: Client) -> None:
        with self._step("Delete the MyApp: Kubernetes deletes the owned objects"):
            await client.delete(MYAPP, KEY)
            await wait_until(lambda: is_gone(client))

    @asynccontextmanager
    async def _client(self) -> AsyncGenerator[Client]:
        async with connect(load_config(self._dev.kubeconfig)) as transport:
            yield Client(transport, field_manager="demo")

    @contextmanager
    def _step(self, title: str) -> Generator[None]:
        started_at = time.monotonic()
        with self._console.status(title):
            yield
        self._console.print(f"[green]✓[/] {title} [dim]({time.monotonic() - started_at:.2f} s)[/]", highlight=False)

    async def _show(self, client: Client) -> None:
        """Print the MyApp and its owned objects."""
        app = (await client.get(MYAPP, KEY)).to_dict()
        deployment = await client.get(Deployment, KEY)
        service = await client.get(Service, KEY)
        table = Table(box=None, pad_edge=False, header_style="dim")
        for column in ("", "kind", "name", "state"):
            table.add_column(column)
        status = app["status"]
        table.add_row("   ", "MyApp", KEY.name, f"{status['phase']}, version {status['version']}")
        image = deployment.spec.template.spec.containers[0].image
        ready = f"{deployment.status.ready_replicas}/{deployment.spec.replicas} ready, {image}"
        table.add_row("", "└ Deployment", deployment.metadata.name, ready)
        table.add_row("", "└ Service", service.metadata.name, f"cluster IP {service.spec.cluster_ip}")
        self._console.print(table)


async def wait_until(condition: Callable[[], Awaitable[bool]], seconds: float = STEP_TIMEOUT_SECONDS) -> None:
    """Wait for a condition. Raises DemoFailed after ``seconds``."""
    try:
        async with asyncio.timeout(seconds):
            while True:
                try:
                    if await condition():
                        return
                except NotFound:
                    pass
                await asyncio.sleep(POLL_INTERVAL_SECONDS)
    except TimeoutError:
        raise DemoFailed(f"no result after {seconds:g} s") from None


async def is_ready(client: Client, version: str, replicas: int) -> bool:
    status = (await client.get(MYAPP, KEY)).to_dict().get("status", {})
    reported = status.get("phase"), status.get("version"), status.get("readyReplicas")
    await client.get(Service, KEY)
    return reported == ("Ready", version, replicas)


async def has_replicas(client: Client, replicas: int) -> bool:
    return (await client.get(Deployment, KEY)).spec.replicas == replicas


async def is_replaced(client: Client, uid: str) -> bool:
    return (await client.get(Service, KEY)).metadata.uid != uid


async def is_gone(client: Client) -> bool:
    """Return True if the MyApp and its owned objects do not exist."""
    for kind in (MYAPP, Deployment, Service):
        try:
            await client.get(kind, KEY)
        except NotFound:
            continue
        return False
    return True


def main() -> int:
    """Run the demonstration, and stop everything that it started. Return the exit code."""
    console, started_at = Console(), time.monotonic()
    with TemporaryDirectory(prefix="steersman-demo-") as directory:
        dev = DevProcess(Path(directory))
        try:
            asyncio.run(Demo(console, dev).run())
        except (DemoFailed, SteersmanError, OSError) as error:
            dev.stop()
            console.print(f"[bold red]✗ The demo failed:[/] {error}\n", highlight=False)
            console.print(dev.log, markup=False, highlight=False)
            return 1
        except KeyboardInterrupt:
            dev.stop()
            return 130
        code = dev.stop()
    if code:
        console.print(f"[bold red]✗ steersman dev ended with exit code {code}[/]")
        return 1
    seconds = time.monotonic() - started_at
    console.print(f"[green]✓[/] Done in {seconds:.1f} s, everything is stopped", highlight=False)
    crd = os.path.relpath(DATABASE_CRD, PROJECT)
    # On a line of its own, which is copied as a whole.
    console.print(
        f"  Try it yourself in examples/myapp:\n  steersman dev --crd {crd}", highlight=False, soft_wrap=True
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
