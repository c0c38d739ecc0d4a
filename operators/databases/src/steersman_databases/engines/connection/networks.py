"""Addresses that a tenant may have the operator connect to."""

from __future__ import annotations

import os
from collections.abc import Sequence
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

Network = IPv4Network | IPv6Network

_API_SERVER_VARIABLE = "KUBERNETES_SERVICE_HOST"


def parse_networks(values: Sequence[str]) -> tuple[Network, ...]:
    """Return the networks of comma-separated CIDRs.

    Raises:
        ValueError: a value is not a CIDR.
    """
    names = [part.strip() for value in values for part in value.split(",") if part.strip()]
    return tuple(map(_network, names))


def refusal(address: str, networks: Sequence[Network] = ()) -> str:
    """Return why an address is not permitted, or "".

    Link-local addresses have the metadata service of clouds, with credentials of the node. In a pod, loopback has the
    operator's own ports. The API server trusts the operator.

    Args:
        networks: networks that the address must be in. Empty permits all.
    """
    ip = _plain(address)
    is_pod = _API_SERVER_VARIABLE in os.environ
    if ip.is_link_local or ip.is_unspecified or ip.is_multicast or (ip.is_loopback and is_pod):
        return f"{address} is an address of the node or the pod, not of a server"
    if is_pod and str(ip) == os.environ[_API_SERVER_VARIABLE]:
        return f"{address} is the address of the API server, not of a database server"
    # An IPv4 address is in no IPv6 network, and the reverse.
    if networks and not any(ip in network for network in networks):
        return f"{address} is outside the permitted networks. Add its network to --server-networks of the operator"
    return ""


def _network(text: str) -> Network:
    try:
        return ip_network(text)
    except ValueError as error:
        raise ValueError(f"{text!r} is not a CIDR such as 10.0.0.0/8: {error}") from None


def _plain(address: str) -> IPv4Address | IPv6Address:
    """Return the address without a zone, as IPv4 if mapped."""
    ip = ip_address(address.partition("%")[0])
    return (ip.ipv4_mapped or ip) if isinstance(ip, IPv6Address) else ip
