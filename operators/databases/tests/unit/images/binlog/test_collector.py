"""The collector against a played server and a store in memory, in virtual time."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import pytest

from database_support.unit.binlog_events import OTHER, UUID, Transaction, event, format_description, session
from database_support.unit.memory_archive import STORE, MemoryArchive
from steersman_instance.archive.errors import ArchiveError
from steersman_instance.archive.ownership import require_owner
from steersman_instance.binlog import collector as collecting
from steersman_instance.binlog.chunks import Chunk
from steersman_instance.binlog.collector import Collector, CollectorSettings, CollectorState
from steersman_instance.binlog.events import HEARTBEATS, Event
from steersman_instance.binlog.stream import LocalServer, ServerState, ServerUnavailable
from steersman_instance.gtids import NO_GTIDS, GtidSet
from steersman_instance.paths import InstancePaths


def up_to(last: int) -> GtidSet:
    return GtidSet.parse(f"{UUID}:1-{last}") if last else NO_GTIDS


@dataclass
class PlayedServer:
    """A server whose clients commit one transaction a second until `end`; its clock is everybody's."""

    end: int
    executed: int = 0
    purged: int = 0
    writable: bool = True
    dies_at: int = 1000
    clock: float = 1000.0
    streams: list[GtidSet] = field(default_factory=list[GtidSet])

    def state(self) -> ServerState:
        return ServerState(UUID, self.writable, up_to(self.executed), up_to(self.purged), 0)

    def query(self, _statement: str, *, unbounded: bool = False) -> list[tuple[Any, ...]]:
        return []

    def stream(self, exclude: GtidSet) -> Iterator[Event]:
        self.streams.append(exclude)
        yield format_description()
        number = 1
        for _ in range(100):
            while number <= self.executed:
                transaction = Transaction(number, committed_at=number)
                if not exclude >= transaction.gtids:
                    yield from transaction.events()
                number += 1
            yield event(HEARTBEATS[0], b"")
            if self.executed >= self.end:
                self.writable = False
            self.clock += 1
            if self.executed == self.dies_at:
                self.dies_at = 1000
                raise ServerUnavailable("gone")
            self.executed = min(self.end, self.executed + 1)


@dataclass
class Run:
    server: PlayedServer
    archive: MemoryArchive = field(default_factory=MemoryArchive)
    states: list[CollectorState] = field(default_factory=list[CollectorState])
    owned: bool = True

    def check(self) -> None:
        owner = STORE.cluster_uid if self.owned else "another"
        require_owner(STORE, json.dumps({"format": 1, "cluster_uid": owner}))

    def collector(self, interval_seconds: float = 3.0) -> Collector:
        return Collector(
            cast(LocalServer, self.server),
            self.archive.chunks(),
            CollectorSettings(interval_seconds=interval_seconds),
            paths=InstancePaths(volume=Path("/tmp")),
            check=self.check,
            report=self.states.append,
            clock=lambda: self.server.clock,
            now=lambda: self.server.clock,
            wait=lambda _seconds: None,
        )

    def stored(self) -> list[Chunk]:
        chunks = self.archive.chunks()
        names = [(name, header.number) for name in chunks.sessions() for header in chunks.headers(name)]
        return [chunks.read(*each) for each in names]


def test_archive_begins_with_an_empty_chunk() -> None:
    run = Run(PlayedServer(end=5, executed=5))
    run.collector().step()
    (chunk,) = run.stored()
    assert (chunk.header.before, chunk.header.after, chunk.content) == (up_to(5), up_to(5), b"")


def test_chunks_are_cut_at_the_interval() -> None:
    run = Run(PlayedServer(end=12))
    run.collector(interval_seconds=4.0).step()
    ends = [chunk.header.after for chunk in run.stored()]
    assert ends[0] == NO_GTIDS
    gaps = [len(later - earlier) for earlier, later in itertools.pairwise(ends)]
    assert all(2 <= gap <= 5 for gap in gaps[:-1])
    assert run.states[-1].reason == "Archiving"


