"""Address of a server or a proxy, parsed from its URL."""

from __future__ import annotations

from dataclasses import dataclass, field
from urllib.parse import SplitResult, unquote, urlsplit

_DEFAULT_PORTS = {"http": 80, "https": 443}


@dataclass(frozen=True, slots=True)
class Address:
    """Parts of a URL.

    ``path`` has no trailing slash. ``repr`` omits user and password.

    Source: RFC 3986.
    """

    scheme: str
    host: str
    port: int
    path: str = ""
    user: str | None = field(default=None, repr=False)
    password: str | None = field(default=None, repr=False)

    @property
    def authority(self) -> str:
        """Host and port as in a URL or a ``Host`` header.

        The default port of the scheme is omitted.
        """
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == _DEFAULT_PORTS.get(self.scheme) else f"{host}:{self.port}"

    @property
    def origin(self) -> str:
        """Scheme, host and port, such as ``https://10.0.0.1:6443``."""
        return f"{self.scheme}://{self.authority}"


def parse_address(url: str) -> Address:
    """Parse the address in ``url``.

    Raises:
        ValueError: ``url`` has no valid host, or it has neither a port nor a scheme with a default port.
    """
    parts = urlsplit(url)
    host = _host(parts)
    port = parts.port if parts.port is not None else _DEFAULT_PORTS.get(parts.scheme)
    if not host or port is None:
        raise ValueError("a URL needs a scheme and a host, such as https://10.0.0.1:6443")
    return Address(
        parts.scheme,
        host,
        port,
        parts.path.rstrip("/"),
        None if parts.username is None else unquote(parts.username),
        None if parts.password is None else unquote(parts.password),
    )


def _host(parts: SplitResult) -> str:
    host = parts.hostname or ""
    labels = host.removesuffix(".").split(".") if ":" not in host else []
    if host and not all(0 < len(label) < 64 for label in labels):
        raise ValueError("a label of the host name is empty or longer than 63 characters")
    # DNS requires the ASCII form of internationalized names.
    return host if host.isascii() else host.encode("idna").decode()
