"""What the operator needs of Redis: to send commands to one node and to read its replies."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

Command = tuple[str | int, ...]
Reply = str | int | list[str] | None


@dataclass(frozen=True, slots=True, order=True)
class Address:
    """Where a node listens. ``ip`` may be of IPv6, without brackets."""

    ip: str
    port: int = 6379

    def __str__(self) -> str:
        return f"{self.ip}:{self.port}"


class RedisError(Exception):
    """A node refuses a command, in its own words. Commands after that one were carried out as well."""


class LoginRejected(RedisError):
    """The password is not the node's."""


class Unreachable(Exception):
    """A node does not answer; what was sent to it may have been carried out."""


class Redis(Protocol):
    """Nodes by their addresses. Stateless: whatever the operator knows of a node, it asks the node."""

    async def execute(self, address: Address, password: str, *commands: Command, timeout: float = 5.0) -> list[Reply]:
        """Sends ``commands`` to the node in one go and returns its replies, in their order.

        Args:
            at: of the node.
            password: never shown anywhere.
            commands: the words of each, as in ``("CLUSTER", "MEET", "10.0.0.1", 6379)``.
            timeout: seconds for all of them together.

        Raises:
            LoginRejected: the password is wrong.
            RedisError: of the first command that was refused; all were sent.
            Unreachable: no connection, or no answer in time.
        """
        ...
