"""Resolution of host names without mutual delays.

`getaddrinfo` blocks a thread for as long as DNS servers do not respond, 10 s and more. It cannot be cancelled.
asyncio has a small pool of threads for all lookups, and the drivers use it. A few unresponsive names would make
all servers unreachable.

Here each name has its own thread, shared by all callers, and one of a limited number of slots. It releases the
slot after a second. A name without a response gets a slot from a separate set next time.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
import threading
from asyncio import AbstractEventLoop
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Future
from weakref import WeakKeyDictionary

from steersman_databases.engines.connection.networks import Network, refusal
from steersman_databases.engines.errors import ServerUnreachable
from steersman_databases.engines.server import ServerEndpoint

Lookup = Callable[[str], Awaitable[list[str]]]
"""Finds the addresses of a name.

Raises `OSError` if there are none or DNS does not respond.
"""

MAX_LOOKUPS = 32
LOOKUP_SLOT_SECONDS = 1.0
"""Names with a DNS response need some milliseconds.

New unresponsive names delay others by one second per 32 of them. They use as many threads as arrive during the
time of an unsuccessful lookup, 26 KiB each.
"""
MAX_SLOW_LOOKUPS = 64
"""For names without a response at the last lookup.

They keep the slot until the lookup ends.
"""
_SLOW_MEMORY_SECONDS = 600.0


class Resolver:
    """Lookups of one event loop."""

    def __init__(self, lookup: Lookup) -> None:
        self._lookup_function = lookup
        self._pending: dict[str, asyncio.Task[list[str] | OSError]] = {}
        self._slots = asyncio.Semaphore(MAX_LOOKUPS)
        self._slow_slots = asyncio.Semaphore(MAX_SLOW_LOOKUPS)
        self._slow_hosts: dict[str, float] = {}

    async def addresses(self, endpoint: ServerEndpoint, deadline: float) -> list[str]:
        """Return the addresses of a host. See `resolve`."""
        host = endpoint.host
        if is_ip_address(host):
            return [host]
        if (lookup := self._pending.get(host)) is None:
            lookup = self._pending[host] = asyncio.create_task(self._lookup(host), name=f"lookup of {host}")
            lookup.add_done_callback(lambda _: self._pending.pop(host))
        # The lookup continues for the next caller: its thread cannot be cancelled anyway.
        await asyncio.wait([lookup], timeout=deadline - asyncio.get_running_loop().time())
        if not lookup.done():
            raise ServerUnreachable(endpoint, "DNS did not respond in time")
        found = lookup.result()
        if isinstance(found, OSError):
            raise ServerUnreachable(endpoint, f"its name does not resolve: {found.strerror or found}")
        return found

    async def _lookup(self, host: str) -> list[str] | OSError:
        """Return the addresses or the error.

        Possibly no caller is left to receive an exception.
        """
        clock = asyncio.get_running_loop().time
        is_slow = clock() < self._slow_hosts.get(host, 0.0)
        async with self._slow_slots if is_slow else self._slots:
            begun = clock()
            answer = asyncio.ensure_future(self._lookup_function(host))
            await asyncio.wait([answer], timeout=None if is_slow else LOOKUP_SLOT_SECONDS)
        self._slow_hosts.pop(host, None)
        try:
            return await answer
        except OSError as failure:
            if (now := clock()) - begun >= LOOKUP_SLOT_SECONDS:
                still = {other: until for other, until in self._slow_hosts.items() if until > now}
                self._slow_hosts = {**still, host: now + _SLOW_MEMORY_SECONDS}
            return failure


def is_ip_address(host: str) -> bool:
    """Return True if the host is an IP address."""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


async def resolve_in_thread(host: str) -> list[str]:
    """Resolve with the system's resolver, including `/etc/hosts` and search domains. Raises `OSError`."""
    answer: Future[list[str]] = Future()
    # The lookup cannot be cancelled, and the process does not wait for the thread when it ends.
    answer.set_running_or_notify_cancel()

    def look_up() -> None:
        try:
            found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM, proto=socket.IPPROTO_TCP)
            answer.set_result(list(dict.fromkeys(str(address[0]) for *_, address in found)))
        except UnicodeError:
            answer.set_exception(OSError("it is not a valid host name"))
        except Exception as error:
            answer.set_exception(error)

    threading.Thread(target=look_up, name=f"lookup of {host}", daemon=True).start()
    return await asyncio.wrap_future(answer)


_resolvers: WeakKeyDictionary[AbstractEventLoop, Resolver] = WeakKeyDictionary()


async def resolve(endpoint: ServerEndpoint, deadline: float, networks: Sequence[Network] = ()) -> list[str]:
    """Return the permitted addresses of a host, the best first.

    Connect to these addresses: the name may resolve to another one the next time.

    Args:
        deadline: the event loop's time.
        networks: networks that the addresses must be in. Empty permits all.

    Raises:
        ServerUnreachable: the name has no permitted address, or DNS does not respond. See `refusal`.
    """
    loop = asyncio.get_running_loop()
    if (resolver := _resolvers.get(loop)) is None:
        resolver = _resolvers[loop] = Resolver(resolve_in_thread)
    found = await resolver.addresses(endpoint, deadline)
    refusals = {address: refusal(address, networks) for address in found}
    permitted = [address for address in found if not refusals[address]]
    if not permitted:
        raise ServerUnreachable(endpoint, refusals[found[0]])
    return permitted
