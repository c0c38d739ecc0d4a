"""What the operator takes for granted of Redis, played on the model and on real servers alike."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

import pytest
from redis.crc import key_slot

from redis_operator.nodes import SLOTS, Address, Entry, LoginRejected, Redis, RedisError, Report, Unreachable, look

PASSWORD = "t0p-secret"
KEYS = {f"word-{number}": str(number) for number in range(40)}
Restart = Callable[[int], Awaitable[Address]]


class Cluster:
    """Three masters and a replica of the first, told by the commands that the operator sends.

    Args:
        redis: the model, or what speaks with real servers.
        addresses: of four empty nodes.
        restart: starts a node anew, with another address.
    """

    def __init__(self, redis: Redis, addresses: Sequence[Address], restart: Restart) -> None:
        self.redis = redis
        self.addresses = list(addresses)
        self.restart = restart

    async def tell(self, number: int, *commands: tuple[str | int, ...]) -> list[object]:
        return list(await self.redis.execute(self.addresses[number], PASSWORD, *commands))

    async def refuses(self, number: int, *command: str | int) -> str:
        with pytest.raises(RedisError) as refused:
            await self.tell(number, command)
        return str(refused.value)

    async def report(self, number: int) -> Report:
        return await look(self.redis, self.addresses[number], PASSWORD)

    async def until(self, what: str, probe: Callable[[], Awaitable[bool]]) -> None:
        async with asyncio.timeout(40):
            while not await probe():
                await asyncio.sleep(0.1)

    async def entry(self, at: int, of: int) -> Entry | None:
        return (await self.report(at)).table.get((await self.report(of)).me.id)

    async def all_agree(self) -> bool:
        """All know all, by their addresses, with what each says of itself."""
        reports = [await self.report(number) for number in range(4)]
        said = {r.me.id: (place, r.me.master, r.me.slots) for r, place in zip(reports, self.addresses, strict=True)}
        return all(
            {e.id: (e.address, e.master, e.slots) for e in report.table.values()} == said
            and all(e.connected for e in report.table.values())
            for report in reports
        )

    async def form(self) -> None:
        """As the operator does."""
        await self.tell(0, *(("CLUSTER", "MEET", place.ip, place.port) for place in self.addresses[1:]))
        await self.until("all know all", self.all_agree)
        third = SLOTS // 3
        await self.tell(0, ("CLUSTER", "ADDSLOTSRANGE", 0, third))
        await self.tell(1, ("CLUSTER", "ADDSLOTSRANGE", third + 1, 2 * third))
        await self.tell(2, ("CLUSTER", "ADDSLOTSRANGE", 2 * third + 1, SLOTS - 1))
        master = (await self.report(0)).me.id
        await self.tell(3, ("CLUSTER", "REPLICATE", master))
        await self.until("all agree", self.all_agree)
        await self.until("the replica is in sync", self.in_sync)
        await self.until("all serve", self.serves)

    async def in_sync(self) -> bool:
        return all([(await self.report(number)).in_sync for number in range(4)])

    async def serves(self) -> bool:
        return all([(await self.report(number)).serving for number in range(len(self.addresses))])

    async def replica(self) -> int:
        """The number of the one that is no master."""
        (found,) = [number for number in range(4) if not (await self.report(number)).me.is_master]
        return found

    async def write(self) -> None:
        for key, value in KEYS.items():
            await self.tell(await self.owner(key), ("SET", key, value))

    async def owner(self, key: str) -> int:
        for number in range(len(self.addresses)):
            if key_slot(key.encode()) in (await self.report(number)).me.slots:
                return number
        raise AssertionError(f"nobody has the slot of {key}")

    async def served(self) -> dict[str, object]:
        return {key: (await self.tell(await self.owner(key), ("GET", key)))[0] for key in KEYS}


async def all_cases(cluster: Cluster) -> None:
    """One after the other, since to form takes seconds."""
    fresh = await cluster.report(0)
    assert fresh.me.is_master
    assert not fresh.me.slots
    assert not fresh.others
    assert not fresh.serving
    await cluster.form()
    await cluster.write()
    for case in (
        what_is_refused,
        slots_move_with_their_keys,
        a_move_can_be_released,
        a_replica_takes_over,
        nodes_find_each_other_at_other_addresses,
        a_node_leaves,
    ):
        await case(cluster)
        await cluster.until("all serve", cluster.serves)
        assert await cluster.served() == KEYS, case.__name__


async def what_is_refused(cluster: Cluster) -> None:
    """What could lose keys is refused by the nodes themselves."""
    assert "busy" in await cluster.refuses(1, "CLUSTER", "ADDSLOTSRANGE", 0, 0)
    assert "must be empty" in await cluster.refuses(1, "CLUSTER", "REPLICATE", (await cluster.report(0)).me.id)
    assert "to a replica" in await cluster.refuses(0, "CLUSTER", "FAILOVER")
    assert "containing keys" in await cluster.refuses(1, "CLUSTER", "RESET", "HARD")
    master = (await cluster.report(3)).me.master
    assert "forget my master" in await cluster.refuses(3, "CLUSTER", "FORGET", master)
    with pytest.raises(LoginRejected):
        await look(cluster.redis, cluster.addresses[0], "wrong")
    with pytest.raises(Unreachable):
        await look(cluster.redis, Address(cluster.addresses[0].ip, 6380), PASSWORD)


async def slots_move_with_their_keys(cluster: Cluster) -> None:
    """In the operator's order; and each half-way state is told by the nodes themselves."""
    source, target = (await cluster.report(1)).me, (await cluster.report(2)).me
    key = next(key for key in KEYS if key_slot(key.encode()) in source.slots)
    slot = key_slot(key.encode())
    await cluster.tell(2, ("CLUSTER", "SETSLOT", slot, "IMPORTING", source.id))
    assert (await cluster.report(2)).me.importing == {slot: source.id}
    await cluster.tell(1, ("CLUSTER", "SETSLOT", slot, "MIGRATING", target.id))
    assert (await cluster.report(1)).me.migrating == {slot: target.id}
    assert "still hold keys" in await cluster.refuses(1, "CLUSTER", "SETSLOT", slot, "NODE", target.id)
    (keys,) = await cluster.tell(1, ("CLUSTER", "GETKEYSINSLOT", slot, 10))
    assert keys == [key]
    where = cluster.addresses[2]
    move = ("MIGRATE", where.ip, where.port, "", 0, 5000, "REPLACE", "AUTH", PASSWORD, "KEYS", key)
    assert await cluster.tell(1, move, ("CLUSTER", "COUNTKEYSINSLOT", slot)) == ["OK", 0]
    for at in (2, 1):
        await cluster.tell(at, ("CLUSTER", "SETSLOT", slot, "NODE", target.id))
    await cluster.until("all agree", cluster.all_agree)
    assert not (await cluster.report(2)).me.importing
    assert not (await cluster.report(1)).me.migrating
    assert slot in (await cluster.report(2)).me.slots


