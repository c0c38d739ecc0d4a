"""The archive of binary logs in an object store."""

from __future__ import annotations

import pytest

from database_support.unit.binlog_events import OTHER, UUID, Transaction, session
from database_support.unit.memory_archive import MemoryArchive
from steersman_instance.archive.errors import ArchiveError
from steersman_instance.binlog import chunk_store
from steersman_instance.gtids import NO_GTIDS, GtidSet


def up_to(last: int) -> GtidSet:
    return GtidSet.parse(f"{UUID}:1-{last}") if last else NO_GTIDS


def store(archive: MemoryArchive, name: str, first: int, last: int) -> None:
    """Store a session with a chunk for each transaction."""
    transactions = [Transaction(n, committed_at=n) for n in range(first, last + 1)]
    chunks = archive.chunks()
    for chunk in session(name, up_to(first - 1), transactions, range(3, 3 * len(transactions), 3)):
        chunks.put(chunk)


def numbers(archive: MemoryArchive, name: str) -> list[int]:
    return [header.number for header in archive.chunks().headers(name)]


def test_headers_come_from_indexes_and_from_the_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chunk_store, "INDEX_CHUNKS", 4)
    archive = MemoryArchive()
    store(archive, "a", 1, 10)
    read: list[int] = []
    chunks = archive.chunks()
    original = chunks.header

    def header(name: str, number: int) -> chunk_store.ChunkHeader:
        read.append(number)
        return original(name, number)

    monkeypatch.setattr(chunks, "header", header)
    found = chunks.headers("a")
    assert [each.number for each in found] == list(range(10))
    assert found[-1].after == up_to(10)
    assert sorted(read) == [8, 9]


def test_newest_chunk_is_found_despite_wrong_clocks() -> None:
    archive = MemoryArchive()
    assert archive.chunks().newest() is None
    store(archive, "2026-b", 1, 3)
    store(archive, "2026-a", 4, 6)
    newest = archive.chunks().newest()
    assert newest is not None
    assert (newest.session, newest.after) == ("2026-a", up_to(6))


def test_chunk_that_is_stored_twice_stays_as_it_was() -> None:
    archive = MemoryArchive()
    store(archive, "a", 1, 2)
    before = archive.chunks().read("a", 0)
    store(archive, "a", 1, 2)
    assert archive.chunks().read("a", 0) == before


def test_expiry_keeps_what_a_backup_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chunk_store, "INDEX_CHUNKS", 4)
    archive = MemoryArchive()
    store(archive, "a", 1, 6)
    store(archive, "b", 7, 12)
    archive.chunks().expire([up_to(8)])
    assert archive.chunks().sessions() == ["b"]
    assert numbers(archive, "b") == [2, 3, 4, 5]
    archive.chunks().expire([up_to(12)])
    assert numbers(archive, "b") == [5], "the next collector continues from it"


def test_history_that_was_left_ends_with_its_backups() -> None:
    archive = MemoryArchive()
    store(archive, "a", 1, 6)
    (restored,) = session("b", up_to(3), [Transaction(1, origin=OTHER)])
    archive.chunks().put(restored)
    later = up_to(3).add(OTHER, 1)
    archive.chunks().expire([up_to(2), later])
    assert numbers(archive, "a") == [2, 3, 4, 5], "the first backup leads there"
    archive.chunks().expire([later])
    assert archive.chunks().sessions() == ["b"]


def test_expiry_keeps_the_start_of_a_long_transaction() -> None:
    archive = MemoryArchive()
    chunks = archive.chunks()
    for chunk in session("a", NO_GTIDS, [Transaction(1), Transaction(2)], (3, 4, 5)):
        chunks.put(chunk)
    chunks.expire([up_to(1)])
    assert numbers(archive, "a") == [1, 2, 3]


def test_damaged_or_missing_chunk_is_reported() -> None:
    archive = MemoryArchive()
    archive.objects("mysql/binlog").create("a/00000000", b"no chunk at all")
    with pytest.raises(ArchiveError, match="damaged") as damaged:
        archive.chunks().read("a", 0)
    assert damaged.value.reason == "ArchiveDamaged"
    with pytest.raises(ArchiveError, match="missing"):
        archive.chunks().read("a", 1)
