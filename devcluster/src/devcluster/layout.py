"""Directories and addresses of the cluster.

The state of a running cluster is below `STATE` and `RUN`, which are machine-wide: a machine has one cluster of each
name. `$DEVCLUSTER` is the name and is usually unset. Files that can be rebuilt are below `cache_directory()`, which
belongs to the user.

With `$DEVCLUSTER_IP` set to 6, nodes, pods and Services have IPv6 addresses only, except for the host's link to the
control plane. The cluster domain differs, too, so that tests find code that relies on the default.
"""

import ipaddress
import os
import re
from dataclasses import dataclass
from pathlib import Path

NAME = os.environ.get("DEVCLUSTER", "")
if re.fullmatch(r"[a-z0-9]{0,12}", NAME) is None:  # part of an interface name, which has at most 15 characters
    raise ValueError(f"DEVCLUSTER={NAME}: at most 12 small letters and digits")
IP_FAMILY = os.environ.get("DEVCLUSTER_IP") or "4"
if IP_FAMILY not in ("4", "6"):
    raise ValueError(f"DEVCLUSTER_IP={IP_FAMILY}: 4 or 6")
NAME_PREFIX = "steersman-devcluster"
CLUSTER_NAME = f"{NAME_PREFIX}-{NAME}" if NAME else NAME_PREFIX

STATE = Path("/var/lib") / CLUSTER_NAME
RUN = Path("/run") / CLUSTER_NAME
LOCK = Path("/run") / f"{CLUSTER_NAME}.lock"  # outlives the directories, else two could hold it at once
LOGS = STATE / "logs"
PKI = STATE / "pki"
KUBECONFIG = STATE / "kubeconfig"
CGROUP = CLUSTER_NAME

CLUSTER_DOMAIN = "cluster.local" if IP_FAMILY == "4" else "kube.internal"
Network = ipaddress.IPv4Network | ipaddress.IPv6Network
Address = ipaddress.IPv4Address | ipaddress.IPv6Address
SERVICE_CIDR: Network = ipaddress.ip_network("10.96.0.0/16" if IP_FAMILY == "4" else "fd10:96::/112")
KUBERNETES_SERVICE_IP = SERVICE_CIDR[1]
DNS_SERVICE_IP = SERVICE_CIDR[10]
POD_CIDR: Network = ipaddress.ip_network("10.244.0.0/16" if IP_FAMILY == "4" else "fd10:244::/48")
# Seen by the machines only, never by the host.
NODE_NETWORK: Network = ipaddress.ip_network("10.231.0.0/24" if IP_FAMILY == "4" else "fd10:231::/64")
DEFAULT_ROUTE = "0.0.0.0/0" if IP_FAMILY == "4" else "::/0"
ANY_ADDRESS = "0.0.0.0" if IP_FAMILY == "4" else "::"  # noqa: S104 - of machines that nobody but the host reaches
IPTABLES = "iptables" if IP_FAMILY == "4" else "ip6tables"
API_SERVER_PORT = 6443

# The host has a link of two addresses to the cluster, and one to its object store. The first range without a route on
# the host is used. 198.18.0.0/15 is reserved for tests of network devices (RFC 2544), so it is rarely routed.
LINK_CANDIDATES = (
    ipaddress.IPv4Network("198.18.231.0/30"),
    ipaddress.IPv4Network("198.19.231.0/30"),
    ipaddress.IPv4Network("10.231.255.0/30"),
    ipaddress.IPv4Network("172.31.255.0/30"),
    ipaddress.IPv4Network("10.231.255.4/30"),
    ipaddress.IPv4Network("172.31.255.4/30"),
)
LINK_NAME = f"dc-{NAME}" if NAME else "steersman0"

CONTROL_PLANE = "control-plane"


@dataclass(frozen=True)
class NodeLayout:
    """One node: its names, addresses and directories.

    `number` counts from 1.
    """

    number: int

    @property
    def name(self) -> str:
        return f"steersman-{self.number}"

    @property
    def address(self) -> Address:
        return NODE_NETWORK[10 + self.number]

    @property
    def mac_address(self) -> str:
        """MAC address; it survives a reboot, so that neighbour caches stay valid."""
        return f"02:00:00:00:00:{self.number:02x}"

    @property
    def pod_cidr(self) -> Network:
        bits = {"4": 8, "6": 64}[IP_FAMILY]
        return ipaddress.ip_network(
            (int(POD_CIDR.network_address) + (self.number << bits), POD_CIDR.max_prefixlen - bits)
        )

    @property
    def directory(self) -> Path:
        return STATE / "nodes" / self.name

    @property
    def run_directory(self) -> Path:
        return RUN / self.name

    @property
    def containerd_socket(self) -> Path:
        return self.run_directory / "containerd.sock"


NODES = (NodeLayout(1), NodeLayout(2), NodeLayout(3))  # as many as a cluster can have
DEFAULT_NODES = 2
CONTROL_PLANE_ADDRESS = NODE_NETWORK[1]


def url_host(address: Address | str) -> str:
    """Return an address as URLs write it before a port."""
    return f"[{address}]" if ":" in str(address) else str(address)


def cache_directory() -> Path:
    """Return the cache directory of binaries and images.

    `$XDG_CACHE_HOME/steersman`, or `~/.cache/steersman` (XDG Base Directory Specification).
    """
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "steersman"
