"""A model of three members that lose their primary: all orders of events, for several rules of promotion.

Member 0 is the primary; 1 and 2 are its synchronous standbys, of which one must confirm each commit. Messages may be
late: a confirmation that was sent counts whatever happens afterwards. Reads and cancelled commits are events of
clients of the previous primary.

The rules differ in when a standby may be promoted:

- `EXPIRY`: after the lock has expired. The previous primary stops before (watchdog, or demotion).
- The others release the lock early, when standbys have promised to accept no more WAL of the primary (fencing):
  `CANDIDATE` needs the promise of the candidate, `UNCONFIRMED` counts a standby that does not respond as fenced,
  `UNCOORDINATED` needs both promises, and `COORDINATED` also a record that prevents the primary from committing
  without standbys.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from typing import Literal

PRIMARY, STANDBYS = 0, (1, 2)
MAX_WRITES = 2
MAX_FAULTS = 2

Violation = Literal["lost commit", "late cancelled commit", "lost cancelled commit", "stale read"]
Health = Literal["up", "paused", "crashed"]


class Rule(Enum):
    """When a standby may be promoted."""

    EXPIRY = "expiry"
    CANDIDATE = "candidate"
    UNCONFIRMED = "unconfirmed"
    UNCOORDINATED = "uncoordinated"
    COORDINATED = "coordinated"


@dataclass(frozen=True, kw_only=True)
class World:
    """The state of the members.

    Attributes:
        wal: transactions of each member, in order. Those of the new primary begin with 10.
        acked: transactions that clients of the primary got confirmed.
        cancelled: transactions that are committed although their wait for a standby was cancelled. The client gets a
            warning.
        serves: the previous primary responds to its clients.
        needs_standby: commits of the previous primary wait for a standby.
        record: standbys that have all confirmed commits, as the API server has it.
        fenced: standbys that accept no WAL of the previous primary.
        blocked: the record is fixed, so the previous primary cannot stop to wait for standbys.
        seen: what a candidate has read of the record, before it takes the lock.
        linked: the previous primary reaches the standbys.
        reaches_api: the previous primary reaches the API server.
        lock_valid: the lock of the previous primary has not expired.
        new: the promoted member.
    """

    health: tuple[Health, Health, Health] = ("up", "up", "up")
    wal: tuple[tuple[int, ...], ...] = ((), (), ())
    acked: frozenset[int] = frozenset()
    cancelled: frozenset[int] = frozenset()
    serves: bool = True
    needs_standby: bool = True
    record: frozenset[int] = frozenset(STANDBYS)
    fenced: frozenset[int] = frozenset()
    blocked: bool = False
    seen: frozenset[int] | None = None
    linked: bool = True
    reaches_api: bool = True
    lock_valid: bool = True
    new: int | None = None
    new_acked: bool = False
    faults: int = 0

    @property
    def primary_runs(self) -> bool:
        return self.health[PRIMARY] == "up" and self.serves

    @property
    def waiting(self) -> int | None:
        """The transaction of the previous primary that no client got confirmed yet."""
        last = self.wal[PRIMARY][-1] if self.wal[PRIMARY] else None
        return None if last in self.acked or last in self.cancelled else last

    def streams(self, standby: int) -> bool:
        """Return True if a standby receives the WAL of the previous primary."""
        both_up = self.health[PRIMARY] == "up" and self.health[standby] == "up"
        return both_up and self.linked and standby not in self.fenced and standby != self.new

    def with_health(self, member: int, health: Health, *, faults: int = 0) -> World:
        states = tuple(health if n == member else state for n, state in enumerate(self.health))
        return replace(self, health=states, faults=self.faults + faults)  # pyright: ignore[reportArgumentType]

    def with_wal(self, member: int, wal: tuple[int, ...]) -> World:
        return replace(self, wal=tuple(wal if n == member else each for n, each in enumerate(self.wal)))


Step = tuple[str, World]


def steps(world: World, rule: Rule) -> Iterator[Step]:
    """Yield the events that may come next."""
    yield from _commits(world)
    yield from _faults(world)
    yield from _lock(world)
    if world.new is None:
        yield from _failover(world, rule)
    elif not world.new_acked:
        other = next(s for s in STANDBYS if s != world.new)
        if world.health[world.new] == "up" and world.health[other] == "up":
            yield "the new primary commits", replace(world, new_acked=True)


def _commits(world: World) -> Iterator[Step]:
    wal, waiting = world.wal[PRIMARY], world.waiting
    if world.primary_runs and waiting is None and len(wal) < MAX_WRITES:
        yield "write", world.with_wal(PRIMARY, (*wal, len(wal) + 1))
    for standby in STANDBYS:
        if world.streams(standby) and world.wal[standby] != wal:
            yield f"{standby} receives", world.with_wal(standby, wal)
    if world.primary_runs and waiting is not None:
        if not world.needs_standby or any(waiting in world.wal[s] for s in STANDBYS):
            yield "acknowledge", replace(world, acked=world.acked | {waiting})
        yield "cancel", replace(world, cancelled=world.cancelled | {waiting})
    none_streams = not any(world.streams(s) for s in STANDBYS)
    may_write = world.reaches_api and world.lock_valid and world.new is None and not world.blocked
    if world.primary_runs and world.needs_standby and none_streams and may_write:
        # Patroni without synchronous_mode_strict: the record first, then the server.
        yield "stop waiting for standbys", replace(world, needs_standby=False, record=frozenset())


def _faults(world: World) -> Iterator[Step]:
    for member, health in enumerate(world.health):
        if health == "paused":
            resumed = world.with_health(member, "up")
            # The watchdog's clock also runs while a pod is paused.
            yield f"{member} resumes", resumed if member or world.lock_valid else replace(resumed, serves=False)
        if health == "up" and world.faults < MAX_FAULTS:
            yield f"{member} crashes", world.with_health(member, "crashed", faults=1)
            yield f"{member} pauses", world.with_health(member, "paused", faults=1)
    if world.faults < MAX_FAULTS:
        more = replace(world, faults=world.faults + 1)
        yield "links of the primary change", replace(more, linked=not world.linked)
        yield "access to the API server changes", replace(more, reaches_api=not world.reaches_api)


def _lock(world: World) -> Iterator[Step]:
    up = world.health[PRIMARY] == "up"
    failsafe = world.linked and all(world.health[s] == "up" for s in STANDBYS)
    renews = up and (world.reaches_api or failsafe)
    if world.lock_valid and not renews:
        # Without a renewal the server stops before the lock expires. A paused one is stopped as it resumes.
        if up and world.serves:
            yield "the primary stops", replace(world, serves=False)
        else:
            yield "the lock expires", replace(world, lock_valid=False)
    if world.new is not None and up and world.serves and world.reaches_api:
        yield "the primary observes another leader", replace(world, serves=False)


def _failover(world: World, rule: Rule) -> Iterator[Step]:
    if rule is not Rule.EXPIRY:
        for standby in STANDBYS:
            if world.health[standby] == "up" and standby not in world.fenced:
                # A suspicion may be wrong, so it may come at any time.
                yield f"{standby} is fenced", replace(world, fenced=world.fenced | {standby})
        if rule is Rule.COORDINATED and world.fenced == frozenset(STANDBYS) and not world.blocked and world.record:
            yield "the record is fixed", replace(world, blocked=True)
        if rule is not Rule.COORDINATED and world.seen is None:
            yield "a candidate reads the record", replace(world, seen=world.record)
    for candidate in STANDBYS:
        if _may_lead(world, rule, candidate):
            yield f"{candidate} is promoted", replace(world, new=candidate)


def _may_lead(world: World, rule: Rule, candidate: int) -> bool:
    other = next(s for s in STANDBYS if s != candidate)
    if world.health[candidate] != "up":
        return False
    ahead = len(world.wal[candidate]) >= len(world.wal[other])
    confirmed = world.health[other] == "up" and ahead
    match rule:
        case Rule.EXPIRY:
            return not world.lock_valid and candidate in world.record and confirmed
        case Rule.CANDIDATE:
            return candidate in world.fenced and candidate in (world.seen or ()) and confirmed
        case Rule.UNCONFIRMED:
            silent = world.health[other] != "up"
            promised = {candidate, *((other,) if silent else ())} | world.fenced
            return promised == {*STANDBYS} and candidate in (world.seen or ()) and (silent or ahead)
        case Rule.UNCOORDINATED:
            return world.fenced == frozenset(STANDBYS) and candidate in (world.seen or ()) and confirmed
        case Rule.COORDINATED:
            return world.fenced == frozenset(STANDBYS) and world.blocked and candidate in world.record and confirmed


def violations(world: World, event: str, before: World) -> Iterator[Violation]:
    """Yield what this event breaks for clients."""
    if world.new is None:
        return
    has = set(world.wal[world.new])
    if world.acked - has:
        yield "lost commit"
    if world.cancelled - has:
        late = event == "cancel" and before.new is not None
        yield "late cancelled commit" if late else "lost cancelled commit"
    if world.primary_runs and world.new_acked:
        yield "stale read"


def explore(rule: Rule, until: Violation | None = None) -> tuple[Mapping[Violation, tuple[str, ...]], int]:
    """Return the shortest sequence of events for each violation, and the number of states.

    Args:
        until: end with this violation.
    """
    first = World()
    found: dict[Violation, tuple[str, ...]] = {}
    paths: dict[World, tuple[World, str] | None] = {first: None}
    queue = deque([first])
    while queue:
        world = queue.popleft()
        for event, after in steps(world, rule):
            for violation in violations(after, event, world):
                found.setdefault(violation, (*_path(paths, world), event))
                if violation == until:
                    return found, len(paths)
            if after not in paths:
                paths[after] = world, event
                queue.append(after)
    return found, len(paths)


def _path(paths: Mapping[World, tuple[World, str] | None], world: World) -> tuple[str, ...]:
    events: list[str] = []
    while (step := paths[world]) is not None:
        world, event = step
        events.append(event)
    return tuple(reversed(events))
