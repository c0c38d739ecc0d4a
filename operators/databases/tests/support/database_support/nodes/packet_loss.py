"""Packets of the devcluster's pods that vanish, so that nobody is told: to both sides it looks like silence."""

from __future__ import annotations

import subprocess
from collections.abc import Generator
from contextlib import contextmanager

from devcluster import layout
from devcluster.state import State
from devcluster.target import Target


@contextmanager
def without_api_server(target: Target, namespace: str) -> Generator[None]:
    """No pod of a namespace reaches the API server while the block runs. It has to be the devcluster's."""
    state = State.load()
    found = target.get("pods", f"--namespace={namespace}")
    assert state is not None and found is not None
    pods = [(state.machines[pod["spec"]["nodeName"]], pod["status"]["podIP"]) for pod in found["items"]]

    def change(how: str) -> None:
        for machine, address in pods:
            rule = ["--source", address, "--destination", str(layout.CONTROL_PLANE_ADDRESS), "--jump", "DROP"]
            command = machine.in_network([layout.IPTABLES, "--wait", how, "FORWARD", *rule])
            subprocess.run(command, check=True, capture_output=True)

    change("--insert")
    try:
        yield
    finally:
        change("--delete")
