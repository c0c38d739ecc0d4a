"""CPU and memory of a container by the files of both versions of control groups."""

from __future__ import annotations

from pathlib import Path

from steersman_instance.cgroup import used_memory, used_seconds


def test_used_seconds_reads_both_versions(tmp_path: Path) -> None:
    assert used_seconds(tmp_path) is None
    (tmp_path / "cpuacct").mkdir()
    (tmp_path / "cpuacct" / "cpuacct.usage").write_text("2500000000\n")
    assert used_seconds(tmp_path) == 2.5
    (tmp_path / "cpu.stat").write_text("usage_usec 1500000\nuser_usec 1000000\n")
    assert used_seconds(tmp_path) == 1.5


def test_used_memory_excludes_page_cache(tmp_path: Path) -> None:
    assert used_memory(tmp_path) is None
    (tmp_path / "memory").mkdir()
    (tmp_path / "memory" / "memory.stat").write_text("cache 900\ntotal_cache 900\ntotal_rss 100\ntotal_shmem 20\n")
    assert used_memory(tmp_path) == 120
    (tmp_path / "memory.stat").write_text("anon 50\nfile 900\nshmem 7\n")
    assert used_memory(tmp_path) == 57
