"""Ways in which a pod is lost, whatever runs in it."""

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
"""What a pod sends, or what it is sent."""


class NamespaceAccess(Protocol):
    """A namespace."""

    @property
    def target(self) -> Target:
        """The cluster."""
        ...

    @property
    def namespace(self) -> str:
        """Its name."""
        ...

    def kubectl(self, *arguments: str, stdin: str = "", seconds: float = 60) -> str:
        """What kubectl says in it."""
        ...


def force_delete_pod(access: NamespaceAccess, pod: str) -> None:
    """The pod is gone at once."""
    access.kubectl("delete", "pod", pod, "--grace-period=0", "--force", "--wait=false")


def delete_pod(access: NamespaceAccess, pod: str) -> None:
    """The pod is told to go, as by a drain."""
    access.kubectl("delete", "pod", pod, "--wait=false")


@contextmanager
def dropped_packets(access: NamespaceAccess, pod: str, *directions: Direction) -> Generator[None]:
    """All of these packets of a pod are lost on its node of the devcluster, and nobody is told."""
    found = access.target.get("pod", pod, f"--namespace={access.namespace}")
    state = State.load()
    if found is None or state is None:
        raise CommandFailed(f"only a pod of the devcluster can be cut off, and {pod} is none")
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
