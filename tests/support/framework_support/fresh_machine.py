"""Container with only Python, make and a package index, without this repository."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import uuid
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from framework_support.image_container import unpack

HOME = "/home/developer"
WHEELS = "/opt/wheels"
BINARIES = "/opt/kubernetes/bin"
_UID = 1000
_STATE = "/run/steersman-fresh-machine"


@dataclass(frozen=True)
class FreshMachine:
    """A running container.

    Attributes:
        name: name of the container.
        home: home directory of the user on the host. Other directories are read-only.
    """

    name: str
    home: Path

    def command(
        self, directory: str, *words: str, environment: Mapping[str, str] | None = None, terminal: bool = False
    ) -> list[str]:
        """Command line that runs ``words`` in a directory below the home."""
        place = f"{HOME}/{directory}".rstrip("/")
        path = f"{HOME}/venv/bin:{BINARIES}:/usr/bin:/bin"
        known = {"PATH": path, "HOME": HOME, "LANG": "C.UTF-8", "VIRTUAL_ENV": f"{HOME}/venv"}
        # pip installs from the mounted wheels only.
        index = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": WHEELS, "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
        given = [o for k, v in {**known, **index, **(environment or {})}.items() for o in ("--env", f"{k}={v}")]
        options = ["--cwd", place, "--user", f"{_UID}:{_UID}", *(["--tty"] * terminal), *given]
        return ["runc", "--root", _STATE, "exec", *options, self.name, *words]

    def run(self, directory: str, *words: str, **environment: str) -> str:
        """Run a command, which must succeed, and return its output."""
        command = self.command(directory, *words, environment=environment)
        ended = subprocess.run(command, capture_output=True, text=True, check=False)
        assert ended.returncode == 0, f"{' '.join(words)}: {ended.stdout}{ended.stderr}"
        return ended.stdout + ended.stderr


@contextmanager
def fresh_machine(archive: Path, directory: Path, *, wheels: Path, binaries: Path) -> Generator[FreshMachine]:
    """Run the container during the block.

    Args:
        archive: image as OCI archive.
        directory: directory for the container.
        wheels: wheels of the package index.
        binaries: binaries of Kubernetes.
    """
    root, home = directory / "root", directory / "home"
    for each in (root, home):
        each.mkdir(parents=True)
    unpack(archive, root)
    os.chown(home, _UID, _UID)
    for place in (HOME, WHEELS, BINARIES):
        (root / place.lstrip("/")).mkdir(parents=True, exist_ok=True)
    mounts = {HOME: (home, "rw"), WHEELS: (wheels, "ro"), BINARIES: (binaries, "ro")}
    (directory / "config.json").write_text(json.dumps(_specification(root, mounts)))
    name = f"steersman-fresh-{uuid.uuid4().hex[:8]}"
    runc = ["runc", "--root", _STATE]
    # runc exits at once, so the output of the container is discarded.
    started = subprocess.run(
        [*runc, "run", "--detach", "--bundle", str(directory), name],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        check=False,
    )
    assert started.returncode == 0, f"runc ended with {started.returncode}"
    try:
        yield FreshMachine(name, home)
    finally:
        subprocess.run([*runc, "delete", "--force", name], check=True)
        shutil.rmtree(directory)


def _specification(root: Path, mounts: dict[str, tuple[Path, str]]) -> dict[str, Any]:
    bound = [
        {"destination": place, "type": "bind", "source": str(source), "options": ["rbind", mode]}
        for place, (source, mode) in mounts.items()
    ]
    own = [
        {"destination": "/proc", "type": "proc", "source": "proc"},
        {"destination": "/dev", "type": "tmpfs", "source": "tmpfs", "options": ["nosuid", "mode=755"]},
        {
            "destination": "/dev/pts",
            "type": "devpts",
            "source": "devpts",
            "options": ["newinstance", "ptmxmode=0666"],
        },
        {"destination": "/tmp", "type": "tmpfs", "source": "tmpfs", "options": ["nosuid", "mode=1777"]},
    ]
    return {
        "ociVersion": "1.0.2",
        "hostname": "fresh",
        "process": {
            "user": {"uid": _UID, "gid": _UID},
            "args": ["sleep", "infinity"],
            "env": ["PATH=/usr/bin:/bin"],
            "cwd": "/",
            "capabilities": {},
            "noNewPrivileges": True,
        },
        "root": {"path": str(root), "readonly": True},
        "mounts": [*own, *bound],
        # Host network, since the API server listens on loopback.
        "linux": {"namespaces": [{"type": kind} for kind in ("pid", "ipc", "uts", "mount")]},
    }
