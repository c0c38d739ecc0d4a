"""Report of a node, from ``CLUSTER NODES`` and ``INFO replication``."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from redis_operator.nodes.protocol import Address, LoginRejected, Redis, RedisError, Unreachable
from redis_operator.nodes.slots import Slots


@dataclass(frozen=True, slots=True)
class NodeEntry:
    """One line of ``CLUSTER NODES``.

    Attributes:
        id: the node ID, 40 hexadecimal digits.
        address: the address. None if the reporting node does not know it.
        flags: the flags, such as ``master``, ``slave``, ``fail`` or ``noaddr``.
        master: the node ID of the master of a replica. Empty for a master.
        connected: True if the reporting node has a connection to this node.
        slots: the slots that a master serves.
        migrating: only for the reporting node: outgoing slots with the node ID of the target.
        importing: only for the reporting node: incoming slots with the node ID of the source.
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
class NodeReport:
    """State that one node reports.

    Attributes:
        myself: the entry of the reporting node.
        others: the entries of the other nodes, by node ID.
        replicates_from: the configured address of the master of a replica. It may be outdated.
        in_sync: True for a master, and for a replica that has finished its synchronization.
        serving: True if the cluster state is ok. After a start or a failure it is False for a time.
    """

    myself: NodeEntry
    others: Mapping[str, NodeEntry]
    replicates_from: Address | None = None
    in_sync: bool = True
    serving: bool = True

    @property
    def table(self) -> dict[str, NodeEntry]:
        """Entries of all known nodes including this one, by node ID."""
        return {self.myself.id: self.myself, **self.others}


async def fetch_report(redis: Redis, address: Address, password: str) -> NodeReport:
    """Fetch the report of one node. Raises the errors of ``Redis.execute``."""
    commands = (("CLUSTER", "NODES"), ("CLUSTER", "INFO"), ("INFO", "replication"))
    nodes, cluster, replication = await redis.execute(address, password, *commands)
    return _parse_report(str(nodes), f"{cluster}\n{replication}")


async def fetch_reports(
    redis: Redis, addresses: Iterable[Address], password: str
) -> dict[Address, NodeReport | LoginRejected | RedisError | Unreachable]:
    """Fetch the reports of all nodes concurrently. Errors replace the reports of their nodes."""

    async def fetch_or_error(address: Address) -> NodeReport | LoginRejected | RedisError | Unreachable:
        try:
            return await fetch_report(redis, address, password)
        except (RedisError, Unreachable) as error:
            return error

    targets = list(addresses)
    return dict(zip(targets, await asyncio.gather(*(fetch_or_error(at) for at in targets)), strict=True))


def _parse_report(nodes: str, info: str) -> NodeReport:
    entries = [_parse_entry(line.split()) for line in nodes.splitlines() if line]
    myself = next(entry for entry in entries if "myself" in entry.flags)
    others = {e.id: e for e in entries if e is not myself and "handshake" not in e.flags}
    facts = dict(line.split(":", 1) for line in info.splitlines() if ":" in line)
    in_sync = myself.is_master or (
        facts.get("master_link_status") == "up" and facts.get("master_sync_in_progress") == "0"
    )
    replicates_from = (
        None if myself.is_master else Address(facts.get("master_host", ""), int(facts.get("master_port", "0")))
    )
    return NodeReport(myself, others, replicates_from, in_sync, serving=facts.get("cluster_state") == "ok")


def _parse_entry(fields: list[str]) -> NodeEntry:
    """Parse ``id ip:port@bus[,name] flags master ping pong epoch link slot…``.

    Source: https://redis.io/docs/latest/commands/cluster-nodes/
    """
    node, node_address, flags, master, _, _, _, link, *ranges = fields
    slots = Slots()
    moving: dict[str, dict[int, str]] = {"->-": {}, "-<-": {}}
    for slot_range in ranges:
        if slot_range.startswith("["):
            arrow = "->-" if "->-" in slot_range else "-<-"
            slot, other = slot_range.strip("[]").split(arrow)
            moving[arrow][int(slot)] = other
        else:
            first, _, last = slot_range.partition("-")
            slots |= Slots.from_range(int(first), int(last or first))
    return NodeEntry(
        id=node,
        address=_parse_address(node_address),
        flags=frozenset(flags.rstrip("?").split(",")),
        master=master.strip("-"),
        connected=link == "connected",
        slots=slots,
        migrating=moving["->-"],
        importing=moving["-<-"],
    )


def _parse_address(text: str) -> Address | None:
    ip, _, port = text.partition("@")[0].rpartition(":")
    return Address(ip, int(port)) if ip and port != "0" else None
