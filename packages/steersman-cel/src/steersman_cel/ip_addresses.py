"""IP addresses and CIDR blocks in CEL.

Source: ``pkg/cel/library/ip.go`` and ``cidr.go`` of ``k8s.io/apiserver``.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable
from typing import Any

_Address = ipaddress.IPv4Address | ipaddress.IPv6Address
_Network = ipaddress.IPv4Network | ipaddress.IPv6Network


def _parse_address(text: str) -> _Address:
    if "%" in text:
        raise ValueError(f"IP address {_quote(text)} with zone value is not allowed")
    try:
        found = ipaddress.ip_address(text)
    except ValueError:
        raise ValueError(f"IP Address {_quote(text)} parse error during conversion from string") from None
    if isinstance(found, ipaddress.IPv6Address) and found.ipv4_mapped is not None:
        raise ValueError(f"IPv4-mapped IPv6 address {_quote(text)} is not allowed")
    return found


def _quote(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _is_ip(text: str) -> bool:
    return _is_valid(_parse_address, text)


def _is_valid(check: Callable[[str], Any], text: str) -> bool:
    try:
        check(text)
    except ValueError:
        return False
    return True


def _parse_cidr(text: str) -> tuple[_Address, int]:
    """Address and prefix length of a CIDR block. Host bits may be set."""
    address, slash, length = text.partition("/")
    try:
        found = ipaddress.ip_address(address)
        bits = int(length)
        if not slash or not re.fullmatch("0|[1-9][0-9]*", length) or bits > found.max_prefixlen or "%" in text:
            raise ValueError
    except ValueError:
        raise ValueError(f"network address parse error during conversion from string: {_quote(text)}") from None
    if isinstance(found, ipaddress.IPv6Address) and found.ipv4_mapped is not None:
        raise ValueError(f"IPv4-mapped IPv6 address {_quote(text)} is not allowed")
    return found, bits


def _network(text: str) -> _Network:
    address, bits = _parse_cidr(text)
    return ipaddress.ip_network(f"{address}/{bits}", strict=False)


def _format_cidr(text: str) -> str:
    address, bits = _parse_cidr(text)
    return f"{address}/{bits}"


def _contains_ip(block: str, text: str) -> bool:
    network = _network(block)
    if not _is_ip(text):
        raise ValueError("no such overload")
    return _parse_address(text) in network


def _contains_cidr(block: str, text: str) -> bool:
    outer, (address, bits) = _network(block), _parse_cidr(text)
    return address in outer and bits >= outer.prefixlen


def _version(address: _Address) -> int:
    return address.version


def _is_global_unicast(address: _Address) -> bool:
    """Return True for a global unicast address. As in Go, private addresses count."""
    special = address.is_unspecified or address.is_loopback or address.is_multicast or _is_link_local(address)
    return not special and str(address) != "255.255.255.255"


def _is_link_local(address: _Address) -> bool:
    return address.is_link_local


def _is_link_local_multicast(address: _Address) -> bool:
    if isinstance(address, ipaddress.IPv4Address):
        return address in ipaddress.ip_network("224.0.0.0/24")
    return address.packed[0] == 0xFF and address.packed[1] & 0x0F == 0x02


def _address_function(check: Callable[[_Address], Any]) -> Callable[[str], Any]:
    return lambda text: check(ipaddress.ip_address(text))


def _string_function(run: Callable[[str], Any]) -> Callable[..., Any]:
    return run


IMPLEMENTATIONS: dict[str, Callable[..., Any]] = {
    "ip": _string_function(lambda text: str(_parse_address(text))),
    "net.CIDR.ip": _string_function(lambda text: str(_parse_cidr(text)[0])),
    "isIP": _is_ip,
    "ip.isCanonical": _string_function(lambda text: str(_parse_address(text)) == text),
    "family": _address_function(_version),
    "isUnspecified": _address_function(lambda address: address.is_unspecified),
    "isLoopback": _address_function(lambda address: address.is_loopback),
    "isLinkLocalMulticast": _address_function(_is_link_local_multicast),
    "isLinkLocalUnicast": _address_function(_is_link_local),
    "isGlobalUnicast": _address_function(_is_global_unicast),
    "cidr": _format_cidr,
    "isCIDR": _string_function(lambda text: _is_valid(_parse_cidr, text)),
    "containsIP": _contains_ip,
    "containsCIDR": _contains_cidr,
    "prefixLength": _string_function(lambda text: _parse_cidr(text)[1]),
    "masked": _string_function(lambda text: str(_network(text))),
}
