"""How long reconciles wait for servers that take connections and never answer.

Each waits in a worker, of which there are only so many. So who has just waited for a server in vain waits for it no
more for a while, and neither does anybody else: a server that hangs costs a worker some seconds each half minute.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager, suppress
from typing import Concatenate, ParamSpec, TypeVar

from steersman.observability.runtime import Clock
from steersman_databases.controllers.serving import Ask
from steersman_databases.engines.errors import ServerUnreachable
from steersman_databases.engines.server import Endpoint, Server

P = ParamSpec("P")
R = TypeVar("R")
Asking = Callable[Concatenate[Server, P], Awaitable[R]]

_LONG_SECONDS = 2.5
"""All who ask wait for longer. Who refuses does it sooner, and may be asked again at once."""
_SPARED_SECONDS = 20.0
"""What was changed meanwhile is still healed within 30 s."""


class Patience:
    """With all servers of one controller, by where they listen. Forgotten with the process: each is tried again."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._until: dict[Endpoint, float] = {}

    @contextmanager
    def spent_on(self, endpoint: Endpoint) -> Generator[None]:
        """Around a question to a server, which ends with ServerUnreachable where there is no answer.

        Raises:
            ServerUnreachable: it has just let somebody wait in vain.
        """
        begun = self._clock.monotonic()
        if begun < self._until.get(endpoint, begun):
            raise ServerUnreachable(endpoint, "it did not answer a moment ago")
        try:
            yield
        except ServerUnreachable:
            now = self._clock.monotonic()
            if now - begun >= _LONG_SECONDS:
                spared = {other: until for other, until in self._until.items() if until > now}
                self._until = {**spared, endpoint: now + _SPARED_SECONDS}
            raise

    def asking(self, ask: Asking[P, R] | None) -> Asking[P, R] | None:
        """``ask``, with this patience."""
        if ask is None:
            return None

        async def asked(server: Server, /, *args: P.args, **kwargs: P.kwargs) -> R:
            with self.spent_on(server.endpoint):
                return await ask(server, *args, **kwargs)

        return asked

    def asking_what_is_shown(self, ask: Ask | None) -> Ask | None:
        """As ``asking``, of who tells by None that there was no answer."""
        if ask is None:
            return None

        async def asked(endpoint: Endpoint) -> str | None:
            with suppress(ServerUnreachable), self.spent_on(endpoint):
                if (shown := await ask(endpoint)) is not None:
                    return shown
                raise ServerUnreachable(endpoint, "it shows no certificate")
            return None

        return asked
