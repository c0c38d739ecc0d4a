"""Run planned steps as Redis commands.

Each sequence of commands can be interrupted at any point: the next reconcile plans the rest.
"""

from __future__ import annotations

from collections.abc import Sequence

from steersman.observability.runtime import Clock

from redis_operator.nodes import Command, Redis, Reply, fetch_report
from redis_operator.plan import AddSlots, Failover, Forget, Meet, Member, Move, Release, Replicate, Reset, Step

_MIGRATE_BATCH_SIZE = 100
_MOVE_TIMEOUT_SECONDS = 30.0
"""Time limit of a move in one reconcile, in seconds. The next reconcile continues the move."""
_MIGRATE_TIMEOUT_SECONDS = 60.0
_FAILOVER_TIMEOUT_SECONDS = 10.0


class StepExecutor:
    """Runs steps on the nodes of one cluster.

    Args:
        redis: sends the commands to the nodes.
        password: the password of all nodes.
        clock: the clock for time limits and pauses.
    """

    def __init__(self, redis: Redis, password: str, clock: Clock) -> None:
        self._redis = redis
        self._password = password
        self._clock = clock

    async def execute(self, step: Step) -> None:
        """Send the Redis commands of ``step``. Steps that only change Kubernetes objects are ignored.

        Raises:
            RedisError: a node rejected a command.
            Unreachable: a node did not respond. The next inspection shows whether it ran the commands.
        """
        match step:
            case Meet(target, others):
                addresses = [other.address for other in others if other.address is not None]
                await self._send(target, *(("CLUSTER", "MEET", place.ip, place.port) for place in addresses))
            case Forget(target, node):
                for member in target:
                    await self._send(member, ("CLUSTER", "FORGET", node))
            case AddSlots(shares):
                for target, slots in shares:
                    range_bounds = [end for ends in slots.ranges() for end in ends]
                    await self._send(target, ("CLUSTER", "ADDSLOTSRANGE", *range_bounds))
            case Replicate(pairs):
                for target, master in pairs:
                    await self._send(target, ("CLUSTER", "REPLICATE", master.id))
            case Reset(target, hard):
                await self._send(target, ("CLUSTER", "RESET", "HARD" if hard else "SOFT"))
            case Failover(target):
                await self._fail_over(step)
            case Release(target, slots):
                await self._send(target, *(("CLUSTER", "SETSLOT", slot, "STABLE") for slot in slots))
            case Move():
                await self._move(step)
            case _:
                pass

    async def _fail_over(self, step: Failover) -> None:
        """Request the failover once, then wait: a second request would restart it."""
        await self._send(step.target, ("CLUSTER", "FAILOVER", "TAKEOVER") if step.lost else ("CLUSTER", "FAILOVER"))
        deadline = self._clock.monotonic() + _FAILOVER_TIMEOUT_SECONDS
        while self._clock.monotonic() < deadline:
            if (
                step.target.address is None
                or (await fetch_report(self._redis, step.target.address, self._password)).myself.is_master
            ):
                return
            await self._clock.sleep(0.5)

    async def _move(self, step: Move) -> None:
        """Open the slots on both nodes, move keys, close the slots.

        The target is closed first, so that it serves the slots. After the first command, the target receives new
        keys, and clients are redirected to it for moved keys.
        """
        source, target = step.source, step.target
        importing = [slot for slot in step.slots if target.myself.importing.get(slot) != source.id]
        migrating = [slot for slot in step.slots if source.myself.migrating.get(slot) != target.id]
        await self._send(target, *(("CLUSTER", "SETSLOT", slot, "IMPORTING", source.id) for slot in importing))
        await self._send(source, *(("CLUSTER", "SETSLOT", slot, "MIGRATING", target.id) for slot in migrating))
        if not await self._move_keys(step):
            return
        for member in (target, source):
            await self._send(member, *(("CLUSTER", "SETSLOT", slot, "NODE", target.id) for slot in step.slots))

    async def _move_keys(self, step: Move) -> bool:
        """Move keys until the time limit. Return True if all keys are moved."""
        deadline = self._clock.monotonic() + _MOVE_TIMEOUT_SECONDS
        counts = await self._send(step.source, *(("CLUSTER", "COUNTKEYSINSLOT", slot) for slot in step.slots))
        for slot, count in zip(step.slots, counts, strict=True):
            while count:
                (keys,) = await self._send(step.source, ("CLUSTER", "GETKEYSINSLOT", slot, _MIGRATE_BATCH_SIZE))
                if not isinstance(keys, list) or not keys:
                    break
                await self._migrate_keys(step.source, step.target, keys)
                if self._clock.monotonic() >= deadline:
                    return False
        return True

    async def _migrate_keys(self, source: Member, target: Member, keys: Sequence[str]) -> None:
        """Move keys with REPLACE.

        An interrupted MIGRATE may leave a copy on the target. The value of the source is current, because it served
        the key until then.
        """
        assert target.address is not None
        milliseconds = int(_MIGRATE_TIMEOUT_SECONDS * 1000)
        destination: Command = (target.address.ip, target.address.port, "", 0, milliseconds)
        command: Command = ("MIGRATE", *destination, "REPLACE", "AUTH", self._password, "KEYS", *keys)
        await self._send(source, command, timeout=_MIGRATE_TIMEOUT_SECONDS + 5)

    async def _send(self, member: Member, *commands: Command, timeout: float = 10.0) -> list[Reply]:
        if not commands or member.address is None:
            return []
        return await self._redis.execute(member.address, self._password, *commands, timeout=timeout)
