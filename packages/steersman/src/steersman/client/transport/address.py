"""Where a server or a proxy listens, read from its URL."""

from __future__ import annotations

from dataclasses import dataclass, field
from urllib.parse import SplitResult, unquote, urlsplit

_DEFAULT_PORTS = {"http": 80, "https": 443}


@dataclass(frozen=True, slots=True)
class Address:
    """The parts of a URL. ``path`` has no slash at its end; user and password stay out of ``repr``.

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
        """Host and port as in a URL or a ``Host`` header; the port is left out where the scheme implies it."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == _DEFAULT_PORTS.get(self.scheme) else f"{host}:{self.port}"

    @property
    def origin(self) -> str:
        """Scheme, host and port, such as ``https://10.0.0.1:6443``."""
        return f"{self.scheme}://{self.authority}"


def parse_address(url: str) -> Address:
    """The address in ``url``.

    Raises:
        ValueError: it is no URL with a host, or of no scheme whose port is known and without a port.
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
        raise ValueError("a part of its host is empty or too long")
    # Name servers know international names in ASCII only.
    return host if host.isascii() else host.encode("idna").decode()
