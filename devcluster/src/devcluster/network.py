"""The wires between host, control plane and nodes.

    host ── steersman0 ══ host │control plane│ fabric (bridge) ══ eth0 │steersman-1│ … pods
                                                               ══ eth0 │steersman-2│ … pods

A pair of interfaces ends with either of its machines, so what plugs a machine in does so again after a crash of it,
or of the one at the other end.

No machine has a default route and the control plane forwards nothing, so no packet of the cluster can reach the
host's network, and the host's firewall and routes stay as they are but for one link of two addresses. A range that is
routed nowhere could not be translated by kube-proxy either, since Linux looks for a route before it translates (the
OUTPUT hook); so the Service range is routed to a bridge without ports, and what was not translated is rejected there.
"""

import ipaddress
import json
import re
from collections.abc import Sequence

from devcluster import layout
from devcluster.errors import CommandFailed, DevclusterError
from devcluster.layout import CONTROL_PLANE_ADDRESS, LINK_NAME, NODE_NETWORK, SERVICE_CIDR, Address, NodeLayout
from devcluster.machine import Machine
from devcluster.process import run

FORWARDING = {
    "4": "echo 1 > /proc/sys/net/ipv4/ip_forward; echo 0 > /proc/sys/net/ipv4/icmp_ratelimit",
    "6": "echo 1 > /proc/sys/net/ipv6/conf/all/forwarding; echo 0 > /proc/sys/net/ipv6/icmp/ratelimit",
}


def find_free_link() -> ipaddress.IPv4Network:
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


def connect_control_plane(machine: Machine, link: ipaddress.IPv4Network) -> None:
    """Link the host with the control plane, and make the bridge for the nodes."""
    pid = machine.init.pid
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
            _address_add(CONTROL_PLANE_ADDRESS, "fabric"),
            "link set fabric up",
        ],
    )


def configure_node(machine: Machine) -> None:
    """Make the network of a node that has booted, as far as it is the node's own."""
    _configure(
        machine,
        [
            "link add services type bridge",
            "link set services up",
            f"route add {SERVICE_CIDR} dev services",
        ],
    )
    # a node forwards for its pods, and tells each of them each time that there is no way: they fail rather than wait
    run(machine.enter(["sh", "-ec", FORWARDING[layout.IP_FAMILY]]))
    for chain in ("OUTPUT", "FORWARD"):
        run(machine.in_network([layout.IPTABLES, "-w", "-A", chain, "-o", "services", "-j", "REJECT"]))


def attach_node(control_plane: Machine, machine: Machine, node: NodeLayout) -> None:
    """Plug a node into the bridge, unless it is."""
    if _interface_exists(control_plane, node.name):
        return
    _delete(machine, "eth0")  # its other end was of a control plane that has crashed
    peer = f"eth0 address {node.mac_address} netns {machine.init.pid}"
    _configure(
        control_plane,
        [
            f"link add {node.name} type veth peer name {peer}",
            f"link set {node.name} master fabric up",
        ],
    )
    _configure(machine, [_address_add(node.address, "eth0"), "link set eth0 up"])


def _address_add(address: Address, interface: str) -> str:
    # There is nobody else who could have it, and to look for one takes a second.
    nodad_option = " nodad" if address.version == 6 else ""
    return f"address add {address}/{NODE_NETWORK.prefixlen} dev {interface}{nodad_option}"


def route_pods(machine: Machine, nodes: Sequence[NodeLayout], removed: Sequence[NodeLayout] = ()) -> None:
    """Give a machine the way to the pods of all other `nodes`, and none to those of `gone`."""
    others = [node for node in nodes if node.name != machine.name]
    commands = [f"route replace {node.pod_cidr} via {node.address}" for node in others]
    _configure(machine, commands)
    for node in removed:
        run(machine.in_network(["ip", f"-{layout.IP_FAMILY}", "route", "flush", str(node.pod_cidr)]))


