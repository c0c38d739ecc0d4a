"""Selection of the proxy to a server, by the rules of kubectl.

The proxy is configured in the kubeconfig or in the environment.

Source: Go's ``golang.org/x/net/http/httpproxy``, which kubectl uses; RFC 9110, section 7.6 on proxies.
"""

from __future__ import annotations

import base64
import ipaddress
import os
from collections.abc import Mapping
from dataclasses import dataclass, field

from steersman.client.transport.address import Address, parse_address
from steersman.errors import ConfigurationError

_SCHEMES = ("http", "https")


@dataclass(frozen=True, slots=True)
class Proxy:
    """Address and ``Proxy-Authorization`` header of a proxy."""

    address: Address
    authorization: str | None = field(default=None, repr=False)


def proxy_for(server: Address, proxy_url: str | None, environment: Mapping[str, str] = os.environ) -> Proxy | None:
    """Return the proxy for ``server``, or None for a direct connection.

    Args:
        server: address of the API server.
        proxy_url: ``proxy-url`` of the kubeconfig. It overrides the environment. Empty means no proxy.
        environment: variables ``HTTPS_PROXY``, ``HTTP_PROXY`` and ``NO_PROXY``, in upper or lower case.

    Raises:
        ConfigurationError: the URL is malformed or its scheme is not supported. The message omits the password.
    """
    if proxy_url is not None:
        return parse_proxy(proxy_url, "proxy-url") if proxy_url else None
    variable = f"{server.scheme}_proxy".upper()
    url = _environment_variable(environment, variable)
    if (
        not url
        or _is_loopback(server.host)
        or _bypasses_proxy(server, _environment_variable(environment, "NO_PROXY"))
    ):
        return None
    return parse_proxy(url if "://" in url else f"http://{url}", variable)


def parse_proxy(url: str, source: str) -> Proxy:
    """Parse the URL of a proxy. Errors name ``source``."""
    scheme = url.partition("://")[0].lower()
    if scheme in ("socks5", "socks5h"):
        raise ConfigurationError(f"{source}: {scheme} is not supported: use a proxy with http:// or https://")
    try:
        parsed = parse_address(url)
    except ValueError:
        parsed = None
    if parsed is None or scheme not in _SCHEMES:
        raise ConfigurationError(f"{source} is not a URL such as http://proxy.example.com:3128") from None
    authorization = None
    if parsed.user is not None:
        user_pass = f"{parsed.user}:{parsed.password or ''}".encode()
        authorization = f"Basic {base64.b64encode(user_pass).decode()}"
    return Proxy(Address(parsed.scheme, parsed.host, parsed.port), authorization)


def _environment_variable(environment: Mapping[str, str], name: str) -> str:
    return environment.get(name) or environment.get(name.lower()) or ""


def _is_loopback(host: str) -> bool:
    address = _parse_ip_address(host)
    return host == "localhost" or (address is not None and address.is_loopback)


def _parse_ip_address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None


def _bypasses_proxy(server: Address, no_proxy: str) -> bool:
    """Return True if an entry of NO_PROXY matches the server.

    An entry is ``*``, an IP address, a network in CIDR notation, or a domain with its subdomains.
    """
    host, address = server.host.lower().rstrip("."), _parse_ip_address(server.host)
    for entry in (e.strip().lower() for e in no_proxy.split(",")):
        if entry == "*":
            return True
        name, _, port = entry.rpartition(":") if entry.rpartition(":")[2].isdecimal() else (entry, "", "")
        if address is not None and _parse_ip_address(entry) is not None:
            name, port = entry, ""
        if not entry or (port and int(port) != server.port):
            continue
        if _no_proxy_matches(name.strip("[]"), host, address):
            return True
    return False


def _no_proxy_matches(name: str, host: str, address: ipaddress.IPv4Address | ipaddress.IPv6Address | None) -> bool:
    if address is not None:
        try:
            network = ipaddress.ip_network(name, strict=False)
        except ValueError:
            return False
        return address.version == network.version and address in network
    name = name.removeprefix("*")
    # "example.com" matches the domain and its subdomains, ".example.com" only subdomains.
    return host.endswith(name if name.startswith(".") else f".{name}") or host == name
