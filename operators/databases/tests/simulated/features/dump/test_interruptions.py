"""Dump and restore when the operator is killed at each of its requests."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import pytest

from database_support.unit.database_harness import CuttableTransport
from database_support.unit.dump_harness import HOURLY, DumpHarness
from steersman.api.batch_v1 import Job
from steersman_testing import virtual_time

SOURCES: Mapping[str, Mapping[str, Any]] = {
    "dump": {"recovery": {"backup": {"name": "before"}}},
    "server": {"import": {"host": "old.example.com", "credentials": {"name": "reader"}}},
}
PLACES = range(1, 41)
_ALL = [(place, lose_answer) for place in PLACES for lose_answer in (False, True)]
# By default, each cut point has one of the two moments.
CUTS = _ALL if os.environ.get("SIMULATE") == "whole" else [*_ALL[0::4], *_ALL[3::4]]


async def run_until_cut(world: DumpHarness, requests: int, *, lose_answer: bool) -> bool:
    """Let the operator restore and dump until its requests fail. False if it was done before."""
    transport = CuttableTransport(world.server, requests, lose_answer=lose_answer)
    async with world.operator(transport):
        for _ in range(240):
            if transport.is_cut.is_set():
                return True
            await world.run_jobs()
            await world.runtime.clock.sleep(0.5)
    return False


@virtual_time
@pytest.mark.parametrize(("place", "lose_answer"), CUTS)
@pytest.mark.parametrize("source", SOURCES)
async def test_interrupted_operator_restores_and_dumps_once(source: str, place: int, lose_answer: bool) -> None:
    world = DumpHarness()
    await world.create_store()
    await world.create_dump()
    await world.database(bootstrap=SOURCES[source], backup=HOURLY)
    started: set[str] = set()
    original = world.document

    def document(job: Job) -> object:
        started.add(f"{job.metadata.name} {job.metadata.uid}")
        return original(job)

    world.document = document  # type: ignore[method-assign]
    await run_until_cut(world, place * 3, lose_answer=lose_answer)
    async with world.operator():
        first = f"shop-initial-{world.found.metadata.uid[:8]}"
        await world.dumped(first)
        await world.until("backed up", lambda: world.reason("BackedUp") == "True/UpToDate")
        await world.until("ready", lambda: world.reason("Ready") == "True/DatabaseReady")
    assert len(world.dumps) == 1
    assert len([each for each in started if each.startswith("shop-restore")]) == 1
    assert sorted(world.backups()) == ["before", first]
