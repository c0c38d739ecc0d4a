"""Tests of the build cache: reuse by source, no unfinished builds."""

from __future__ import annotations

from pathlib import Path

import pytest
from benchmarks import build
from benchmarks.peers import PEERS
from rich.console import Console

from devcluster.progress import Progress

SILENT_CONSOLE = Progress(Console(quiet=True))


@pytest.fixture(autouse=True)
def cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache"


class CountingBuild:
    """Sources with a builder that counts its calls."""

    def __init__(self, directory: Path) -> None:
        self.source = directory / "main.go"
        self.source.write_text("package main")
        self.built = 0
        self.fails = False

    def build(self, directory: Path) -> None:
        self.built += 1
        (directory / "operator").write_text(self.source.read_text())
        if self.fails:
            raise KeyboardInterrupt

    def ensure(self, version: str = "go1.26") -> str:
        return (build.cached("program", [self.source], version, self.build, SILENT_CONSOLE) / "operator").read_text()


def test_build_is_cached(tmp_path: Path) -> None:
    program = CountingBuild(tmp_path)
    assert [program.ensure(), program.ensure()] == ["package main"] * 2
    assert program.built == 1


def test_build_source_or_toolchain_change_rebuilds(tmp_path: Path) -> None:
    program = CountingBuild(tmp_path)
    program.ensure()
    program.ensure("go1.27")
    program.source.write_text("package other")
    assert program.ensure() == "package other"
    assert program.built == 3


def test_build_interrupted_is_repeated(tmp_path: Path) -> None:
    program = CountingBuild(tmp_path)
    program.fails = True
    with pytest.raises(KeyboardInterrupt):
        program.ensure()
    program.fails = False
    program.ensure()
    assert program.built == 2


def test_missing_toolchain_skips_its_peers(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    console = Console(record=True, quiet=True)
    notes: list[str] = []
    progress = Progress(console)
    monkeypatch.setattr(progress, "note", notes.append)
    peers = [peer for peer in PEERS if peer.toolchain in ("go", "cargo", "python")]
    assert set(build.ensure(peers, progress)) == {"python"}
    assert [note.split(":")[0] for note in notes] == ["skipped", "skipped"]
    assert "go is not installed" in notes[0]