def set_node_link(control_plane: Machine, node: NodeLayout, *, up: bool) -> None:
    """Pull or plug the node's cable. Its addresses, routes and pods stay as they are."""
    _configure(control_plane, [f"link set {node.name} {'up' if up else 'down'}"])


def node_link_is_up(control_plane: Machine, node: NodeLayout) -> bool:
    """Whether the node's cable is plugged in."""
    output = run(control_plane.in_network(["ip", "-json", "link", "show", "up"]))
    links: list[dict[str, object]] = json.loads(output)
    return any(link.get("ifname") == node.name for link in links)  # of a link that is down, it tells {}


# Packets are lost where they arrive, so that who sent them hears nothing of it: at the node's own interface, and at
# the bridge's port for the node. Neighbours still find each other, as by ARP, which iptables never sees: without that
# the sender's kernel says after seconds that there is no way.
LOSS_SCRIPT = """
echo 1 > "/proc/sys/net/bridge/bridge-nf-call-$IPTABLES" || true
"$IPTABLES" -w -t raw -N "$CHAIN" 2>/dev/null || "$IPTABLES" -w -t raw -F "$CHAIN"
"$IPTABLES" -w -t raw -C PREROUTING $ARRIVING -j "$CHAIN" 2>/dev/null ||
    "$IPTABLES" -w -t raw -A PREROUTING $ARRIVING -j "$CHAIN"
[ "$IPTABLES" = iptables ] || for type in neighbour-solicitation neighbour-advertisement; do
    "$IPTABLES" -w -t raw -A "$CHAIN" -p icmpv6 --icmpv6-type $type -j RETURN
done
[ "$SHARE" = 0.0 ] ||
    "$IPTABLES" -w -t raw -A "$CHAIN" -m statistic --mode random --probability "$SHARE" -j DROP
"""


def set_packet_loss(machine: Machine, node: NodeLayout, percent: int) -> None:
    """Lose that share of the packets of `node`: those that it sends, if `machine` is the control plane, else those
    that are sent to it. 0 ends it.
    """
    variables = [f"ARRIVING={_ingress_match(machine, node)}", f"SHARE={percent / 100}"]
    run(
        machine.enter(
            ["env", f"IPTABLES={layout.IPTABLES}", f"CHAIN={_loss_chain(node)}", *variables, "sh", "-ec", LOSS_SCRIPT]
        )
    )


def packet_loss(machine: Machine, node: NodeLayout) -> int:
    """The share of packets, in percent, that `lose` makes `machine` lose now."""
    rules = run(machine.in_network([layout.IPTABLES, "-w", "-t", "raw", "-S"]))
    found = re.search(rf"^-A {_loss_chain(node)} .*--probability ([0-9.]+)", rules, re.MULTILINE)
    return round(float(found[1]) * 100) if found else 0


def _loss_chain(node: NodeLayout) -> str:
    return f"loss-{node.name}"


def _ingress_match(machine: Machine, node: NodeLayout) -> str:
    return "-i eth0" if machine.name == node.name else f"-m physdev --physdev-in {node.name}"


def remove_link() -> None:
    """Remove the host's end of the link, if the end of the control plane has left it behind."""
    _delete(None, LINK_NAME)


def detach_node(control_plane: Machine, node: NodeLayout) -> None:
    """Remove the bridge's port for a node, if its machine has left it behind."""
    _delete(control_plane, node.name)


def _delete(machine: Machine | None, interface: str) -> None:
    """Delete an interface of a machine, or of the host; the kernel may be faster, in its own time."""
    if _interface_exists(machine, interface):
        try:
            run(_in_network(machine, ["ip", "link", "delete", interface]))
        except CommandFailed:
            if _interface_exists(machine, interface):
                raise


def _interface_exists(machine: Machine | None, interface: str) -> bool:
    links: list[dict[str, object]] = json.loads(run(_in_network(machine, ["ip", "-json", "link", "show"])))
    return any(link["ifname"] == interface for link in links)


def _in_network(machine: Machine | None, command: list[str]) -> list[str]:
    return command if machine is None else machine.in_network(command)
