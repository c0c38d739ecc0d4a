"""Connection parameters of a server: endpoint, login, and verification of its identity."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum

from steersman_databases.engines.connection.networks import Network


@dataclass(frozen=True, slots=True)
class SqlCredentials:
    """Username and password. A `repr` never shows the password."""

    username: str
    password: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class ServerEndpoint:
    """Host and port of a server.

    `host` is a DNS name or an address, IPv6 without brackets.
    """

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class ClientKeyPair:
    """Certificate chain and key, both PEM. A `repr` never shows the key."""

    chain: bytes
    key: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class Login:
    """The operator's login: by password, by certificate, or both."""

    username: str
    password: str | None = field(default=None, repr=False)
    certificate: ClientKeyPair | None = None


class TLSMode(Enum):
    """Verification of a server's certificate. The values are those of `serverRef.tls.mode`."""

    VERIFY_FULL = "VerifyFull"
    """Signed by a known authority, for this host."""
    VERIFY_CA = "VerifyCA"
    """Signed by a known authority, for any host."""
    REQUIRE = "Require"
    """TLS with any certificate."""
    DISABLE = "Disable"
    """No TLS."""


@dataclass(frozen=True, slots=True)
class Verification:
    """Verification of the server's identity.

    `ca_bundle` contains PEM certificates. `None` selects the authorities that the machine trusts.
    """

    mode: TLSMode = TLSMode.VERIFY_FULL
    ca_bundle: bytes | None = None


@dataclass(frozen=True, slots=True)
class DatabaseServer:
    """A resolved reference to a server, ready for connections.

    Attributes:
        engine: name of the engine.
        maintenance_database: database that all users may connect to (PostgreSQL).
        superuser_login: returns the login for the few operations that need a superuser. It is called each time,
            because its credentials may be short-lived.
        networks: networks that its addresses must be in. Empty permits all.
    """

    engine: str
    endpoint: ServerEndpoint
    login: Login
    verification: Verification
    maintenance_database: str = "postgres"
    superuser_login: Callable[[], Login] | None = field(default=None, repr=False, compare=False)
    networks: tuple[Network, ...] = ()
