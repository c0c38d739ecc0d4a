"""The archive command's decisions in virtual time: what PostgreSQL may remove, and when a server may stop."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import pytest

from steersman_instance.archive.decision import (
    ARCHIVED,
    END_ARCHIVER,
    LIST_SECONDS,
    PUSH_SECONDS,
    RETRY,
    STOP_SECONDS,
    STOP_TOTAL_SECONDS,
    Archiver,
    GiveUp,
)
from steersman_instance.archive.errors import ArchiveError
from steersman_instance.archive.server_state import ServerState

SEGMENT = "00000001000000000000002A"
PRIMARY = ServerState("Running", replica=False, started="100")
REPLICA = ServerState("Running", replica=True, started="100")
UNREACHABLE = ArchiveError("StoreUnreachable", "the store cannot be reached")


@dataclass
class World:
    """A server, a store and a clock. ``events`` happen at their time, in seconds."""

    state: ServerState = PRIMARY
    stored: set[str] = field(default_factory=set[str])
    error: ArchiveError | None = None
    blackholed: bool = False
    used: float = 50.0
    drop: bool = False
    reserved: bool = False
    past_end: bool = False
    now: float = 0.0
    events: dict[float, Callable[[], None]] = field(default_factory=dict[float, Callable[[], None]])
    failed_at: float | None = None
    stopping_since: float | None = None
    dropped_files: list[str] = field(default_factory=list[str])
    pushes: int = 0

    def archive(self) -> int:
        return Archiver(
            store=self,
            record=self,
            server=lambda: self.state,
            used_percent=lambda: self.used,
            drop_when_full=self.drop,
            reserves_timeline_only=lambda name: self.reserved,
            is_past_end_of_timeline=lambda name: self.past_end,
            monotonic=lambda: self.now,
            sleep=self.sleep,
            log=lambda message: None,
        ).archive(SEGMENT)

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        for due in [at for at in self.events if at <= self.now]:
            self.events.pop(due)()

    def become(self, state: ServerState) -> Callable[[], None]:
        return lambda: setattr(self, "state", state)

    def _respond(self, seconds: float, give_up: GiveUp) -> None:
        end = self.now + seconds
        while self.blackholed:
            if self.now >= end or give_up():
                raise ArchiveError("StoreUnresponsive", "no response")
            self.sleep(0.25)
        if self.error is not None:
            raise self.error

    def push(self, name: str, seconds: float, give_up: GiveUp) -> None:
        self.pushes += 1
        self._respond(seconds, give_up)
        self.stored.add(name)

    def has(self, name: str, seconds: float, give_up: GiveUp) -> bool:
        self._respond(seconds, give_up)
        return name in self.stored

    def succeeded(self, name: str) -> None:
        self.failed_at = None

    def failed(self, error: ArchiveError) -> None:
        self.failed_at = self.now

    def seconds_since_failure(self) -> float | None:
        return None if self.failed_at is None else self.now - self.failed_at

    def dropped(self, name: str) -> None:
        self.dropped_files.append(name)

    def seconds_stopping(self, started: str) -> float:
        self.stopping_since = self.now if self.stopping_since is None else self.stopping_since
        return self.now - self.stopping_since


def stopping(state: ServerState) -> ServerState:
    return replace(state, phase="Stopping")


def test_primary_stores_segment() -> None:
    world = World()
    assert world.archive() == ARCHIVED
    assert world.stored == {SEGMENT}


def test_primary_with_unreachable_store_keeps_segment() -> None:
    world = World(error=UNREACHABLE)
    assert world.archive() == RETRY
    assert world.failed_at == 0


def test_primary_with_blackholed_store_ends_at_deadline() -> None:
    world = World(blackholed=True)
    assert world.archive() == RETRY
    assert world.now == pytest.approx(PUSH_SECONDS, abs=0.5)


def test_no_postmaster_gives_up_at_once() -> None:
    """Patroni calls the command for each waiting file before pg_rewind."""
    world = World(state=ServerState("Absent"), blackholed=True)
    assert [world.archive() for _ in range(200)] == [RETRY] * 200
    assert (world.now, world.pushes) == (0, 0)


def test_replica_keeps_segment_that_is_not_stored() -> None:
    world = World(state=REPLICA)
    assert world.archive() == RETRY
    assert world.stored == set()


def test_replica_releases_segment_once_primary_stored_it() -> None:
    world = World(state=REPLICA)
    world.events[7] = lambda: world.stored.add(SEGMENT)
    assert world.archive() == ARCHIVED
    assert (world.now, world.pushes) == (pytest.approx(10, abs=0.5), 0)


def test_replica_with_unreachable_store_keeps_segment() -> None:
    assert World(state=REPLICA, error=UNREACHABLE).archive() == RETRY
    world = World(state=REPLICA, blackholed=True)
    assert world.archive() == RETRY
    assert world.now == pytest.approx(LIST_SECONDS, abs=0.5)


def test_promoted_replica_stores_segment_itself() -> None:
    world = World(state=REPLICA)
    world.events[3] = world.become(PRIMARY)
    assert world.archive() == ARCHIVED
    assert world.stored == {SEGMENT}
    assert world.now < 4


def test_stopping_replica_ends_archiver_at_once() -> None:
    world = World(state=stopping(REPLICA), blackholed=True)
    assert (world.archive(), world.now) == (END_ARCHIVER, 0)
    waiting = World(state=REPLICA)
    waiting.events[3] = waiting.become(stopping(REPLICA))
    assert waiting.archive() == END_ARCHIVER
    assert waiting.now < 4


def test_stopping_primary_stores_segment() -> None:
    world = World(state=stopping(PRIMARY))
    assert (world.archive(), world.stored) == (ARCHIVED, {SEGMENT})


def test_stopping_primary_with_blackholed_store_ends_archiver() -> None:
    world = World(state=stopping(PRIMARY), blackholed=True)
    assert world.archive() == END_ARCHIVER
    assert world.now <= STOP_SECONDS + 0.5


def test_push_ends_soon_after_server_begins_to_stop() -> None:
    world = World(blackholed=True)
    world.events[12] = world.become(stopping(PRIMARY))
    assert world.archive() == END_ARCHIVER
    assert world.now <= 12 + STOP_SECONDS + 1


def test_slow_store_holds_stop_for_bounded_time() -> None:
    """Each push succeeds just in time; a server with thousands of waiting segments stops all the same."""
    world = World(state=stopping(PRIMARY))
    codes: list[int] = []
    while not codes or codes[-1] == ARCHIVED:
        codes.append(world.archive())
        world.now += 1.5
    assert codes[-1] == END_ARCHIVER
    assert world.now <= STOP_TOTAL_SECONDS + 4


def test_full_volume_keeps_segments_by_default() -> None:
    world = World(error=UNREACHABLE, used=99)
    assert (world.archive(), world.dropped_files) == (RETRY, [])


def test_drop_archive_drops_only_what_cannot_be_stored() -> None:
    stored = World(used=99, drop=True)
    assert (stored.archive(), stored.stored, stored.dropped_files) == (ARCHIVED, {SEGMENT}, [])
    world = World(error=UNREACHABLE, used=99, drop=True)
    assert (world.archive(), world.dropped_files) == (ARCHIVED, [SEGMENT])


def test_drop_archive_below_limit_keeps_segment() -> None:
    world = World(error=UNREACHABLE, used=94.9, drop=True)
    assert (world.archive(), world.dropped_files) == (RETRY, [])


def test_drop_archive_after_failure_drops_without_waiting() -> None:
    """Writes of 100 MB/s fill the rest of a volume before a second deadline has passed."""
    world = World(blackholed=True, used=99, drop=True)
    world.archive()
    began = world.now
    assert [world.archive() for _ in range(100)] == [ARCHIVED] * 100
    assert world.now == began
    assert len(world.dropped_files) == 101
    world.now += 61
    world.blackholed = False
    assert (world.archive(), world.stored) == (ARCHIVED, {SEGMENT})


def test_replica_with_full_volume_drops_segment() -> None:
    world = World(state=REPLICA, used=96, drop=True)
    assert (world.archive(), world.dropped_files) == (ARCHIVED, [SEGMENT])


def test_replica_releases_segment_past_end_of_its_timeline() -> None:
    """The primary stores it as ``.partial`` or not at all; it would block all later files."""
    assert World(state=REPLICA, past_end=True, blackholed=True).archive() == ARCHIVED
    primary = World(past_end=True)
    assert (primary.archive(), primary.stored) == (ARCHIVED, {SEGMENT})


def test_history_of_reserved_timeline_is_not_stored() -> None:
    for state in (PRIMARY, REPLICA):
        world = World(state=state, reserved=True, blackholed=True)
        assert (world.archive(), world.pushes) == (ARCHIVED, 0)
