"""How full a volume is, in steps: each is told once, and left only with room to spare."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steersman_pod.volumes import usage_level as level_of
from steersman_pod.volumes import usage_levels

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
def test_usage_levels_of_one_gibibyte(free: int, former: int, level: int) -> None:
    assert level_of(GIB, free, former, 16 * MIB) == level


def test_large_volume_is_full_by_space_not_percentage() -> None:
    assert level_of(1000 * GIB, GIB, 0, 16 * MIB) == 95
    assert level_of(1000 * GIB, 15 * MIB, 0, 16 * MIB) == 100
    assert level_of(1000 * GIB, 64 * MIB, 100, 16 * MIB) == 95


def test_small_volume_does_not_stay_full() -> None:
    assert level_of(3 * GIB, 2 * GIB, 100, GIB) == 0


@given(st.integers(300 * MIB, 1 << 50), st.floats(0, 1), st.sampled_from([0, 80, 90, 95, 100]))
def test_unchanged_level_is_kept(total: int, part: float, former: int) -> None:
    free = int(total * part)
    level = level_of(total, free, former, 16 * MIB)
    assert level_of(total, free, level, 16 * MIB) == level
    assert level >= level_of(total, free, 0, 16 * MIB)


def test_volume_without_next_segment_is_full() -> None:
    assert level_of(100 * GIB, 20 * MIB, 0, 64 * MIB) == 100
    assert level_of(100 * GIB, 20 * MIB, 0, 4 * MIB) == 95


def test_unmounted_volumes_are_not_reported(tmp_path: Path) -> None:
    found = usage_levels({"data": tmp_path, "wal": tmp_path / "wal"}, {}, 16 * MIB)
    assert found.keys() == {"data"} and found["data"] in (0, 80, 90, 95, 100)
