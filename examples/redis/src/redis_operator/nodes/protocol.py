"""Interface for commands to Redis nodes and their replies."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

Command = tuple[str | int, ...]
Reply = str | int | list[str] | None


@dataclass(frozen=True, slots=True, order=True)
class Address:
    """IP address and port of a node. An IPv6 address has no brackets."""

    ip: str
    port: int = 6379

    def __str__(self) -> str:
        return f"{self.ip}:{self.port}"


class RedisError(Exception):
    """A node rejected a command. Commands after it were run as well."""


class LoginRejected(RedisError):
    """The node rejected the password."""


class Unreachable(Exception):
    """A node did not respond. It may have run the commands."""


class Redis(Protocol):
    """Sends commands to nodes. Implementations keep no state about nodes."""

    async def execute(self, address: Address, password: str, *commands: Command, timeout: float = 5.0) -> list[Reply]:
        """Send ``commands`` in one batch and return the replies in order.

        Args:
            address: the address of the node.
            password: the password of the node. It never appears in logs or errors.
            commands: name and arguments of each command, such as ``("CLUSTER", "MEET", "10.0.0.1", 6379)``.
            timeout: the time limit for the whole batch, in seconds.

        Raises:
            LoginRejected: the password is wrong.
            RedisError: the first error reply. All commands were sent.
            Unreachable: the connection failed or timed out.
        """
        ...
