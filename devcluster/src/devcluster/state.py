"""State file of the cluster, shared by all processes."""

import hashlib
import ipaddress
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from devcluster import binaries, layout
from devcluster.layout import NodeLayout
from devcluster.machine import Machine
from devcluster.process import Process

FILE = layout.STATE / "state.json"

# Modules that determine the cluster; a change in one of them makes another version.
CLUSTER_DEFINING_MODULES = (
    "addons",
    "certificate_authority",
    "certificates",
    "cgroups",
    "containers",
    "controlplane",
    "create",
    "kubeconfig",
    "layout",
    "machine",
    "network",
    "node",
    "oci",
    "state",
)


def version() -> str:
    """Return a digest of everything that determines the cluster."""
    digest = hashlib.sha256(binaries.key().encode())
    for module in CLUSTER_DEFINING_MODULES:
        digest.update((Path(__file__).parent / f"{module}.py").read_bytes())
    return digest.hexdigest()[:16]


def _boot_id() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


@dataclass
class State:
    """A cluster.

    `complete` is False during creation. `boot_id` is the host's boot in which it was created: process ids of another
    boot are invalid. `nodes` are the desired nodes. `machines` maps a name to its machine. `ip_family` is
    `layout.IP_FAMILY`.
    """

    version: str
    link: ipaddress.IPv4Network
    binaries: Path
    nodes: list[NodeLayout]
    ip_family: str = layout.IP_FAMILY
    boot_id: str = field(default_factory=_boot_id)
    complete: bool = False
    machines: dict[str, Machine] = field(default_factory=dict[str, Machine])

    @property
    def control_plane(self) -> Machine:
        return self.machines[layout.CONTROL_PLANE]

    def alive(self) -> bool:
        """Return True if it is repairable and its control plane runs."""
        return self.repairable() and self.control_plane.alive()

    def repairable(self) -> bool:
        """Return True if it is complete and of this boot."""
        names = {layout.CONTROL_PLANE, *(node.name for node in self.nodes)}
        return self.complete and self.is_current_boot() and self.machines.keys() == names

    def save(self) -> None:
        """Write the state file atomically."""
        content = {
            "version": self.version,
            "link": str(self.link),
            "binaries": str(self.binaries),
            "nodes": [node.number for node in self.nodes],
            "ip": self.ip_family,
            "boot": self.boot_id,
            "complete": self.complete,
            "machines": {
                machine.name: {
                    "first": _pid_and_start_time(machine.init),
                    "components": {
                        name: _pid_and_start_time(process) for name, process in machine.components.items()
                    },
                }
                for machine in list(self.machines.values())
            },
        }
        FILE.parent.mkdir(parents=True, exist_ok=True)
        unfinished = FILE.with_suffix(".unfinished")
        unfinished.write_text(json.dumps(content, indent=2))
        unfinished.rename(FILE)

    @classmethod
    def load(cls) -> "State | None":
        """Return the state of this machine's cluster, or None."""
        try:
            content: dict[str, Any] = json.loads(FILE.read_text())
        except FileNotFoundError:
            return None
        machines = {
            name: Machine(
                name,
                Process(*machine["first"]),
                {component: Process(*pair) for component, pair in machine["components"].items()},
            )
            for name, machine in content["machines"].items()
        }
        return cls(
            version=content["version"],
            link=ipaddress.IPv4Network(content["link"]),
            binaries=Path(content["binaries"]),
            nodes=[NodeLayout(number) for number in content.get("nodes", (1, 2))],  # a cluster of an older version
            ip_family=content.get("ip", "4"),
            boot_id=content["boot"],
            complete=content["complete"],
            machines=machines,
        )

    def is_current_boot(self) -> bool:
        """Return True if the host has not rebooted since creation."""
        return self.boot_id == _boot_id()


def _pid_and_start_time(process: Process) -> list[int]:
    return [process.pid, process.start_time]
