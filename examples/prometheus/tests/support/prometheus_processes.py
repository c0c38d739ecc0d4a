"""Runtime for the kubelet: Prometheus and reloader as processes with separate IPs."""

from __future__ import annotations

import asyncio
import gzip
import itertools
import os
import re
import shutil
import signal
from asyncio.subprocess import DEVNULL, Process
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files as package_files
from pathlib import Path

import pytest
from steersman.api.core_v1 import Pod

from monitoring_operator.resources import PORT
from monitoring_operator.servers import HttpServers, Unreachable

RELOAD = str(package_files("monitoring_operator.resources").joinpath("reload.sh"))
_START_TIMEOUT_SECONDS = 30.0
_DISCOVERY = re.compile(r"^(  - role: \w+)$", re.MULTILINE)


def program_directory() -> Path:
    """Return the directory of prometheus and promtool: ``$PROMETHEUS_DIRECTORY``, or from ``$PATH``.

    The test is skipped without Prometheus, or if it lacks the service discovery of Kubernetes as in Debian 12.
    """
    found = os.environ.get("PROMETHEUS_DIRECTORY") or shutil.which("prometheus")
    if found is None:
        pytest.skip("Prometheus is not installed: on Debian 13, apt-get install prometheus promtool")
    directory = Path(found) if Path(found).is_dir() else Path(found).parent
    if not (directory / "promtool").exists():
        pytest.skip(f"promtool is missing in {directory}: on Debian 13, apt-get install promtool")
    return directory


async def run_promtool(directory: Path, *arguments: str) -> tuple[int, str]:
    """Run promtool, and return its exit code and its output."""
    process = await asyncio.create_subprocess_exec(
        str(directory / "promtool"), *arguments, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    output, _ = await process.communicate()
    return process.returncode or 0, output.decode()


@dataclass(slots=True)
class _Replica:
    directory: Path
    ip: str
    server: Process
    reloader: Process
    files: Mapping[str, bytes]


class PrometheusProcesses:
    """Runs the processes of each pod in a directory like its volumes.

    Args:
        directory: parent of the directories.
        programs: directory of prometheus and promtool.
        kubeconfig: kubeconfig of the service discovery. In a pod, the token of the ServiceAccount replaces it.
    """

    def __init__(self, directory: Path, programs: Path, kubeconfig: Path | None = None) -> None:
        self._directory = directory
        self._kubeconfig = kubeconfig
        # Parallel tests use separate parts of the loopback network.
        self._net = f"127.{os.getpid() % 250 + 2}"
        self._numbers = itertools.count(1)
        self._versions = itertools.count(1)
        self._replicas: dict[str, _Replica] = {}
        binaries = directory / "bin"
        binaries.mkdir(exist_ok=True)
        for name in ("prometheus", "promtool"):
            (binaries / name).symlink_to(programs / name)
        self._path = os.pathsep.join([str(binaries), os.environ["PATH"]])

    def process_id(self, pod: Pod) -> int:
        """Return the process ID of the server of a pod."""
        return self._replicas[pod.metadata.uid].server.pid

    def free_ip(self) -> str:
        """Return a loopback IP that no other process uses."""
        return f"{self._net}.0.{next(self._numbers)}"

    async def start(self, pod: Pod, files: Mapping[str, bytes]) -> str:
        return await self.start_server(pod.metadata.uid, pod.metadata.name, files)

    async def start_server(self, uid: str, name: str, files: Mapping[str, bytes]) -> str:
        """Start Prometheus and its reloader, and return the IP."""
        directory, ip = self._directory / uid, self.free_ip()
        (directory / "running").mkdir(parents=True)
        self._mount(directory, files)
        prepared = await self._spawn(directory, name, "sh", RELOAD, "prepare", *_places(directory))
        assert await prepared.wait() == 0
        running = directory / "running"
        command = f'echo $$ >{running}/prometheus.pid && exec prometheus "$@"'
        server = await self._spawn(
            directory,
            name,
            *("sh", "-c", command, "prometheus"),
            f"--config.file={running}/prometheus.yaml",
            f"--storage.tsdb.path={directory}/data",
            f"--web.listen-address={ip}:{PORT}",
            "--enable-feature=expand-external-labels",
        )
        await self._wait_responsive(server, ip)
        reloader = await self._start_reloader(directory, name)
        self._replicas[uid] = _Replica(directory, ip, server, reloader, files)
        return ip

    async def sync(self, pod: Pod, files: Mapping[str, bytes]) -> None:
        await self.sync_server(pod.metadata.uid, pod.metadata.name, files)

    async def sync_server(self, uid: str, name: str, files: Mapping[str, bytes]) -> None:
        """Replace the files, and restart the reloader if it was killed."""
        replica = self._replicas[uid]
        if files != replica.files:
            self._mount(replica.directory, files)
            replica.files = files
        if replica.reloader.returncode is not None:
            replica.reloader = await self._start_reloader(replica.directory, name)

    async def kill_reloader(self, uid: str) -> None:
        """Kill the reloader, as the kernel does when memory is short."""
        await _kill(self._replicas[uid].reloader)

    async def stop(self, uid: str) -> None:
        replica = self._replicas.pop(uid, None)
        if replica is not None:
            await _kill(replica.reloader)
            await _kill(replica.server)

    async def stop_all(self) -> None:
        for uid in list(self._replicas):
            await self.stop(uid)

    def _mount(self, directory: Path, files: Mapping[str, bytes]) -> None:
        """Replace all files by a symbolic link, as the kubelet does."""
        version = directory / f"files-{next(self._versions)}"
        version.mkdir()
        for name, content in files.items():
            (version / name).write_bytes(self._with_kubeconfig(content) if name == "prometheus.yaml.gz" else content)
        link = directory / "next"
        link.symlink_to(version)
        link.replace(directory / "declared")

    def _with_kubeconfig(self, compressed: bytes) -> bytes:
        if self._kubeconfig is None:
            return compressed
        text = gzip.decompress(compressed).decode()
        return gzip.compress(_DISCOVERY.sub(rf"\1\n    kubeconfig_file: {self._kubeconfig}", text).encode())

    async def _start_reloader(self, directory: Path, name: str) -> Process:
        return await self._spawn(directory, name, "sh", RELOAD, "watch", *_places(directory))

    async def _spawn(self, directory: Path, name: str, *command: str) -> Process:
        environment = {**os.environ, "PATH": self._path, "POD_NAME": name, "POLL_SECONDS": "0.1"}
        with (directory / "logs").open("ab") as logs:
            return await asyncio.create_subprocess_exec(
                *command, env=environment, stdin=DEVNULL, stdout=logs, stderr=logs, start_new_session=True
            )

    async def _wait_responsive(self, server: Process, ip: str) -> None:
        async with asyncio.timeout(_START_TIMEOUT_SECONDS):
            while True:
                assert server.returncode is None, "Prometheus exited at its start"
                try:
                    await HttpServers(PORT).report(ip)
                    return
                except Unreachable:
                    await asyncio.sleep(0.05)


def _places(directory: Path) -> tuple[str, str]:
    return str(directory / "declared"), str(directory / "running")


async def _kill(process: Process) -> None:
    """Kill a process and its children, as a container runtime does."""
    if process.returncode is None:
        os.killpg(process.pid, signal.SIGKILL)
        await process.wait()
