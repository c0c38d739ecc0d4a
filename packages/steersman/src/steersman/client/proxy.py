"""Which proxy leads to a server: the kubeconfig's, or that of the environment, by the rules of kubectl.

Source: Go's ``golang.org/x/net/http/httpproxy``, which kubectl uses; RFC 9110, section 7.6 on proxies.
"""

from __future__ import annotations

import base64
import ipaddress
import os
from collections.abc import Mapping
from dataclasses import dataclass, field

from steersman.client.address import Address, parse_address
from steersman.errors import ConfigurationError

_SCHEMES = ("http", "https")


@dataclass(frozen=True, slots=True)
class Proxy:
    """A proxy. ``authorization`` is the value of its ``Proxy-Authorization`` header, if it wants one."""

    address: Address
    authorization: str | None = field(default=None, repr=False)


def proxy_for(server: Address, configured: str | None, environment: Mapping[str, str] = os.environ) -> Proxy | None:
    """The proxy that leads to ``server``, or None for the direct way.

    Args:
        server: its base URL.
        configured: ``proxy-url`` of the kubeconfig: wins over the environment; empty means none.
        environment: ``HTTPS_PROXY``, ``HTTP_PROXY`` and ``NO_PROXY``, in capitals or small letters.

    Raises:
        ConfigurationError: the URL is malformed, or of a kind that is not supported; never quotes its password.
    """
    if configured is not None:
        return parse_proxy(configured, "proxy-url") if configured else None
    variable = f"{server.scheme}_proxy".upper()
    named = _variable(environment, variable)
    if not named or _is_local(server.host) or _is_exempt(server, _variable(environment, "NO_PROXY")):
        return None
    return parse_proxy(named if "://" in named else f"http://{named}", variable)


def parse_proxy(url: str, where: str) -> Proxy:
    """The proxy at ``url``, which ``where`` names in errors."""
    scheme = url.partition("://")[0].lower()
    if scheme in ("socks5", "socks5h"):
        raise ConfigurationError(f"{where}: {scheme} is not supported; use a proxy with http:// or https://")
    try:
        parsed = parse_address(url)
    except ValueError:
        parsed = None
    if parsed is None or scheme not in _SCHEMES:
        raise ConfigurationError(f"{where} is not a URL such as http://proxy.example.com:3128") from None
    authorization = None
    if parsed.user is not None:
        pair = f"{parsed.user}:{parsed.password or ''}".encode()
        authorization = f"Basic {base64.b64encode(pair).decode()}"
    return Proxy(Address(parsed.scheme, parsed.host, parsed.port), authorization)


def _variable(environment: Mapping[str, str], name: str) -> str:
    return environment.get(name) or environment.get(name.lower()) or ""


def _is_local(host: str) -> bool:
    address = _address(host)
    return host == "localhost" or (address is not None and address.is_loopback)


def _address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None


def _is_exempt(server: Address, exemptions: str) -> bool:
    """Whether an entry of NO_PROXY names the server: ``*``, an address, a network, or a domain and all below it."""
    host, address = server.host.lower().rstrip("."), _address(server.host)
    for entry in (e.strip().lower() for e in exemptions.split(",")):
        if entry == "*":
            return True
        name, _, port = entry.rpartition(":") if entry.rpartition(":")[2].isdecimal() else (entry, "", "")
        if address is not None and _address(entry) is not None:
            name, port = entry, ""
        if not entry or (port and int(port) != server.port):
            continue
        if _covers(name.strip("[]"), host, address):
            return True
    return False


def _covers(name: str, host: str, address: ipaddress.IPv4Address | ipaddress.IPv6Address | None) -> bool:
    if address is not None:
        try:
            network = ipaddress.ip_network(name, strict=False)
        except ValueError:
            return False
        return address.version == network.version and address in network
    name = name.removeprefix("*")
    # "example.com" is itself and all below it, ".example.com" only what is below.
    return host.endswith(name if name.startswith(".") else f".{name}") or host == name
