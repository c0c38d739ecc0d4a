"""Processes and files of a test environment, and their removal."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from steersman.api.core_v1 import ConfigMap, Namespace
from steersman.client import Client, connect, load_config
from steersman.errors import ConnectionFailed, Expired, SteersmanError
from steersman.meta import ObjectKey, ObjectMeta
from steersman_testing.envtest import Envtest
from steersman_testing.envtest.directory import EnvironmentDirectory

DEFAULT = ObjectKey("", "default")


@pytest.mark.requirement("design/integration-tests")
async def test_envtest_serves_an_administrator(envtest: Envtest) -> None:
    assert envtest.kubeconfig_dict["current-context"] == "envtest"
    assert envtest.kubeconfig.stat().st_mode & 0o077 == 0
    async with connect(load_config(envtest.kubeconfig)) as transport:
        names = {o.metadata.name for o in (await Client(transport).list(Namespace)).items}
    assert {"default", "kube-system"} <= names


async def test_envtest_restarts_crashed_api_server() -> None:
    with Envtest.start() as environment:
        async with environment.client() as client:
            await client.create(ConfigMap(metadata=ObjectMeta(name="kept", namespace="default")))
            environment.control_plane.kill_apiserver()
            with pytest.raises(ConnectionFailed):
                await client.get(Namespace, DEFAULT)
            environment.control_plane.start_apiserver()
            assert await client.get(ConfigMap, ObjectKey("default", "kept"))
            with environment.control_plane.paused_apiserver(), pytest.raises(TimeoutError):
                async with asyncio.timeout(1):
                    await client.get(Namespace, DEFAULT)
            assert await client.get(Namespace, DEFAULT)
            environment.control_plane.restart_apiserver(grace=10)
            assert await client.get(Namespace, DEFAULT)
    assert environment.control_plane.pids == ()
    assert not environment.directory.exists()


def test_start_failure_includes_server_output() -> None:
    with pytest.raises(SteersmanError, match="unknown flag: --no-such-flag"):
        Envtest.start(arguments={"no-such-flag": "x"})


def test_killed_test_process_leaves_no_processes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # In the common directory, other environments would remove the leftovers that this test checks.
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    script = (
        "from steersman_testing.envtest import Envtest\n"
        "environment = Envtest.start()\n"
        "print(environment.directory, *environment.control_plane.pids, flush=True)\n"
        "import signal; signal.pause()\n"
    )
    process = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    with process, process.stdout:
        directory, *pids = process.stdout.readline().split()
        assert len(pids) == 2
        process.send_signal(signal.SIGKILL)
    deadline = time.monotonic() + 60
    while any(_is_running(int(pid), directory) for pid in pids):
        assert time.monotonic() < deadline, "etcd or kube-apiserver still runs"
        time.sleep(0.05)
    # The next start removes leftovers.
    assert Path(directory).exists()
    EnvironmentDirectory().remove()
    assert not Path(directory).exists()


def _is_running(pid: int, directory: str) -> bool:
    try:
        return Path(f"/proc/{pid}/cwd").readlink() == Path(directory)
    except OSError:
        return False


def test_envtest_stops_at_interpreter_exit() -> None:
    script = "from steersman_testing.envtest import Envtest\nprint(Envtest.start().directory)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=90)
    assert not Path(done.stdout.strip()).exists()


def test_forked_process_does_not_stop_envtest(envtest: Envtest) -> None:
    child = os.fork()
    if child == 0:
        envtest.stop()
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    assert envtest.directory.exists()
    assert len(envtest.control_plane.pids) == 2


async def test_etcd_forgets_the_past() -> None:
    with Envtest.start(arguments={"watch-cache": "false"}) as environment:
        async with environment.client() as client:
            version = (await client.list(ConfigMap)).resource_version
            for name in ("past", "present"):
                await client.create(ConfigMap(metadata=ObjectMeta(name=name, namespace="default")))
            assert environment.control_plane.compact() > int(version) + 1
            with pytest.raises(Expired):
                await anext(client.watch(ConfigMap, resource_version=version))