async def a_move_can_be_released(cluster: Cluster) -> None:
    """STABLE takes back what was opened."""
    source, target = (await cluster.report(1)).me, (await cluster.report(2)).me
    slot = next(iter(source.slots))
    await cluster.tell(2, ("CLUSTER", "SETSLOT", slot, "IMPORTING", source.id))
    await cluster.tell(1, ("CLUSTER", "SETSLOT", slot, "MIGRATING", target.id))
    for at in (1, 2):
        await cluster.tell(at, ("CLUSTER", "SETSLOT", slot, "STABLE"))
    assert not (await cluster.report(2)).me.importing
    assert not (await cluster.report(1)).me.migrating
    assert "not the owner" in await cluster.refuses(2, "CLUSTER", "SETSLOT", slot, "MIGRATING", source.id)


async def a_replica_takes_over(cluster: Cluster) -> None:
    """In concert with its master, which becomes its replica."""
    master = (await cluster.report(0)).me
    await cluster.tell(3, ("CLUSTER", "FAILOVER"))

    async def taken_over() -> bool:
        return (await cluster.report(3)).me.is_master and not (await cluster.report(0)).me.is_master

    await cluster.until("the replica is master", taken_over)
    await cluster.until("all agree", cluster.all_agree)
    assert (await cluster.report(3)).me.slots == master.slots


async def nodes_find_each_other_at_other_addresses(cluster: Cluster) -> None:
    """All start anew with other addresses at once; one meets the others, gossip does the rest."""
    ids = [(await cluster.report(number)).me.id for number in range(4)]
    for number in range(4):
        cluster.addresses[number] = await cluster.restart(number)
    assert [(await cluster.report(number)).me.id for number in range(4)] == ids
    await cluster.tell(0, *(("CLUSTER", "MEET", place.ip, place.port) for place in cluster.addresses[1:]))
    await cluster.until("all agree", cluster.all_agree)
    # Where gossip was faster than the master itself, it is looked for where it was until somebody says so again.
    replica = await cluster.replica()
    await cluster.tell(replica, ("CLUSTER", "REPLICATE", (await cluster.report(replica)).me.master))
    await cluster.until("the replica is in sync", cluster.in_sync)
    assert (await cluster.report(replica)).follows in cluster.addresses


async def a_node_leaves(cluster: Cluster) -> None:
    """A replica that is reset is a new, empty node; the others forget the old one."""
    leaving = await cluster.replica()
    former = (await cluster.report(leaving)).me.id
    await cluster.tell(leaving, ("CLUSTER", "RESET", "HARD"))
    alone = await cluster.report(leaving)
    assert alone.me.id != former
    assert alone.me.is_master
    assert not alone.others
    staying = [number for number in range(4) if number != leaving]
    for number in staying:
        await cluster.tell(number, ("CLUSTER", "FORGET", former))
    cluster.addresses.pop(leaving)
    tables = [(await cluster.report(number)).table for number in range(3)]
    assert all(former not in table and alone.me.id not in table for table in tables)
