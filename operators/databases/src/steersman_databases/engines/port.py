"""What the operator asks of a database server, the same for every engine."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol


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
class Desired:
    """One database and the one user who may do everything in it, and nothing outside."""

    database: str
    username: str
    password: str = field(repr=False)

    @property
    def credentials(self) -> Credentials:
        return Credentials(self.username, self.password)


@dataclass(frozen=True, slots=True)
class Change:
    """One thing that was changed on the server, ready to become an Event.

    `reason` is an Event reason (`DatabaseCreated`), `message` a sentence part (`created database orders`).
    """

    reason: str
    message: str

    def __str__(self) -> str:
        return self.message


class Engine(Protocol):
    """One kind of database server. Stateless: everything it knows, it asks the server."""

    @property
    def name(self) -> str:
        """The engine's name in `spec.engine`."""
        ...

    @property
    def port(self) -> int:
        """The port its servers listen on."""
        ...

    @property
    def uri_scheme(self) -> str:
        """The scheme of its connection strings."""
        ...

    def check_names(self, database: str, username: str, administrator: str) -> None:
        """Refuse names that the server could not, or must not, take. Needs no server.

        Raises `InvalidName` for the first field that is wrong.
        """
        ...

    async def ensure(
        self, endpoint: Endpoint, administrator: Credentials, desired: Desired, timeout: float = 30.0
    ) -> tuple[Change, ...]:
        """Make the server hold the desired database, user, password and grants, and say what was changed.

        Looks first and changes only what differs: when all is as desired it writes nothing and returns an
        empty tuple. May be cut off at any point and called again, and may be called twice at once. Takes
        `timeout` seconds at most.

        Raises `InvalidName`, `ServerUnreachable`, `AdministratorRejected` or `SqlFailed`.
        """
        ...
