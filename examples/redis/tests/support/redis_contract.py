"""Behavior of Redis that the operator relies on.

The cases run on models and on real servers."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

import pytest
from redis.crc import key_slot

from redis_operator.nodes import (
    SLOT_COUNT,
    Address,
    LoginRejected,
    NodeEntry,
    NodeReport,
    Redis,
    RedisError,
    Unreachable,
    fetch_report,
)

PASSWORD = "t0p-secret"
KEYS = {f"word-{number}": str(number) for number in range(40)}
Restart = Callable[[int], Awaitable[Address]]


class ContractCluster:
    """Three masters and a replica of the first.

    Args:
        redis: sends commands to models or to real servers.
        addresses: the addresses of four empty nodes.
        restart: restarts a node with another address and returns it.
    """

    def __init__(self, redis: Redis, addresses: Sequence[Address], restart: Restart) -> None:
        self.redis = redis
        self.addresses = list(addresses)
        self.restart = restart

    async def execute(self, number: int, *commands: tuple[str | int, ...]) -> list[object]:
        return list(await self.redis.execute(self.addresses[number], PASSWORD, *commands))

    async def expect_error(self, number: int, *command: str | int) -> str:
        with pytest.raises(RedisError) as raised:
            await self.execute(number, command)
        return str(raised.value)

    async def report(self, number: int) -> NodeReport:
        return await fetch_report(self.redis, self.addresses[number], PASSWORD)

    async def wait_until(self, description: str, probe: Callable[[], Awaitable[bool]]) -> None:
        async with asyncio.timeout(40):
            while not await probe():
                await asyncio.sleep(0.1)

    async def entry(self, observer: int, subject: int) -> NodeEntry | None:
        return (await self.report(observer)).table.get((await self.report(subject)).myself.id)

    async def all_agree(self) -> bool:
        """Return True if all nodes report the same addresses, roles and slots."""
        reports = [await self.report(number) for number in range(4)]
        expected = {
            r.myself.id: (place, r.myself.master, r.myself.slots)
            for r, place in zip(reports, self.addresses, strict=True)
        }
        return all(
            {e.id: (e.address, e.master, e.slots) for e in report.table.values()} == expected
            and all(e.connected for e in report.table.values())
            for report in reports
        )

    async def form_cluster(self) -> None:
        """Form a cluster with the commands that the operator sends."""
        await self.execute(0, *(("CLUSTER", "MEET", place.ip, place.port) for place in self.addresses[1:]))
        await self.wait_until("all know all", self.all_agree)
        third = SLOT_COUNT // 3
        await self.execute(0, ("CLUSTER", "ADDSLOTSRANGE", 0, third))
        await self.execute(1, ("CLUSTER", "ADDSLOTSRANGE", third + 1, 2 * third))
        await self.execute(2, ("CLUSTER", "ADDSLOTSRANGE", 2 * third + 1, SLOT_COUNT - 1))
        master = (await self.report(0)).myself.id
        await self.execute(3, ("CLUSTER", "REPLICATE", master))
        await self.wait_until("all agree", self.all_agree)
        await self.wait_until("the replica is in sync", self.all_in_sync)
        await self.wait_until("all serve", self.all_serving)

    async def all_in_sync(self) -> bool:
        return all([(await self.report(number)).in_sync for number in range(4)])

    async def all_serving(self) -> bool:
        return all([(await self.report(number)).serving for number in range(len(self.addresses))])

    async def find_replica(self) -> int:
        """Return the index of the replica."""
        (found,) = [number for number in range(4) if not (await self.report(number)).myself.is_master]
        return found

    async def write_keys(self) -> None:
        for key, value in KEYS.items():
            await self.execute(await self.slot_owner(key), ("SET", key, value))

    async def slot_owner(self, key: str) -> int:
        for number in range(len(self.addresses)):
            if key_slot(key.encode()) in (await self.report(number)).myself.slots:
                return number
        raise AssertionError(f"no node has the slot of {key}")

    async def read_keys(self) -> dict[str, object]:
        return {key: (await self.execute(await self.slot_owner(key), ("GET", key)))[0] for key in KEYS}


async def run_all_cases(cluster: ContractCluster) -> None:
    """Run all cases on one cluster, because forming a cluster takes seconds."""
    fresh = await cluster.report(0)
    assert fresh.myself.is_master
    assert not fresh.myself.slots
    assert not fresh.others
    assert not fresh.serving
    await cluster.form_cluster()
    await cluster.write_keys()
    for case in (
        unsafe_commands_are_rejected,
        slots_move_with_their_keys,
        a_move_can_be_released,
        a_replica_takes_over,
        nodes_find_each_other_at_other_addresses,
        a_node_leaves,
    ):
        await case(cluster)
        await cluster.wait_until("all serve", cluster.all_serving)
        assert await cluster.read_keys() == KEYS, case.__name__


async def unsafe_commands_are_rejected(cluster: ContractCluster) -> None:
    """Redis rejects commands that could lose keys."""
    assert "busy" in await cluster.expect_error(1, "CLUSTER", "ADDSLOTSRANGE", 0, 0)
    assert "must be empty" in await cluster.expect_error(
        1, "CLUSTER", "REPLICATE", (await cluster.report(0)).myself.id
    )
    assert "to a replica" in await cluster.expect_error(0, "CLUSTER", "FAILOVER")
    assert "containing keys" in await cluster.expect_error(1, "CLUSTER", "RESET", "HARD")
    master = (await cluster.report(3)).myself.master
    assert "forget my master" in await cluster.expect_error(3, "CLUSTER", "FORGET", master)
    with pytest.raises(LoginRejected):
        await fetch_report(cluster.redis, cluster.addresses[0], "wrong")
    with pytest.raises(Unreachable):
        await fetch_report(cluster.redis, Address(cluster.addresses[0].ip, 6380), PASSWORD)


async def slots_move_with_their_keys(cluster: ContractCluster) -> None:
    """Slots move in the operator's order. Nodes report each intermediate state."""
    source, target = (await cluster.report(1)).myself, (await cluster.report(2)).myself
    key = next(key for key in KEYS if key_slot(key.encode()) in source.slots)
    slot = key_slot(key.encode())
    await cluster.execute(2, ("CLUSTER", "SETSLOT", slot, "IMPORTING", source.id))
    assert (await cluster.report(2)).myself.importing == {slot: source.id}
    await cluster.execute(1, ("CLUSTER", "SETSLOT", slot, "MIGRATING", target.id))
    assert (await cluster.report(1)).myself.migrating == {slot: target.id}
    assert "still hold keys" in await cluster.expect_error(1, "CLUSTER", "SETSLOT", slot, "NODE", target.id)
    (keys,) = await cluster.execute(1, ("CLUSTER", "GETKEYSINSLOT", slot, 10))
    assert keys == [key]
    destination = cluster.addresses[2]
    move = ("MIGRATE", destination.ip, destination.port, "", 0, 5000, "REPLACE", "AUTH", PASSWORD, "KEYS", key)
    assert await cluster.execute(1, move, ("CLUSTER", "COUNTKEYSINSLOT", slot)) == ["OK", 0]
    for number in (2, 1):
        await cluster.execute(number, ("CLUSTER", "SETSLOT", slot, "NODE", target.id))
    await cluster.wait_until("all agree", cluster.all_agree)
    assert not (await cluster.report(2)).myself.importing
    assert not (await cluster.report(1)).myself.migrating
    assert slot in (await cluster.report(2)).myself.slots


