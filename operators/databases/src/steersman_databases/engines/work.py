"""What every engine's `ensure` has in common: look, repair, and look again where somebody else was at it too."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod

from .errors import EngineError, SqlFailed
from .names import check_password
from .port import Change, Credentials, Desired, Endpoint

ATTEMPTS = 5
"""How often to look again when the server's state changes under our hands."""


class Raced(Exception):
    """The server's state changed under our hands: no error, but a reason to look again."""

    def __init__(self, failure: SqlFailed) -> None:
        super().__init__(str(failure))
        self.failure = failure


class LoginRejected(Exception):
    """The server does not let this user in. `number` is MySQL's error number, which tells why."""

    def __init__(self, message: str, number: int = 0) -> None:
        super().__init__(message)
        self.number = number


class Work(ABC):
    """One call of `ensure`, `timeout` seconds long at most."""

    def __init__(self, endpoint: Endpoint, administrator: Credentials, desired: Desired, timeout: float) -> None:
        check_password(desired.password)
        self.endpoint = endpoint
        self.administrator = administrator
        self.desired = desired
        self.deadline = asyncio.get_running_loop().time() + timeout
        self._changes: list[Change] = []

    async def settle(self) -> tuple[Change, ...]:
        """Bring the server to the desired state, and say what was changed."""
        for attempt in range(1, ATTEMPTS + 1):
            try:
                await self.look_and_repair()
                break
            except Raced as raced:
                if attempt == ATTEMPTS:
                    raise self._with_changes(raced.failure) from None
            except EngineError as error:
                raise self._with_changes(error) from None
        return tuple(self._changes)

    @abstractmethod
    async def look_and_repair(self) -> None:
        """Compare the server with what is desired and change what differs. Raises `Raced` to start again."""

    def changed(self, reason: str, message: str) -> None:
        """Remember something that was changed."""
        self._changes.append(Change(reason, message))

    def _with_changes(self, error: EngineError) -> EngineError:
        error.changes = tuple(self._changes)
        return error
