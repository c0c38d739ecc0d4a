"""Pod faults that do not depend on the workload."""

from __future__ import annotations

import subprocess
from collections.abc import Generator
from contextlib import contextmanager
from typing import Literal, Protocol

from devcluster import layout
from devcluster.errors import CommandFailed
from devcluster.state import State
from devcluster.target import Target

Direction = Literal["--source", "--destination"]
"""Direction of the dropped packets, seen from the pod."""


class NamespaceAccess(Protocol):
    """Access to a namespace."""

    @property
    def target(self) -> Target:
        """Target cluster."""
        ...

    @property
    def namespace(self) -> str:
        """Namespace name."""
        ...

    def kubectl(self, *arguments: str, stdin: str = "", seconds: float = 60) -> str:
        """Run kubectl in the namespace and return its output."""
        ...


def force_delete_pod(access: NamespaceAccess, pod: str) -> None:
    """Delete the pod without a grace period."""
    access.kubectl("delete", "pod", pod, "--grace-period=0", "--force", "--wait=false")


def delete_pod(access: NamespaceAccess, pod: str) -> None:
    """Delete the pod gracefully, as a drain does."""
    access.kubectl("delete", "pod", pod, "--wait=false")


@contextmanager
def dropped_packets(access: NamespaceAccess, pod: str, *directions: Direction) -> Generator[None]:
    """Silently drop packets of a pod on its devcluster node."""
    found = access.target.get("pod", pod, f"--namespace={access.namespace}")
    state = State.load()
    if found is None or state is None:
        raise CommandFailed(f"{pod} cannot be cut off: it does not run on the devcluster")
    machine, address = state.machines[found["spec"]["nodeName"]], found["status"]["podIP"]

    def change(action: Literal["--insert", "--delete"]) -> None:
        for direction in directions:
            rule = [layout.IPTABLES, "--wait", action, "FORWARD", direction, address, "--jump", "DROP"]
            subprocess.run(machine.in_network(rule), check=True, capture_output=True)

    change("--insert")
    try:
        yield
    finally:
        change("--delete")
