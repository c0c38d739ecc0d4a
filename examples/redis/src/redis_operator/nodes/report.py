"""What a node says of itself and of its cluster: ``CLUSTER NODES`` and ``INFO replication``, read."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from redis_operator.nodes.port import Address, LoginRejected, Redis, RedisError, Unreachable
from redis_operator.nodes.slots import Slots


@dataclass(frozen=True, slots=True)
class Entry:
    """One line of ``CLUSTER NODES``.

    Attributes:
        id: the node's own, 40 hexadecimal digits.
        address: None where the node that tells does not know it.
        flags: as in ``master``, ``slave``, ``fail``, ``noaddr``.
        master: of a replica, the id of its master; else empty.
        connected: whether the node that tells has a connection to it.
        slots: that it serves, of a master.
        moving: of the node that tells: slots on their way, with the id of the node that they go to (``migrating``)
            or come from (``importing``).
    """

    id: str
    address: Address | None
    flags: frozenset[str]
    master: str
    connected: bool
    slots: Slots
    migrating: Mapping[int, str] = field(default_factory=dict[int, str])
    importing: Mapping[int, str] = field(default_factory=dict[int, str])

    @property
    def is_master(self) -> bool:
        return "master" in self.flags


@dataclass(frozen=True, slots=True)
class Report:
    """A node's own view.

    Attributes:
        me: what it says of itself.
        others: of the nodes that it knows, by their ids.
        follows: of a replica: where it looks for its master, which may be where that one was before.
        in_sync: of a replica: whether it has what its master has, but for what is under way.
        serving: whether it answers clients; after a start or a loss it waits for the others first.
    """

    me: Entry
    others: Mapping[str, Entry]
    follows: Address | None = None
    in_sync: bool = True
    serving: bool = True

    @property
    def table(self) -> dict[str, Entry]:
        """All nodes that it knows, itself among them, by their ids."""
        return {self.me.id: self.me, **self.others}


async def look(redis: Redis, at: Address, password: str) -> Report:
    """Asks the node. Raises as ``Redis.execute`` does."""
    commands = (("CLUSTER", "NODES"), ("CLUSTER", "INFO"), ("INFO", "replication"))
    nodes, cluster, replication = await redis.execute(at, password, *commands)
    return _report(str(nodes), f"{cluster}\n{replication}")


async def reports_of(
    redis: Redis, addresses: Iterable[Address], password: str
) -> dict[Address, Report | LoginRejected | RedisError | Unreachable]:
    """Asks all of them at once; what went wrong stands in the place of a report."""

    async def one(at: Address) -> Report | LoginRejected | RedisError | Unreachable:
        try:
            return await look(redis, at, password)
        except (RedisError, Unreachable) as error:
            return error

    asked = list(addresses)
    return dict(zip(asked, await asyncio.gather(*(one(at) for at in asked)), strict=True))


def _report(nodes: str, info: str) -> Report:
    entries = [_entry(line.split()) for line in nodes.splitlines() if line]
    me = next(entry for entry in entries if "myself" in entry.flags)
    others = {e.id: e for e in entries if e is not me and "handshake" not in e.flags}
    facts = dict(line.split(":", 1) for line in info.splitlines() if ":" in line)
    in_sync = me.is_master or (
        facts.get("master_link_status") == "up" and facts.get("master_sync_in_progress") == "0"
    )
    follows = None if me.is_master else Address(facts.get("master_host", ""), int(facts.get("master_port", "0")))
    return Report(me, others, follows, in_sync, serving=facts.get("cluster_state") == "ok")


def _entry(words: list[str]) -> Entry:
    """``id ip:port@bus[,name] flags master ping pong epoch link slot…``, as Redis documents CLUSTER NODES."""
    node, place, flags, master, _, _, _, link, *ranges = words
    slots = Slots()
    moving: dict[str, dict[int, str]] = {"->-": {}, "-<-": {}}
    for each in ranges:
        if each.startswith("["):
            arrow = "->-" if "->-" in each else "-<-"
            slot, other = each.strip("[]").split(arrow)
            moving[arrow][int(slot)] = other
        else:
            first, _, last = each.partition("-")
            slots |= Slots.between(int(first), int(last or first))
    return Entry(
        id=node,
        address=_address(place),
        flags=frozenset(flags.rstrip("?").split(",")),
        master=master.strip("-"),
        connected=link == "connected",
        slots=slots,
        migrating=moving["->-"],
        importing=moving["-<-"],
    )


def _address(place: str) -> Address | None:
    ip, _, port = place.partition("@")[0].rpartition(":")
    return Address(ip, int(port)) if ip and port != "0" else None
