"""Chunks of binary logs: cutting, encrypting and reading them back."""

from __future__ import annotations

import dataclasses
import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from database_support.unit.binlog_events import UUID, Transaction, event, format_description, session
from steersman_instance.binlog import events
from steersman_instance.binlog.chunks import Chunk, ChunkBuilder, ChunkCipher, ChunkDamaged, WrongKey, read_header
from steersman_instance.gtids import NO_GTIDS, GtidSet

TAGGED = bytes.fromhex(
    "0276000000023d0209031048ad03fc22c5032502a10204f103000000020404060c74616767656408080a200c7f0f918b125e61061065041283120b"
    "c0ef5855"
)
"""Body of a tagged GTID event of MySQL 9.7.4."""


def encrypted(chunk: Chunk, cipher: ChunkCipher) -> Chunk:
    return dataclasses.replace(chunk, header=dataclasses.replace(chunk.header, encryption=cipher.name))


def test_tagged_gtid_event_of_a_server_is_decoded() -> None:
    body = event(events.TAGGED_GTID, TAGGED[: -events.CHECKSUM_BYTES])
    start = events.transaction_start(body)
    assert start.origin == "8fc20824-eb7e-11f1-89a8-02fc00000001:tagged"
    assert (start.number, start.committed_at, start.length) == (1, 1795906526220559, 281)


@given(st.frozensets(st.tuples(st.sampled_from((UUID, f"{UUID}:nightly")), st.integers(1, 50))))
def test_gtid_set_survives_the_wire_format(transactions: frozenset[tuple[str, int]]) -> None:
    gtids = NO_GTIDS
    for origin, number in transactions:
        gtids = gtids.add(origin, number)
    assert events.decode_gtid_set(events.encode_gtid_set(gtids)) == gtids


@given(st.sets(st.integers(1, 17)))
def test_chunks_cut_anywhere_contain_every_event(cuts: set[int]) -> None:
    transactions = [Transaction(number, committed_at=number) for number in range(1, 7)]
    chunks = session("s", NO_GTIDS, transactions, sorted(cuts))
    assert b"".join(chunk.content for chunk in chunks) == b"".join(
        each.data for transaction in transactions for each in transaction.events()
    )
    assert chunks[-1].header.after == GtidSet.parse(f"{UUID}:1-6")
    for previous, following in itertools.pairwise(chunks):
        assert previous.header.after == following.header.before
        assert following.header.starts_in <= following.header.number
    # The chunk in which a transaction begins is known by all that continue it.
    for chunk in chunks:
        first = next(events.split_events(chunk.content), None)
        if first is not None:
            assert (chunk.header.starts_in == chunk.header.number) == (first.kind == events.GTID)


def test_chunk_survives_encryption_only_as_it_was() -> None:
    cipher = ChunkCipher("passphrase")
    chunk = encrypted(session("s", NO_GTIDS, [Transaction(1)])[0], cipher)
    sealed = cipher.seal(chunk)
    assert cipher.open(sealed) == chunk
    assert b"GTID" not in sealed
    with pytest.raises(WrongKey):
        ChunkCipher("other").open(sealed)
    with pytest.raises(WrongKey):
        ChunkCipher("").open(sealed)
    _, start = read_header(sealed)
    with pytest.raises(WrongKey):
        cipher.open(sealed.replace(b'"number":0', b'"number":1'))
    with pytest.raises(WrongKey):
        cipher.open(sealed[: start + 20] + bytes([sealed[start + 20] ^ 1]) + sealed[start + 21 :])


@pytest.mark.parametrize("length", [0, 5, 12, 40])
def test_cut_off_object_is_reported_as_damaged(length: int) -> None:
    cipher = ChunkCipher("")
    sealed = cipher.seal(session("s", NO_GTIDS, [Transaction(1)])[0])
    with pytest.raises(ChunkDamaged):
        cipher.open(sealed[:length])


def test_transaction_of_another_length_is_rejected() -> None:
    builder = ChunkBuilder("s", NO_GTIDS, "none")
    builder.add(format_description())
    first, _, last = Transaction(1).events()
    builder.add(first)
    builder.add(last)
    with pytest.raises(events.BinaryLogDamaged, match="shorter"):
        builder.add(Transaction(2).events()[0])


def test_transaction_without_gtid_is_rejected() -> None:
    builder = ChunkBuilder("s", NO_GTIDS, "none")
    builder.add(format_description())
    with pytest.raises(events.BinaryLogDamaged, match="gtid_mode"):
        builder.add(event(events.ANONYMOUS_GTID, bytes(42)))
