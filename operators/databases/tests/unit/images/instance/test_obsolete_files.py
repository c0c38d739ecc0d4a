"""Files that PostgreSQL hands over on a replica, and that the store never receives."""

from __future__ import annotations

from pathlib import Path

import pytest

from steersman_instance.archive.obsolete import is_past_end_of_timeline, reserves_timeline_only

MEBIBYTE = 1 << 20


@pytest.fixture
def data(tmp_path: Path) -> Path:
    wal = tmp_path / "pg_wal"
    wal.mkdir()
    # Timeline 1 was left in segment 5, timeline 2 at the beginning of segment 8. Number 3 is only reserved.
    (wal / "00000002.history").write_text("1\t0/5600000\tno recovery target specified\n")
    (wal / "00000003.history").write_text("# reserved\n")
    (wal / "00000004.history").write_text("1\t0/5600000\tfailover\n2\t0/8000000\tswitchover\n")
    return tmp_path


@pytest.mark.parametrize(
    ("name", "past"),
    [
        ("000000010000000000000004", False),
        ("000000010000000000000005", True),
        ("000000010000000000000006", True),
        ("000000020000000000000005", False),
        ("000000020000000000000007", False),
        ("000000020000000000000008", True),
        ("000000040000000000000009", False),
        ("00000002.history", False),
    ],
)
def test_segment_past_fork_of_its_timeline_is_found(data: Path, name: str, past: bool) -> None:
    file = data / "pg_wal" / name
    if not file.exists():
        with file.open("wb") as content:
            content.truncate(16 * MEBIBYTE)
    assert is_past_end_of_timeline(data, name) is past


def test_segment_without_history_is_needed(tmp_path: Path) -> None:
    (tmp_path / "pg_wal").mkdir()
    assert not is_past_end_of_timeline(tmp_path, "000000010000000000000004")


@pytest.mark.parametrize(
    ("name", "reserved"),
    [
        ("00000002.history", False),
        ("00000003.history", True),
        ("00000009.history", False),
        ("000000010000000000000004", False),
    ],
)
def test_history_without_ancestors_is_found(data: Path, name: str, reserved: bool) -> None:
    assert reserves_timeline_only(data, name) is reserved
