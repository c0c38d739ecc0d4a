"""How full a volume is, in steps: each is told once, and left only with room to spare."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from image_script import script

volumes, role = script("postgresql", "volumes"), script("postgresql", "role")
MIB = 1 << 20
GIB = 1 << 30


@pytest.mark.parametrize(
    ("free", "former", "level"),
    [
        (300 * MIB, 0, 0),
        (200 * MIB, 0, 80),
        (100 * MIB, 0, 90),
        (40 * MIB, 0, 95),
        (16 * MIB - 1, 0, 100),
        (0, 80, 100),
        (20 * MIB, 100, 100),  # a little room is soon taken again
        (63 * MIB, 100, 100),
        (64 * MIB, 100, 95),
        (1000 * MIB, 100, 0),
        (206 * MIB, 80, 80),
        (240 * MIB, 80, 0),
    ],
)
def test_steps_of_a_gibibyte(free: int, former: int, level: int) -> None:
    assert volumes.level(GIB, free, former) == level


def test_a_large_volume_is_full_where_there_is_no_room_and_not_at_a_percentage() -> None:
    assert volumes.level(1000 * GIB, GIB) == 95
    assert volumes.level(1000 * GIB, 15 * MIB) == 100
    assert volumes.level(1000 * GIB, 64 * MIB, 100) == 95


def test_a_volume_of_few_segments_is_not_full_for_ever() -> None:
    assert volumes.level(3 * GIB, 2 * GIB, 100, GIB) == 0


@given(st.integers(300 * MIB, 1 << 50), st.floats(0, 1), st.sampled_from([0, 80, 90, 95, 100]))
def test_what_was_told_is_kept_where_nothing_changes(total: int, part: float, former: int) -> None:
    free = int(total * part)
    level = volumes.level(total, free, former)
    assert volumes.level(total, free, level) == level
    assert level >= volumes.level(total, free)


def test_full_is_where_the_next_segment_finds_no_room() -> None:
    assert volumes.level(100 * GIB, 20 * MIB, 0, 64 * MIB) == 100
    assert volumes.level(100 * GIB, 20 * MIB, 0, 4 * MIB) == 95


@pytest.mark.parametrize(("does", "size"), [("echo 'Bytes per WAL segment:  67108864'", 64 * MIB), ("exit 1", None)])
def test_the_size_of_a_segment_is_what_the_data_say(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, does: str, size: int | None
) -> None:
    program = tmp_path / "pg_controldata"
    program.write_text(f"#!/bin/sh\n{does}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert volumes.segment_size() == size


def test_volumes_that_are_not_mounted_are_not_told_of(tmp_path: Path) -> None:
    found = volumes.look({"data": tmp_path, "wal": tmp_path / "wal"}, {}, 16 * MIB)
    assert found.keys() == {"data"} and found["data"] in (0, 80, 90, 95, 100)


def test_it_is_told_at_this_pod_and_no_later_one() -> None:
    pod = role.Pod(name="orders-0-0", namespace="shop", uid="u", node="n", addresses=())
    (request,) = role.note(pod, json.dumps({"data": 90}))
    assert request.path == "/api/v1/namespaces/shop/pods/orders-0-0"
    annotations = {"databases.steersman.dev/storage": '{"data": 90}'}
    assert request.body == {"metadata": {"uid": "u", "annotations": annotations}}
