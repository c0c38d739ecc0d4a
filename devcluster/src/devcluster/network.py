"""Network links between host, control plane and nodes.

    host ── steersman0 ══ host │control plane│ fabric (bridge) ══ eth0 │steersman-1│ … pods
                                                               ══ eth0 │steersman-2│ … pods

A veth pair disappears with either of its machines. Attaching a machine therefore also works after a crash of the
machine at either end.

No machine has a default route and the control plane does not forward, so no packet of the cluster reaches the
host's network. The host's firewall and routes are unchanged, except for one link of two addresses. Linux needs a
route before kube-proxy can translate an address (the OUTPUT hook). The Service range is therefore routed to a bridge
without ports, which rejects packets that were not translated.
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
    """Return a range for the host link without a route.

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


def connect_host(machine: Machine, link: ipaddress.IPv4Network, interface: str) -> None:
    """Link host and machine; `interface` is the name of the host's end."""
    host_side = [
        f"link add {interface} type veth peer name host netns {machine.init.pid}",
        f"address add {link[1]}/{link.prefixlen} dev {interface}",
        f"link set {interface} up",
    ]
    run(["ip", "-batch", "-"], stdin="\n".join(host_side))
    _configure(machine, [f"address add {link[2]}/{link.prefixlen} dev host", "link set host up"])


def connect_control_plane(machine: Machine, link: ipaddress.IPv4Network) -> None:
    """Link host and control plane, and create the bridge."""
    connect_host(machine, link, LINK_NAME)
    _configure(
        machine,
        [
            "link add fabric type bridge",
            _address_add(CONTROL_PLANE_ADDRESS, "fabric"),
            "link set fabric up",
        ],
    )


def configure_node(machine: Machine) -> None:
    """Configure the network inside a booted node."""
    _configure(
        machine,
        [
            "link add services type bridge",
            "link set services up",
            f"route add {SERVICE_CIDR} dev services",
        ],
    )
    # a node forwards for its pods and rejects unroutable packets, so that connections fail rather than wait
    run(machine.enter(["sh", "-ec", FORWARDING[layout.IP_FAMILY]]))
    for chain in ("OUTPUT", "FORWARD"):
        run(machine.in_network([layout.IPTABLES, "-w", "-A", chain, "-o", "services", "-j", "REJECT"]))


def attach_node(control_plane: Machine, machine: Machine, node: NodeLayout) -> None:
    """Attach a node to the bridge, unless it is attached."""
    attach_machine(control_plane, machine, node.name, node.address, node.mac_address)


def attach_machine(control_plane: Machine, machine: Machine, port: str, address: Address, mac_address: str) -> None:
    """Attach a machine to the bridge, unless it is attached.

    `port` is the name of the bridge's port.
    """
    if _interface_exists(control_plane, port):
        return
    _delete(machine, "eth0")  # its peer belonged to a control plane that has crashed
    peer = f"eth0 address {mac_address} netns {machine.init.pid}"
    _configure(
        control_plane,
        [
            f"link add {port} type veth peer name {peer}",
            f"link set {port} master fabric up",
        ],
    )
    _configure(machine, [_address_add(address, "eth0"), "link set eth0 up"])


def _address_add(address: Address, interface: str) -> str:
    # Duplicate address detection takes a second, and no other machine can have the address.
    nodad_option = " nodad" if address.version == 6 else ""
    return f"address add {address}/{NODE_NETWORK.prefixlen} dev {interface}{nodad_option}"


def route_pods(machine: Machine, nodes: Sequence[NodeLayout], removed: Sequence[NodeLayout] = ()) -> None:
    """Set a machine's routes to the pods of other nodes."""
    others = [node for node in nodes if node.name != machine.name]
    commands = [f"route replace {node.pod_cidr} via {node.address}" for node in others]
    _configure(machine, commands)
    for node in removed:
        run(machine.in_network(["ip", f"-{layout.IP_FAMILY}", "route", "flush", str(node.pod_cidr)]))


def set_node_link(control_plane: Machine, node: NodeLayout, *, up: bool) -> None:
    """Set the node's link up or down; addresses, routes and pods stay."""
    _configure(control_plane, [f"link set {node.name} {'up' if up else 'down'}"])


def node_link_is_up(control_plane: Machine, node: NodeLayout) -> bool:
    """Return True if the node's link is up."""
    output = run(control_plane.in_network(["ip", "-json", "link", "show", "up"]))
    links: list[dict[str, object]] = json.loads(output)
    return any(link.get("ifname") == node.name for link in links)  # the output for a link that is down is {}


# Packets are dropped on arrival, so that the sender gets no error: at the node's own interface, and at
# the bridge's port for the node. ARP still works, since iptables does not see it; otherwise
# the sender's kernel would report the host as unreachable after seconds.
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
    """Set the packet loss of a node in percent; 0 ends it.

    On the control plane's machine this drops outbound packets of the node, on the node's machine inbound packets.
    """
    variables = [f"ARRIVING={_ingress_match(machine, node)}", f"SHARE={percent / 100}"]
    run(
        machine.enter(
            ["env", f"IPTABLES={layout.IPTABLES}", f"CHAIN={_loss_chain(node)}", *variables, "sh", "-ec", LOSS_SCRIPT]
        )
    )


def packet_loss(machine: Machine, node: NodeLayout) -> int:
    """Return the current packet loss in percent."""
    rules = run(machine.in_network([layout.IPTABLES, "-w", "-t", "raw", "-S"]))
    found = re.search(rf"^-A {_loss_chain(node)} .*--probability ([0-9.]+)", rules, re.MULTILINE)
    return round(float(found[1]) * 100) if found else 0


def _loss_chain(node: NodeLayout) -> str:
    return f"loss-{node.name}"


def _ingress_match(machine: Machine, node: NodeLayout) -> str:
    return "-i eth0" if machine.name == node.name else f"-m physdev --physdev-in {node.name}"


def remove_link(interface: str = LINK_NAME) -> None:
    """Remove the host's end of a link if it still exists."""
    _delete(None, interface)


def detach_machine(control_plane: Machine, port: str) -> None:
    """Remove a port of the bridge if it still exists. Nodes have their name as port."""
    _delete(control_plane, port)


def _delete(machine: Machine | None, interface: str) -> None:
    """Delete an interface, unless the kernel has already removed it."""
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
