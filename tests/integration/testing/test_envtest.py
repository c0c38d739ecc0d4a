"""The environment itself: what it starts, for whom, and that nothing of it stays."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from steersman.api.core_v1 import ConfigMap, Namespace
from steersman.client import Client, connect, load_config
from steersman.errors import ConfigurationError, ConnectionFailed, Expired, Forbidden, SteersmanError
from steersman.meta import ObjectKey, ObjectMeta
from steersman.testing.envtest import Envtest, find_binaries

DEFAULT = ObjectKey("", "default")


async def test_it_serves_an_administrator(envtest: Envtest) -> None:
    assert envtest.kubeconfig_dict["current-context"] == "envtest"
    assert envtest.kubeconfig.stat().st_mode & 0o077 == 0
    async with connect(load_config(envtest.kubeconfig)) as transport:
        names = {o.metadata.name for o in (await Client(transport).list(Namespace)).items}
    assert {"default", "kube-system"} <= names


async def test_users_may_do_what_rbac_says(envtest: Envtest) -> None:
    kubeconfig = envtest.user("somebody@example.com", ["readers"])
    async with connect(load_config(kubeconfig)) as transport:
        with pytest.raises(Forbidden, match=r'User "somebody@example\.com" cannot get resource "namespaces"'):
            await Client(transport).get(Namespace, DEFAULT)
    async with connect(load_config(envtest.user("another", ["system:masters"]))) as transport:
        assert (await Client(transport).get(Namespace, DEFAULT)).key == DEFAULT


async def test_the_api_server_crashes_and_comes_back() -> None:
    with Envtest.start() as environment:
        async with connect(environment.config) as transport:
            client = Client(transport)
            await client.create(ConfigMap(metadata=ObjectMeta(name="kept", namespace="default")))
            environment.kill_apiserver()
            with pytest.raises(ConnectionFailed):
                await client.get(Namespace, DEFAULT)
            environment.start_apiserver()
            assert await client.get(ConfigMap, ObjectKey("default", "kept"))
            with environment.paused_apiserver(), pytest.raises(TimeoutError):
                async with asyncio.timeout(1):
                    await client.get(Namespace, DEFAULT)
            assert await client.get(Namespace, DEFAULT)
            environment.restart_apiserver(grace=10)
            assert await client.get(Namespace, DEFAULT)
    assert not environment.directory.exists()


def test_a_server_that_does_not_start_says_why() -> None:
    with pytest.raises(SteersmanError, match="unknown flag: --no-such-flag"):
        Envtest.start(arguments={"no-such-flag": "x"})


def test_nothing_outlives_a_killed_test_process(tmp_path: Path) -> None:
    script = (
        "from steersman.testing.envtest import Envtest\n"
        "environment = Envtest.start()\n"
        "print(environment.directory, *environment.pids, flush=True)\n"
        "import signal; signal.pause()\n"
    )
    process = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    with process, process.stdout:
        directory, *pids = process.stdout.readline().split()
        assert len(pids) == 2
        process.send_signal(signal.SIGKILL)
    try:
        deadline = time.monotonic() + 10
        while any(_runs(int(pid), directory) for pid in pids):
            assert time.monotonic() < deadline, "etcd or kube-apiserver still runs"
            time.sleep(0.05)
    finally:
        subprocess.run(["rm", "-r", directory], check=True)


def _runs(pid: int, directory: str) -> bool:
    try:
        return Path(f"/proc/{pid}/cwd").readlink() == Path(directory)
    except OSError:
        return False


def test_the_interpreter_takes_it_along_at_its_end() -> None:
    script = "from steersman.testing.envtest import Envtest\nprint(Envtest.start().directory)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=90)
    assert not Path(done.stdout.strip()).exists()


def test_missing_binaries_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigurationError, match="has no etcd: point KUBEBUILDER_ASSETS at a complete set"):
        find_binaries(tmp_path)
    monkeypatch.setenv("KUBEBUILDER_ASSETS", str(tmp_path))
    with pytest.raises(ConfigurationError, match="has no etcd"):
        Envtest.start()
    monkeypatch.delenv("KUBEBUILDER_ASSETS")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with pytest.raises(ConfigurationError, match="run `setup-envtest use`, or set KUBEBUILDER_ASSETS"):
        find_binaries()


def test_the_newest_binaries_are_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KUBEBUILDER_ASSETS", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    for number, build in enumerate(("older", "newer", "incomplete")):
        place = tmp_path / "steersman" / "binaries" / build / "bin"
        place.mkdir(parents=True)
        (place / "etcd").touch()
        if build != "incomplete":
            (place / "kube-apiserver").touch()
        os.utime(place, (number, number))
    assert find_binaries() == tmp_path / "steersman" / "binaries" / "newer" / "bin"


async def test_etcd_forgets_the_past() -> None:
    with Envtest.start(arguments={"watch-cache": "false"}) as environment:
        async with connect(environment.config) as transport:
            client = Client(transport)
            version = (await client.list(ConfigMap)).resource_version
            for name in ("past", "present"):
                await client.create(ConfigMap(metadata=ObjectMeta(name=name, namespace="default")))
            assert environment.compact() > int(version) + 1
            with pytest.raises(Expired):
                await anext(client.watch(ConfigMap, resource_version=version))
