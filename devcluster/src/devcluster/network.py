"""The wires between host, control plane and nodes.

    host ── steersman0 ══ host │control plane│ fabric (bridge) ══ eth0 │steersman-1│ … pods
                                                               ══ eth0 │steersman-2│ … pods

No machine has a default route and the control plane forwards nothing, so no packet of the cluster can reach the
host's network, and the host's firewall and routes stay as they are but for one link of two addresses. A range that is
routed nowhere could not be translated by kube-proxy either, since Linux looks for a route before it translates (the
OUTPUT hook); so the Service range is routed to a bridge without ports, and what was not translated is rejected there.
"""

import ipaddress
import json
from collections.abc import Sequence

from devcluster import layout
from devcluster.errors import DevclusterError
from devcluster.layout import CONTROL_PLANE_ADDRESS, FABRIC, LINK_NAME, SERVICES, NodeLayout
from devcluster.machine import Machine
from devcluster.process import run


def free_link() -> ipaddress.IPv4Network:
    """A range for the link between host and control plane that the host has no route to.

    Raises DevclusterError if all candidates are taken.
    """
    routes: list[dict[str, object]] = json.loads(run(["ip", "-json", "-4", "route", "show", "table", "all"]))
    taken = [ipaddress.ip_network(str(route["dst"]), strict=False) for route in routes if route["dst"] != "default"]
    for candidate in layout.LINK_CANDIDATES:
        if not any(candidate.overlaps(network) for network in taken if network.version == 4):
            return candidate
    names = ", ".join(str(candidate) for candidate in layout.LINK_CANDIDATES)
    raise DevclusterError(f"the host has routes into all of {names}: none is left for the link to the cluster")


def _configure(machine: Machine, commands: Sequence[str]) -> None:
    run(machine.in_network(["ip", "-batch", "-"]), stdin="\n".join(commands))


def wire_control_plane(machine: Machine, link: ipaddress.IPv4Network) -> None:
    """Link the host with the control plane, and make the bridge for the nodes."""
    pid = machine.first.pid
    host_side = [
        f"link add {LINK_NAME} type veth peer name host netns {pid}",
        f"address add {link[1]}/{link.prefixlen} dev {LINK_NAME}",
        f"link set {LINK_NAME} up",
    ]
    run(["ip", "-batch", "-"], stdin="\n".join(host_side))
    _configure(
        machine,
        [
            f"address add {link[2]}/{link.prefixlen} dev host",
            "link set host up",
            "link add fabric type bridge",
            f"address add {CONTROL_PLANE_ADDRESS}/{FABRIC.prefixlen} dev fabric",
            "link set fabric up",
        ],
    )


def wire_node(control_plane: Machine, machine: Machine, node: NodeLayout) -> None:
    """Plug a node into the bridge, and give it routes to everything of the cluster and to nothing else."""
    _configure(
        control_plane,
        [
            f"link add {node.name} type veth peer name eth0 netns {machine.first.pid}",
            f"link set {node.name} master fabric up",
            f"route add {node.pods} via {node.address}",
        ],
    )
    others = [other for other in layout.NODES if other != node]
    _configure(
        machine,
        [
            f"address add {node.address}/{FABRIC.prefixlen} dev eth0",
            "link set eth0 up",
            "link add services type bridge",
            "link set services up",
            f"route add {SERVICES} dev services",
            *(f"route add {other.pods} via {other.address}" for other in others),
        ],
    )
    # a node forwards for its pods, and tells each of them each time that there is no way: they fail rather than wait
    settings = "echo 1 > /proc/sys/net/ipv4/ip_forward; echo 0 > /proc/sys/net/ipv4/icmp_ratelimit"
    run(machine.enter(["sh", "-c", settings]))
    for chain in ("OUTPUT", "FORWARD"):
        run(machine.in_network(["iptables", "-w", "-A", chain, "-o", "services", "-j", "REJECT"]))


def set_node_link(control_plane: Machine, node: NodeLayout, *, up: bool) -> None:
    """Pull or plug the node's cable. Its addresses, routes and pods stay as they are."""
    _configure(control_plane, [f"link set {node.name} {'up' if up else 'down'}"])


def node_link_is_up(control_plane: Machine, node: NodeLayout) -> bool:
    """Whether the node's cable is plugged in."""
    shown = run(control_plane.in_network(["ip", "-json", "link", "show", node.name]))
    links: list[dict[str, list[str]]] = json.loads(shown)
    return "UP" in links[0]["flags"]


def remove_link() -> None:
    """Remove the host's end of the link, if the end of the control plane has left it behind."""
    names = {link["ifname"] for link in json.loads(run(["ip", "-json", "link", "show"]))}
    if LINK_NAME in names:
        run(["ip", "link", "delete", LINK_NAME])