async def a_move_can_be_released(cluster: ContractCluster) -> None:
    """STABLE cancels a move."""
    source, target = (await cluster.report(1)).myself, (await cluster.report(2)).myself
    slot = next(iter(source.slots))
    await cluster.execute(2, ("CLUSTER", "SETSLOT", slot, "IMPORTING", source.id))
    await cluster.execute(1, ("CLUSTER", "SETSLOT", slot, "MIGRATING", target.id))
    for number in (1, 2):
        await cluster.execute(number, ("CLUSTER", "SETSLOT", slot, "STABLE"))
    assert not (await cluster.report(2)).myself.importing
    assert not (await cluster.report(1)).myself.migrating
    assert "not the owner" in await cluster.expect_error(2, "CLUSTER", "SETSLOT", slot, "MIGRATING", source.id)


async def a_replica_takes_over(cluster: ContractCluster) -> None:
    """A replica takes over, and its master becomes a replica."""
    master = (await cluster.report(0)).myself
    await cluster.execute(3, ("CLUSTER", "FAILOVER"))

    async def taken_over() -> bool:
        return (await cluster.report(3)).myself.is_master and not (await cluster.report(0)).myself.is_master

    await cluster.wait_until("the replica is master", taken_over)
    await cluster.wait_until("all agree", cluster.all_agree)
    assert (await cluster.report(3)).myself.slots == master.slots


async def nodes_find_each_other_at_other_addresses(cluster: ContractCluster) -> None:
    """Nodes that restart with other addresses find each other after one MEET."""
    ids = [(await cluster.report(number)).myself.id for number in range(4)]
    for number in range(4):
        cluster.addresses[number] = await cluster.restart(number)
    assert [(await cluster.report(number)).myself.id for number in range(4)] == ids
    await cluster.execute(0, *(("CLUSTER", "MEET", place.ip, place.port) for place in cluster.addresses[1:]))
    await cluster.wait_until("all agree", cluster.all_agree)
    # If gossip arrives before the master's own message, the replica keeps the old address.
    replica = await cluster.find_replica()
    await cluster.execute(replica, ("CLUSTER", "REPLICATE", (await cluster.report(replica)).myself.master))
    await cluster.wait_until("the replica is in sync", cluster.all_in_sync)
    assert (await cluster.report(replica)).replicates_from in cluster.addresses


async def a_node_leaves(cluster: ContractCluster) -> None:
    """A hard reset creates a new empty node. The other nodes forget its old ID."""
    leaving = await cluster.find_replica()
    old_id = (await cluster.report(leaving)).myself.id
    await cluster.execute(leaving, ("CLUSTER", "RESET", "HARD"))
    isolated = await cluster.report(leaving)
    assert isolated.myself.id != old_id
    assert isolated.myself.is_master
    assert not isolated.others
    remaining = [number for number in range(4) if number != leaving]
    for number in remaining:
        await cluster.execute(number, ("CLUSTER", "FORGET", old_id))
    cluster.addresses.pop(leaving)
    tables = [(await cluster.report(number)).table for number in range(3)]
    assert all(old_id not in table and isolated.myself.id not in table for table in tables)
