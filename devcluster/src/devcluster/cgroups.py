"""The cgroups below which the kubelets create those of pods.

Both versions are supported. v1 has one tree per controller, and the kubelet needs its root group in each. A cpuset
group accepts a process only after its CPUs and memory nodes are set, see cpuset(7). v2 has one tree, see cgroups(7).
"""

import time
from pathlib import Path

from devcluster import layout
from devcluster.errors import NotReady


def _mounts() -> list[tuple[Path, str]]:
    mounts: list[tuple[Path, str]] = []
    for line in Path("/proc/self/mounts").read_text().splitlines():
        _, target, kind, *_ = line.split()
        if kind in ("cgroup", "cgroup2"):
            mounts.append((Path(target), kind))
    return mounts


def version() -> int:
    """Return the cgroup version that controls memory, 1 or 2."""
    return 1 if any(kind == "cgroup" for _, kind in _mounts()) else 2


def _fill_cpuset(group: Path) -> None:
    for key in ("cpuset.cpus", "cpuset.mems"):
        value = group / key
        if value.exists() and not value.read_text().strip():
            value.write_text((group.parent / key).read_text())


def _delegate_controllers(group: Path) -> None:
    available = (group / "cgroup.controllers").read_text().split()
    (group / "cgroup.subtree_control").write_text(" ".join(f"+{name}" for name in available))


def create(name: str) -> str:
    """Create the cgroup of a node; return its path for `cgroupRoot`."""
    for mount, kind in _mounts():
        if version() == 1 and kind == "cgroup2":
            continue  # the hybrid layout's v2 tree has no controllers
        group = mount
        for part in (layout.CGROUP, name):
            if kind == "cgroup2":
                _delegate_controllers(group)
            group = group / part
            group.mkdir(exist_ok=True)
            if kind == "cgroup":
                _fill_cpuset(group)
    return f"/{layout.CGROUP}/{name}"


def remove(name: str = "") -> None:
    """Remove the cgroups of a node, or all of ours.

    Raises NotReady if processes remain in them after 10 s.
    """
    deadline = time.monotonic() + 10
    for mount, _ in _mounts():
        root = mount / layout.CGROUP / name
        while root.exists():
            try:
                for group in sorted(root.rglob("*/"), key=lambda path: len(path.parts), reverse=True):
                    group.rmdir()
                root.rmdir()
            except FileNotFoundError:
                continue  # the kernel or a dying shim was faster
            except OSError as error:
                if time.monotonic() > deadline:
                    raise NotReady(f"control group {error.filename} is still in use") from error
                time.sleep(0.05)