def test_lost_connection_leaves_no_gap() -> None:
    run = Run(PlayedServer(end=12, dies_at=5))
    collector = run.collector()
    collector.step()
    collector.step()
    covered = NO_GTIDS
    for chunk in run.stored():
        assert covered >= chunk.header.before
        covered |= chunk.header.after
    assert covered >= up_to(9)
    assert run.server.streams[1] == run.archive.chunks().header(run.archive.chunks().sessions()[0], 1).after


def test_purged_transactions_are_reported_as_lost() -> None:
    run = Run(PlayedServer(end=9, executed=9, purged=7))
    chunks = run.archive.chunks()
    for chunk in session("20200101T000000Z-a", NO_GTIDS, [Transaction(n, committed_at=n) for n in range(1, 5)]):
        chunks.put(chunk)
    run.collector(interval_seconds=0.0).step()
    assert run.states[-1].lost == GtidSet.parse(f"{UUID}:5-7")
    assert run.server.streams == [up_to(7)]


def test_transactions_of_an_abandoned_primary_are_forgotten() -> None:
    run = Run(PlayedServer(end=5, executed=5))
    chunks = run.archive.chunks()
    before = up_to(3)
    for chunk in session("20200101T000000Z-a", before, [Transaction(1, origin=OTHER)]):
        chunks.put(chunk)
    run.collector(interval_seconds=0.0).step()
    assert run.server.streams == [up_to(3)]


def test_session_ends_before_its_listing_needs_a_second_page(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collecting, "SESSION_CHUNKS", 3)
    run = Run(PlayedServer(end=30))
    collector = run.collector(interval_seconds=1.0)
    for _ in range(3):
        collector.step()
    chunks = run.archive.chunks()
    assert {len(chunks.headers(name)) for name in chunks.sessions()} == {3}
    assert len(chunks.sessions()) == 3
    covered = NO_GTIDS
    for chunk in sorted(run.stored(), key=lambda chunk: len(chunk.header.after)):
        assert covered >= chunk.header.before
        covered |= chunk.header.after


def test_replica_archives_nothing() -> None:
    run = Run(PlayedServer(end=5, executed=5, writable=False))
    run.collector().step()
    assert run.stored() == []
    assert run.server.streams == []


def test_store_that_fails_is_reported_and_retried(monkeypatch: pytest.MonkeyPatch) -> None:
    run = Run(PlayedServer(end=5))
    waits: list[float] = []
    collector = run.collector()
    monkeypatch.setattr(collector, "_wait", waits.append)

    def fail(_chunks: object) -> None:
        raise ArchiveError("StoreUnreachable", "It cannot be reached.")

    monkeypatch.setattr(collecting.ChunkStore, "newest", fail)
    for _ in range(7):
        collector.step()
    assert (run.states[-1].reason, run.states[-1].message) == ("StoreUnreachable", "It cannot be reached.")
    assert waits == [1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0]
    monkeypatch.undo()
    run.collector().step()
    assert run.states[-1].reason == "Archiving"


def test_path_of_another_cluster_is_not_written() -> None:
    run = Run(PlayedServer(end=5, executed=5), owned=False)
    collector = run.collector()
    collector.step()
    assert run.archive.chunks().sessions() == [] and run.server.streams == []
    assert (run.states[-1].reason, run.states[-1].primary) == ("PathBelongsToAnotherCluster", True)
    run.owned = True
    collector.step()
    assert run.stored() and run.states[-1].reason == "Archiving"


def test_undone_restore_has_lost_nothing_that_is_archived() -> None:
    run = Run(PlayedServer(end=9, executed=9, purged=8))
    chunks = run.archive.chunks()
    for name, before, transactions in (
        ("19700101T000000Z-a", NO_GTIDS, [Transaction(number) for number in range(1, 9)]),
        ("19700101T000001Z-b", up_to(3), [Transaction(1, origin=OTHER)]),
    ):
        for chunk in session(name, before, transactions):
            chunks.put(chunk)
    run.collector().step()
    assert run.server.streams == [up_to(8)]
    assert run.states[-1].lost == NO_GTIDS
