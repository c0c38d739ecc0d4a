"""Names that DNS does not answer for, and how little they hold up others."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from steersman_databases.engines.connection.dns import (
    LOOKUP_SLOT_SECONDS,
    MAX_LOOKUPS,
    MAX_SLOW_LOOKUPS,
    Resolver,
    resolve,
)
from steersman_databases.engines.connection.networks import parse_networks, refusal
from steersman_databases.engines.errors import ServerUnreachable
from steersman_databases.engines.mysql.sql import session as mysql
from steersman_databases.engines.postgresql.sql import session as postgresql
from steersman_databases.engines.server import DatabaseServer, Login, ServerEndpoint, TLSMode, Verification
from steersman_testing import virtual_time

Connect = Callable[[DatabaseServer, float], Coroutine[Any, Any, object]]

LOGIN = Login("admin", "s3cret")
SILENCE_SECONDS = 20.0
"""As long as glibc asks a server twice about a name, and about it with a search domain."""


class Dns:
    """The zone example.com is silent; the others answer."""

    def __init__(self) -> None:
        self.silent = "example.com"
        self.asked: list[str] = []
        self.pending = 0
        self.most_pending = 0
        self.resolver = Resolver(self.look_up)

    async def look_up(self, host: str) -> list[str]:
        self.asked.append(host)
        self.pending += 1
        self.most_pending = max(self.pending, self.most_pending)
        try:
            await asyncio.sleep(SILENCE_SECONDS if host.endswith(self.silent) else 0.005)
        finally:
            self.pending -= 1
        if host.endswith(self.silent):
            raise socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")
        return ["10.0.0.1", "10.0.0.2"]

    async def find(self, host: str, seconds: float = 5.0) -> list[str]:
        return await self.resolver.addresses(ServerEndpoint(host, 5432), asyncio.get_running_loop().time() + seconds)

    async def seconds_for(self, host: str) -> float:
        """How long a name takes that is found."""
        begun = asyncio.get_running_loop().time()
        assert await self.find(host) == ["10.0.0.1", "10.0.0.2"]
        return asyncio.get_running_loop().time() - begun

    async def ask_in_vain(self, names: int) -> None:
        """Asks for as many silent ones as new connections do, and is told so in time."""
        asking = [self.find(f"db{number}.example.com") for number in range(names)]
        for error in await asyncio.gather(*asking, return_exceptions=True):
            assert isinstance(error, ServerUnreachable)
            assert error.reason == "DNS did not respond in time"


async def connect_postgresql(server: DatabaseServer, deadline: float) -> object:
    return await postgresql.connect(server, LOGIN, "postgres", deadline)


async def connect_mysql(server: DatabaseServer, deadline: float) -> object:
    return await mysql.connect(server, LOGIN, None, deadline)


@pytest.mark.parametrize("connect", [connect_postgresql, connect_mysql])
async def test_resolvable_host_is_reached_while_others_hang(
    connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, dns_is_back, really = threading.Event(), threading.Event(), socket.getaddrinfo

    def look_up(host: str, *how: Any, **more: Any) -> Any:
        if host == "known.example.org":
            return really("127.0.0.1", *how, **more)
        asked.set()
        dns_is_back.wait()
        raise socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")

    def trying(host: str, port: int, seconds: float) -> asyncio.Task[object]:
        server = DatabaseServer("any", ServerEndpoint(host, port), LOGIN, Verification(TLSMode.DISABLE))
        return asyncio.create_task(connect(server, asyncio.get_running_loop().time() + seconds))

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        try:
            hung = [trying(f"db{number}.example.com", 1, 0.5) for number in range(24)]
            await asyncio.sleep(0)
            with pytest.raises(ServerUnreachable, match=r"(?i)refused|connect call failed"):
                await trying("known.example.org", nobody.getsockname()[1], 5)
            assert asked.is_set()
            words = [str(error) for error in await asyncio.gather(*hung, return_exceptions=True)]
            expected = [f"cannot reach db{n}.example.com:1: DNS did not respond in time" for n in range(24)]
            assert words == expected
        finally:
            dns_is_back.set()


@virtual_time
async def test_silent_hosts_cost_bounded_delay() -> None:
    dns, names = Dns(), 5 * MAX_LOOKUPS
    asking = asyncio.create_task(dns.ask_in_vain(names))
    await asyncio.sleep(0)
    assert await dns.seconds_for("db.example.org") < 5 * LOOKUP_SLOT_SECONDS + 1
    await asking
    assert dns.most_pending == names


@virtual_time
async def test_known_silent_hosts_cost_nothing() -> None:
    dns, names = Dns(), 5 * MAX_SLOW_LOOKUPS
    await dns.ask_in_vain(names)
    await asyncio.sleep(2 * SILENCE_SECONDS)
    dns.most_pending = 0
    for _ in range(20):
        asking = asyncio.create_task(dns.ask_in_vain(names))
        await asyncio.sleep(1)
        assert await dns.seconds_for("db.example.org") < 0.01
        await asking
    assert dns.most_pending == MAX_SLOW_LOOKUPS + 1


@virtual_time
async def test_recovered_host_is_not_slow() -> None:
    dns = Dns()
    await dns.ask_in_vain(1)
    await asyncio.sleep(SILENCE_SECONDS)
    dns.silent = "other.example.com"
    await dns.find("db0.example.com")
    for number in range(MAX_SLOW_LOOKUPS):
        with pytest.raises(ServerUnreachable):
            await dns.find(f"{number}.other.example.com", 0)
    await asyncio.sleep(2 * SILENCE_SECONDS)
    again = [asyncio.create_task(dns.find(f"{number}.other.example.com")) for number in range(MAX_SLOW_LOOKUPS)]
    await asyncio.sleep(1)
    assert await dns.seconds_for("db0.example.com") < 0.01
    await asyncio.gather(*again, return_exceptions=True)


@virtual_time
async def test_lookups_of_one_host_are_shared() -> None:
    dns = Dns()
    for _ in range(3):
        asking = [dns.find("db.example.com", 2) for _ in range(10)]
        assert all(isinstance(e, ServerUnreachable) for e in await asyncio.gather(*asking, return_exceptions=True))
    assert dns.asked == ["db.example.com"]
    with pytest.raises(ServerUnreachable, match="its name does not resolve: Temporary failure in name resolution"):
        await dns.find("db.example.com", SILENCE_SECONDS)
    assert await asyncio.gather(*(dns.seconds_for("db.example.org") for _ in range(10)))
    assert dns.asked == ["db.example.com", "db.example.org"]


@virtual_time
async def test_ip_address_needs_no_lookup() -> None:
    dns = Dns()
    assert [await dns.find(host) for host in ("10.0.0.9", "fd00::9")] == [["10.0.0.9"], ["fd00::9"]]
    assert not dns.asked


@pytest.mark.parametrize(
    ("host", "words"),
    [
        ("nobody.invalid", "its name does not resolve: no such name here"),
        ("db..example.com", "its name does not resolve: it is not a valid host name"),
    ],
)
async def test_host_without_address_is_reported(host: str, words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def look_up(host: str, *_: Any, **__: Any) -> Any:
        host.encode("idna")
        raise socket.gaierror(socket.EAI_NONAME, "no such name here")

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    with pytest.raises(ServerUnreachable) as caught:
        await resolve(ServerEndpoint(host, 5432), asyncio.get_running_loop().time() + 5)
    assert str(caught.value) == f"cannot reach {host}:5432: {words}"


async def test_addresses_are_tried_in_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[str] = []

    def look_up(host: str, *_: Any, **__: Any) -> Any:
        kind = (socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, "")
        return [(*kind, (address, 0)) for address in ("127.0.0.2", "127.0.0.3", "127.0.0.2", "127.0.0.4")]

    async def answer(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        tried.append(writer.get_extra_info("sockname")[0])
        writer.close()

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    third = await asyncio.start_server(answer, "127.0.0.4", 0)
    port = third.sockets[0].getsockname()[1]
    async with third, await asyncio.start_server(answer, "127.0.0.3", port):
        for connect in (connect_postgresql, connect_mysql):
            tried.clear()
            server = DatabaseServer(
                "any", ServerEndpoint("db.example.org", port), LOGIN, Verification(TLSMode.DISABLE)
            )
            with pytest.raises(ServerUnreachable):
                await connect(server, asyncio.get_running_loop().time() + 5)
            assert tried[0] == "127.0.0.3"


@pytest.mark.parametrize("connect", [connect_postgresql, connect_mysql])
async def test_error_message_ignores_address_order(connect: Connect, monkeypatch: pytest.MonkeyPatch) -> None:
    addresses = ["127.0.0.2", "127.0.0.3", "127.0.0.4"]

    def look_up(host: str, *_: Any, **__: Any) -> Any:
        addresses.append(addresses.pop(0))
        return [(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", (address, 0)) for address in addresses]

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        server = DatabaseServer("any", ServerEndpoint("db.example.org", port), LOGIN, Verification(TLSMode.DISABLE))
        told: set[str] = set()
        for _ in addresses:
            with pytest.raises(ServerUnreachable) as caught:
                await connect(server, asyncio.get_running_loop().time() + 5)
            told.add(str(caught.value))
    assert len(told) == 1 and "127.0.0.2" in told.pop()


@pytest.mark.parametrize(
    "address", ["169.254.169.254", "fe80::1", "fe80::1%eth0", "::ffff:169.254.169.254", "0.0.0.0"]
)
async def test_addresses_of_the_node_are_refused(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert refusal(address)

    def look_up(*_: object, **__: object) -> list[Any]:
        return [(None, None, None, "", (address, 0))]

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    with pytest.raises(ServerUnreachable, match="is an address of the node or the pod"):
        await resolve(ServerEndpoint("metadata.example.org", 5432), asyncio.get_running_loop().time() + 5)


def test_loopback_is_refused_in_a_pod_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    assert not refusal("127.0.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.96.0.1")
    assert refusal("127.0.0.1") and refusal("::1")
    assert not refusal("10.0.0.7")


@pytest.mark.parametrize("address", ["10.96.0.1", "::ffff:10.96.0.1", "fd00::1"])
def test_api_server_address_is_refused(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "fd00::1" if address == "fd00::1" else "10.96.0.1")
    assert "address of the API server" in refusal(address)


def test_address_outside_server_networks_is_refused() -> None:
    networks = parse_networks(["10.0.0.0/8, 192.0.2.7/32", "2001:db8::/32"])
    for address in ("10.1.2.3", "192.0.2.7", "2001:db8::1", "::ffff:10.1.2.3"):
        assert not refusal(address, networks), address
    for address in ("11.0.0.1", "192.0.2.8", "2001:db9::1"):
        assert "Add its network to --server-networks" in refusal(address, networks), address
    assert refusal("169.254.169.254", parse_networks(["0.0.0.0/0"])), "never permitted"


@pytest.mark.parametrize("connect", [connect_postgresql, connect_mysql])
async def test_connections_use_checked_addresses_only(connect: Connect, monkeypatch: pytest.MonkeyPatch) -> None:
    """The name resolves to another address at each lookup, and the server behind the second one accepts."""
    lookups = iter(["127.0.0.2", "127.0.0.1", "127.0.0.1"])
    accepted: list[object] = []

    def look_up(*_: object, **__: object) -> list[Any]:
        return [(None, None, None, "", (next(lookups), 0))]

    def on_connection(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        accepted.append(writer)
        writer.close()

    listening = await asyncio.start_server(on_connection, "127.0.0.1", 0)
    async with listening:
        bound = listening.sockets[0].getsockname()[1]
        endpoint = ServerEndpoint("rebinding.example.org", bound)
        monkeypatch.setattr(socket, "getaddrinfo", look_up)
        server = DatabaseServer(
            "any", endpoint, LOGIN, Verification(TLSMode.DISABLE), networks=parse_networks(["127.0.0.2/32"])
        )
        with pytest.raises(ServerUnreachable):
            await connect(server, asyncio.get_running_loop().time() + 5)
        with pytest.raises(ServerUnreachable, match="outside the permitted networks"):
            await connect(server, asyncio.get_running_loop().time() + 5)
    assert accepted == []
