"""A server as everything below the controllers knows it: where it is, how to log in, how to know that it is it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum


@dataclass(frozen=True, slots=True)
class Credentials:
    """A username and its password. The password never shows in a `repr`."""

    username: str
    password: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where a server listens. `host` is a DNS name or an address, IPv6 without brackets."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class ClientCertificate:
    """A certificate chain and its key, both PEM. The key never shows in a `repr`."""

    chain: bytes
    key: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class Login:
    """How the operator logs in to a server: by password, by certificate, or by both where both are asked for."""

    username: str
    password: str | None = field(default=None, repr=False)
    certificate: ClientCertificate | None = None


class TLSMode(Enum):
    """What of a server's certificate is asked. The values are those of `serverRef.tls.mode`."""

    VERIFY_FULL = "VerifyFull"
    """By a known authority, and for this host."""
    VERIFY_CA = "VerifyCA"
    """By a known authority, for any host."""
    REQUIRE = "Require"
    """TLS, with whatever certificate."""
    DISABLE = "Disable"
    """No TLS."""


@dataclass(frozen=True, slots=True)
class Verification:
    """How the server is known to be the right one.

    `authorities` are PEM certificates; `None` takes the authorities that the machine trusts.
    """

    mode: TLSMode = TLSMode.VERIFY_FULL
    authorities: bytes | None = None


@dataclass(frozen=True, slots=True)
class Server:
    """A resolved reference: all that is needed to work on what is inside a server.

    `engine` is the engine's name, `maintenance_database` the database that everybody may connect to (PostgreSQL).
    `elevate`, where there is one, gives the login for the few things that need a superuser; it is asked for anew
    each time, since what it gives may be short-lived.
    """

    engine: str
    endpoint: Endpoint
    login: Login
    verification: Verification
    maintenance_database: str = "postgres"
    elevate: Callable[[], Login] | None = field(default=None, repr=False, compare=False)
