"""The control groups below which the kubelets put their pods.

Both hierarchies are served: v1 (one tree a controller; the kubelet wants its root group in each, and a cpuset group
takes no process before its CPUs and memory nodes are set, cpuset(7)) and v2 (one tree, cgroups(7)).
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
    """1 or 2: the hierarchy that controls memory."""
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
    """Make the group of a node in every hierarchy, and return its path as the kubelet's `cgroupRoot` wants it."""
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
    """Remove the groups of a node, or all of ours, from every hierarchy.

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
