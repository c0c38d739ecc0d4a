"""Container that runc starts from an image of this repository."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tarfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from devcluster.process import Process

UID = 10001
STATE = "/run/steersman-image-tests"


@dataclass(frozen=True)
class Unpacked:
    """Root file system and configuration of an image (OCI image-spec, config.md)."""

    root: Path
    config: dict[str, Any]


def unpack(archive: Path, directory: Path) -> Unpacked:
    """Extract the layers of an OCI archive into ``directory``."""
    directory.chmod(0o755)
    with tarfile.open(archive) as file:

        def document(name: str) -> dict[str, Any]:
            content = file.extractfile(name)
            assert content is not None, name
            return cast("dict[str, Any]", json.load(content))

        def blob(digest: str) -> str:
            return f"blobs/sha256/{digest.removeprefix('sha256:')}"

        manifest = document(blob(document("index.json")["manifests"][0]["digest"]))
        for layer in manifest["layers"]:
            content = file.extractfile(blob(layer["digest"]))
            assert content is not None
            command = ["tar", "--extract", "--overwrite", "--directory", str(directory)]
            with subprocess.Popen(command, stdin=subprocess.PIPE) as tar:
                assert tar.stdin is not None
                shutil.copyfileobj(content, tar.stdin, 1 << 20)
            assert tar.returncode == 0
        for whiteout in directory.rglob(".wh.*"):
            gone = whiteout.with_name(whiteout.name.removeprefix(".wh."))
            shutil.rmtree(gone) if gone.is_dir() else gone.unlink(missing_ok=True)
            whiteout.unlink()
        return Unpacked(directory, document(blob(manifest["config"]["digest"]))["config"])


@dataclass
class Container:
    """A container: configuration, process and log.

    ``volume``, `run` and `admin` are host directories of the mount points that the images require.
    """

    name: str
    image: Unpacked
    bundle: Path
    volume: Path
    run: Path
    admin: Path
    arguments: Sequence[str] = ()
    _runc: subprocess.Popen[bytes] | None = field(default=None, init=False)

    def start(self) -> None:
        """Start the container. Its output is appended to the log."""
        self.bundle.mkdir(parents=True, exist_ok=True)
        (self.bundle / "config.json").write_text(json.dumps(self._specification()))
        self._begin(["runc", "--root", STATE, "run", "--bundle", str(self.bundle), self.name])

    @property
    def log(self) -> str:
        path = self.bundle / "log"
        return path.read_text(errors="replace") if path.exists() else ""

    def running(self) -> bool:
        return self._runc is not None and self._runc.poll() is None

    def signal(self, name: str) -> None:
        """Send a signal to the first process, if it is running."""
        _runc("kill", self.name, name)

    def stop(self, seconds: float = 30.0) -> int:
        """Stop the container as a kubelet does. Return the exit code."""
        self.signal(self.image.config.get("StopSignal", "SIGTERM"))
        return self.wait(seconds)

    def kill(self) -> None:
        """Send SIGKILL to all processes."""
        if self.running():
            _runc("kill", "--all", self.name, "KILL")
            self.wait(10)

    def wait(self, seconds: float) -> int:
        """Wait for the exit code."""
        assert self._runc is not None
        try:
            code = self._runc.wait(seconds)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"did not exit within {seconds} s; its log:\n{self.log}") from None
        _runc("delete", "--force", self.name)
        return code

    def sleep(self, seconds: float) -> None:
        """Let the container run for ``seconds``. Do not use it to wait for a condition."""
        time.sleep(seconds)

    def remove(self) -> None:
        """Remove the container in any state."""
        _runc("delete", "--force", self.name)

    def execute(self, *command: str, environment: Sequence[str] = ()) -> subprocess.CompletedProcess[str]:
        """Run a command in the container, as the kubelet runs probes."""
        given = [option for variable in environment for option in ("--env", variable)]
        return _runc("exec", *given, self.name, *command)

    def probe(self, kind: str) -> bool:
        return self.execute("/usr/local/bin/steersman-probe", kind).returncode == 0

    def until(self, condition: Callable[[], bool], seconds: float = 60.0) -> None:
        """Wait for the condition. Fails with the logs if the container exits."""
        deadline = time.monotonic() + seconds
        while not condition():
            assert self.running(), self.log
            assert time.monotonic() < deadline, self.log
            time.sleep(0.05)

    def memory(self) -> int:
        """Return the resident memory in bytes, excluding file-backed pages."""
        pids = cast("list[int]", json.loads(_runc("ps", "--format=json", self.name).stdout))
        total = 0
        for pid in pids:
            lines = Path(f"/proc/{pid}/status").read_text().splitlines()
            total += sum(int(line.split()[1]) for line in lines if line.startswith(("RssAnon:", "RssShmem:")))
        return total * 1024

    def _begin(self, command: list[str]) -> None:
        _runc("delete", "--force", self.name)
        with (self.bundle / "log").open("ab") as log:
            self._runc = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        assert Process.of(self._runc.pid) is not None

    def _specification(self) -> dict[str, Any]:
        config = self.image.config
        return {
            "ociVersion": "1.0.2",
            "hostname": "server",
            "process": {
                "user": {"uid": UID, "gid": UID, "additionalGids": [UID]},
                "args": [*config.get("Entrypoint", []), *(self.arguments or config.get("Cmd") or [])],
                "env": config["Env"],
                "cwd": config.get("WorkingDir") or "/",
                "capabilities": {},
                "noNewPrivileges": True,
            },
            "root": {"path": str(self.image.root), "readonly": True},
            "mounts": self._mounts(),
            "linux": {
                "cgroupsPath": f"/{self.name}",
                "namespaces": [{"type": kind} for kind in ("pid", "network", "ipc", "uts", "mount")],
                "resources": {"memory": {"limit": 768 << 20}},
            },
        }

    def _mounts(self) -> list[dict[str, Any]]:
        def memory(place: str, *options: str) -> dict[str, Any]:
            return {
                "destination": place,
                "type": "tmpfs",
                "source": "tmpfs",
                "options": ["nosuid", *options],
            }

        def bound(place: str, source: Path, *options: str) -> dict[str, Any]:
            return {"destination": place, "type": "bind", "source": str(source), "options": ["rbind", *options]}

        return [
            {"destination": "/proc", "type": "proc", "source": "proc"},
            memory("/dev", "mode=755"),
            {"destination": "/dev/pts", "type": "devpts", "source": "devpts", "options": ["newinstance"]},
            memory("/dev/shm", "mode=1777", "size=256m"),
            memory("/tmp", "mode=1777"),
            bound("/var/lib/steersman/data", self.volume),
            bound("/run/steersman", self.run),
            bound("/etc/steersman/admin", self.admin, "ro"),
        ]


def writable(directory: Path) -> Path:
    """A new directory owned by the user of the container."""
    directory.mkdir(parents=True)
    os.chown(directory, UID, UID)
    return directory


def _runc(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["runc", "--root", STATE, *arguments], capture_output=True, text=True, check=False)
