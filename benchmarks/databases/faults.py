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

Side = Literal["--source", "--destination"]
"""What a pod sends, or what it is sent."""


class Where(Protocol):
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


def delete_by_force(where: Where, pod: str) -> None:
    """The pod is gone at once."""
    where.kubectl("delete", "pod", pod, "--grace-period=0", "--force", "--wait=false")


def delete(where: Where, pod: str) -> None:
    """The pod is told to go, as by a drain."""
    where.kubectl("delete", "pod", pod, "--wait=false")


@contextmanager
def dropped(where: Where, pod: str, *sides: Side) -> Generator[None]:
    """All of these packets of a pod are lost on its node of the devcluster, and nobody is told."""
    found = where.target.get("pod", pod, f"--namespace={where.namespace}")
    state = State.load()
    if found is None or state is None:
        raise CommandFailed(f"only a pod of the devcluster can be cut off, and {pod} is none")
    machine, address = state.machines[found["spec"]["nodeName"]], found["status"]["podIP"]

    def change(how: Literal["--insert", "--delete"]) -> None:
        for side in sides:
            rule = [layout.IPTABLES, "--wait", how, "FORWARD", side, address, "--jump", "DROP"]
            subprocess.run(machine.in_network(rule), check=True, capture_output=True)

    change("--insert")
    try:
        yield
    finally:
        change("--delete")
