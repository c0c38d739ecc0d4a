"""From the name of a server's host to its addresses; names for which DNS has no answer hold up no others.

`getaddrinfo` takes a thread for as long as DNS servers are silent, 10 s and more, and nothing ends it sooner. asyncio
has some few threads for all lookups, and the drivers look up in these: a few silent names, and nobody is reached.
Here a name has a thread of its own, one however many ask, and a place among those that are looked up at a time. That
it has to leave after a second. Who has had no answer is then looked up among others of that kind alone.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
import threading
from asyncio import AbstractEventLoop
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from weakref import WeakKeyDictionary

from .errors import ServerUnreachable
from .server import Endpoint

LookUp = Callable[[str], Awaitable[list[str]]]
"""Finds the addresses of a name. Raises `OSError` where it has none, or none is told."""

PLACES = 32
PLACE_SECONDS = 1.0
"""Names that answer need some milliseconds. So names that are new and silent delay others by a second for 32 of them,
and have as many threads as come in the time that a lookup takes in vain: 26 KiB each."""
DOUBTED_PLACES = 64
"""For names that were silent the last time. They are kept to the end of the lookup."""
_DOUBTED_SECONDS = 600.0


class Resolver:
    """The lookups of one event loop."""

    def __init__(self, look_up: LookUp) -> None:
        self._look_up = look_up
        self._pending: dict[str, asyncio.Task[list[str] | OSError]] = {}
        self._places = asyncio.Semaphore(PLACES)
        self._doubted_places = asyncio.Semaphore(DOUBTED_PLACES)
        self._doubted: dict[str, float] = {}

    async def addresses(self, endpoint: Endpoint, deadline: float) -> list[str]:
        """See `addresses_of`."""
        host = endpoint.host
        if is_address(host):
            return [host]
        if (lookup := self._pending.get(host)) is None:
            lookup = self._pending[host] = asyncio.create_task(self._lookup(host), name=f"lookup of {host}")
            lookup.add_done_callback(lambda _: self._pending.pop(host))
        # It goes on for whoever asks next: its thread does so anyway.
        await asyncio.wait([lookup], timeout=deadline - asyncio.get_running_loop().time())
        if not lookup.done():
            raise ServerUnreachable(endpoint, "no answer from DNS in time")
        found = lookup.result()
        if isinstance(found, OSError):
            raise ServerUnreachable(endpoint, f"its name does not resolve: {found.strerror or found}")
        return found

    async def _lookup(self, host: str) -> list[str] | OSError:
        """The addresses, or why there are none: nobody may be left to take an exception."""
        clock = asyncio.get_running_loop().time
        doubted = clock() < self._doubted.get(host, 0.0)
        async with self._doubted_places if doubted else self._places:
            begun = clock()
            answer = asyncio.ensure_future(self._look_up(host))
            await asyncio.wait([answer], timeout=None if doubted else PLACE_SECONDS)
        self._doubted.pop(host, None)
        try:
            return await answer
        except OSError as failure:
            if (now := clock()) - begun >= PLACE_SECONDS:
                still = {other: until for other, until in self._doubted.items() if until > now}
                self._doubted = {**still, host: now + _DOUBTED_SECONDS}
            return failure


def is_address(host: str) -> bool:
    """Whether it is an address already."""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


async def in_thread(host: str) -> list[str]:
    """What the machine's own resolver says, by `/etc/hosts`, search domains and all. Raises `OSError`."""
    answer: Future[list[str]] = Future()
    # Nobody can take it back, and nobody waits for the thread when the process ends.
    answer.set_running_or_notify_cancel()

    def look_up() -> None:
        try:
            found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM, proto=socket.IPPROTO_TCP)
            answer.set_result(list(dict.fromkeys(str(address[0]) for *_, address in found)))
        except UnicodeError:
            answer.set_exception(OSError("it cannot be the name of a host"))
        except Exception as error:
            answer.set_exception(error)

    threading.Thread(target=look_up, name=f"lookup of {host}", daemon=True).start()
    return await asyncio.wrap_future(answer)


_resolvers: WeakKeyDictionary[AbstractEventLoop, Resolver] = WeakKeyDictionary()


async def addresses_of(endpoint: Endpoint, deadline: float) -> list[str]:
    """All addresses of a host, the best first, by the deadline (the event loop's time).

    Raises `ServerUnreachable`, which says whether it has none or nobody tells.
    """
    loop = asyncio.get_running_loop()
    if (resolver := _resolvers.get(loop)) is None:
        resolver = _resolvers[loop] = Resolver(in_thread)
    return await resolver.addresses(endpoint, deadline)
