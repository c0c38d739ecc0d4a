"""What `steersman-room` answers Patroni before a promotion; lines of shell play the programs that it runs."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from database_support.unit.image_script import IMAGES

MIB = 1 << 20


def asked(programs: Path, **bodies: str) -> subprocess.CompletedProcess[str]:
    """The answer where the image's programs do this."""
    for name, body in {"pg_controldata": "exit 1", **bodies}.items():
        program = programs / name.replace("_role", "-role")
        program.write_text(f"#!/bin/sh\n{body}\n")
        program.chmod(0o755)
    environment = {"PATH": f"{programs}:{os.environ['PATH']}", "COUNT": str(programs / "count")}
    command = ["sh", str(IMAGES / "postgresql/room.sh"), "pg"]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=20)


def free(size: int) -> str:
    """A `stat` that tells of so many bytes."""
    return f"echo {size // 4096} 4096"


def test_free_space_needs_no_check(tmp_path: Path) -> None:
    assert asked(tmp_path, stat=free(16 * MIB), steersman_role="exit 1").returncode == 0


def test_other_than_last_leader_releases_lock(tmp_path: Path) -> None:
    answer = asked(
        tmp_path, stat=free(16 * MIB - 4096), steersman_role='[ "$*" = "former pg" ] && exit 1', sleep="exit 9"
    )
    assert answer.returncode == 1
    assert "no room to become the primary" in answer.stderr


def test_segment_size_follows_data(tmp_path: Path) -> None:
    for size, code in {4 * MIB: 0, 64 * MIB: 1}.items():
        told = f"""[ "$*" = /var/lib/steersman/data/pgdata ] || exit 1
echo 'WAL block size:                       8192'
echo 'Bytes per WAL segment:                {size}'"""
        answer = asked(tmp_path, pg_controldata=told, stat=free(16 * MIB), steersman_role="exit 1")
        assert answer.returncode == code


def test_last_leader_continues_once_space_is_free(tmp_path: Path) -> None:
    stat = f"[ -e $COUNT ] && {free(16 * MIB)} || {free(0)}"
    assert asked(tmp_path, stat=stat, steersman_role="exit 0", sleep="touch $COUNT").returncode == 0


def test_wait_for_space_is_bounded(tmp_path: Path) -> None:
    """Without quorum nobody knows who led, and another may have room: Patroni asks it when this one gives up."""
    answer = asked(tmp_path, stat=free(0), steersman_role="exit 0", sleep='echo "$1" >> $COUNT')
    assert answer.returncode == 1
    assert sum(map(int, (tmp_path / "count").read_text().split())) == 120
