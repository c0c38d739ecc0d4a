"""The process ends within its deadline, whatever a reconcile does."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from framework_support.controller_env import ControllerEnv
from steersman.api.coordination_v1 import Lease
from steersman.client import MergePatch
from steersman.meta import ObjectKey
from steersman.observability.runtime import Runtime
from steersman_testing.serving import serve

OPERATOR = """
import asyncio, sys, time
from concurrent.futures import ThreadPoolExecutor
from framework_support.widget import Widget
from steersman.manager import flags, process_exit

process_exit.STOP_MARGIN_SECONDS = process_exit.LEADERSHIP_LOST_SECONDS = 1.0
process_exit.CLEANUP_SECONDS = flags.CLEANUP_SECONDS = 1.0


async def swallow(ctx, obj):
    print("reconciling", flush=True)
    while True:
        try:
            await asyncio.sleep(3600)
        except BaseException:
            pass

async def executor(ctx, obj):
    print("reconciling", flush=True)
    await asyncio.to_thread(time.sleep, 3600)

async def own_executor(ctx, obj):
    print("reconciling", flush=True)
    # Python joins these threads after the end of the event loop.
    await asyncio.get_running_loop().run_in_executor(ThreadPoolExecutor(1), time.sleep, 3600)

def thread(ctx, obj):
    print("reconciling", flush=True)
    time.sleep(3600)

def setup(manager):
    manager.controller(Widget).complete(globals()[sys.argv[0]])

sys.argv = sys.argv[1:]
flags.run_command(setup, name="orders-operator", webhooks=None)
"""
LEASE = ObjectKey("orders", "orders-operator")
# Far more than the deadlines of the program, far less than the sleep of its reconcile.
END_SECONDS = 60


@asynccontextmanager
async def running_operator(
    world: ControllerEnv, reconcile: str, directory: Path
) -> AsyncGenerator[asyncio.subprocess.Process]:
    kubeconfig = directory / "config"
    async with serve(world.server) as endpoint:
        kubeconfig.write_text(endpoint.kubeconfig)
        options = ("--graceful-shutdown-timeout", "1", "--leader-elect", "--leader-election-namespace", "orders")
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", OPERATOR, reconcile, "--kubeconfig", str(kubeconfig), *options),
            *("--metrics-bind-address", "0", "--health-probe-bind-address", "0"),
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
            stdout=asyncio.subprocess.PIPE,
        )
        try:
            assert process.stdout is not None
            assert await process.stdout.readline() == b"reconciling\n"
            yield process
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()


@pytest.mark.parametrize("blocked", ["", "import sys; sys.modules['uvloop'] = None\n"], ids=["uvloop", "asyncio"])
async def test_process_runs_on_uvloop_if_installed(blocked: str) -> None:
    program = blocked + "from steersman.manager.flags import _loop_factory; print(_loop_factory())"
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", program, stdout=asyncio.subprocess.PIPE)
    output, _ = await process.communicate()
    assert (b"new_event_loop" in output) == (not blocked)


@pytest.mark.parametrize("reconcile", ["swallow", "executor", "own_executor", "thread"])
@pytest.mark.parametrize("cause", ["SIGTERM", "leadership lost"])
async def test_process_ends_within_its_deadline(cause: str, reconcile: str, tmp_path: Path) -> None:
    world = ControllerEnv(Runtime())
    world.create_widgets("a")
    async with running_operator(world, reconcile, tmp_path) as process:
        if cause == "SIGTERM":
            process.send_signal(signal.SIGTERM)
        else:
            await world.client.patch(Lease, LEASE, MergePatch({"spec": {"holderIdentity": "another"}}))
        assert await asyncio.wait_for(process.wait(), END_SECONDS) == 1
