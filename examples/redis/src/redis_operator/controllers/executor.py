"""How nodes are made to do what was planned: the commands of each step, in an order that may be cut off anywhere."""

from __future__ import annotations

from collections.abc import Sequence

from steersman.observability.runtime import Clock

from redis_operator.nodes import Command, Redis, Reply, fetch_report
from redis_operator.plan import AddSlots, Failover, Forget, Meet, Member, Move, Release, Replicate, Reset, Step

_MIGRATE_BATCH_SIZE = 100
_MOVE_TIMEOUT_SECONDS = 30.0
"""After so long a move tells how far it is, and goes on in the next reconcile."""
_MIGRATE_TIMEOUT_SECONDS = 60.0
_FAILOVER_TIMEOUT_SECONDS = 10.0


class StepExecutor:
    """The nodes of one cluster.

    Args:
        redis: how to reach them.
        password: of all of them.
        clock: for steps that take time.
    """

    def __init__(self, redis: Redis, password: str, clock: Clock) -> None:
        self._redis = redis
        self._password = password
        self._clock = clock

    async def execute(self, step: Step) -> None:
        """Does what ``step`` asks of the nodes; what it asks of Kubernetes is not for here.

        Raises:
            RedisError, Unreachable: as ``Redis.execute``. Looking again tells what was done.
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
        """Asks once, and waits: to ask again would begin it anew."""
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
        """Opens the slots on both sides, moves their keys, and closes them: the target first, so that it serves them.

        From the first command on, new keys go to the target, and clients are sent there for what has moved.
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
        """Whether it came to the end; all that it moved is moved for good."""
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
        """A key that is on both sides, since an answer was lost, is the source's: that one was still served."""
        assert target.address is not None
        milliseconds = int(_MIGRATE_TIMEOUT_SECONDS * 1000)
        destination: Command = (target.address.ip, target.address.port, "", 0, milliseconds)
        command: Command = ("MIGRATE", *destination, "REPLACE", "AUTH", self._password, "KEYS", *keys)
        await self._send(source, command, timeout=_MIGRATE_TIMEOUT_SECONDS + 5)

    async def _send(self, member: Member, *commands: Command, timeout: float = 10.0) -> list[Reply]:
        if not commands or member.address is None:
            return []
        return await self._redis.execute(member.address, self._password, *commands, timeout=timeout)
