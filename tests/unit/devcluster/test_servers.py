"""Server releases are built completely or skipped, independent of each other."""

from __future__ import annotations

import io
import os
import subprocess
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from devcluster import apt, database_servers, rootfs
from devcluster.errors import CommandFailed
from devcluster.progress import Progress

# The argv of the loader: the program name and library path precede the program.
LOADER = '#!/bin/sh\nshift 4\nexec "$@"\n'
RELEASES = {
    "trixie": database_servers.TRIXIE,
    "forky": database_servers.FORKY,
    "sid": database_servers.SID,
    "prometheus": database_servers.PROMETHEUS,
}
VERSIONS = {
    "trixie": "postgres (PostgreSQL) 17.6",
    "forky": "postgres (PostgreSQL) 18.6",
    "sid": "mysqld  Ver 9.7.0 for Linux",
    "prometheus": "prometheus, version 2.53.3+ds1",
}


class FakeMmdebstrap:
    """Replaces mmdebstrap. ``contents`` defines the unpacked files of each release."""

    def __init__(self) -> None:
        self.unpacked: list[str] = []
        self.contents: dict[str, Callable[[Path], None]] = {
            name: partial(unpack, name=name, command=f"echo '{version}'") for name, version in VERSIONS.items()
        }

    def __call__(self, arguments: Sequence[str], log: Path, **options: Any) -> None:
        *_, suite, made = arguments
        (name,) = (n for n, release in RELEASES.items() if f"--include={','.join(release.packages)}" in arguments)
        assert suite == RELEASES[name].suite
        self.unpacked.append(name)
        Path(made).mkdir()
        self.contents[name](Path(made))


def unpack(made: Path, name: str, command: str) -> None:
    """Write programs that run ``command``."""
    write(made / "usr/lib64/ld-linux-x86-64.so.2", LOADER)
    for program in RELEASES[name].programs:
        write(made / program, f"#!/bin/sh\n{command}\n")


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)


def nothing(*arguments: object) -> list[str]:
    return []


@pytest.fixture
def mirror(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeMmdebstrap:
    mirror = FakeMmdebstrap()
    monkeypatch.setattr(database_servers, "_directory", lambda: tmp_path)
    monkeypatch.setattr(database_servers, "logged", mirror)
    monkeypatch.setattr(apt, "ensure", nothing)
    monkeypatch.setattr(rootfs, "sources", nothing)
    return mirror


def ensure_releases() -> tuple[list[str], str]:
    """Return the available releases and the printed messages."""
    notes = io.StringIO()
    found = database_servers.ensure(Progress(Console(file=notes)))
    return [name for name, release in RELEASES.items() if database_servers.root(release) in found], notes.getvalue()


def test_releases_are_unpacked_once_and_programs_run(mirror: FakeMmdebstrap) -> None:
    assert ensure_releases()[0] == ensure_releases()[0] == list(RELEASES)
    assert sorted(mirror.unpacked) == sorted(RELEASES)
    for name, release in RELEASES.items():
        root = database_servers.root(release)
        assert root is not None
        for program in release.programs:
            assert VERSIONS[name] in subprocess.check_output([root / program], text=True)


def test_release_of_other_version_is_not_installed(mirror: FakeMmdebstrap, tmp_path: Path) -> None:
    mirror.contents["sid"] = lambda made: unpack(made, "sid", f"ls {tmp_path}; echo Ver 9.8.0")
    found, notes = ensure_releases()
    assert found == ["trixie", "forky", "prometheus"]
    assert "MySQL 9.7 cannot be had" in notes
    assert "Ver 9.8.0" in notes
    assert "sid-1\n" not in notes
    assert not [path for path in tmp_path.glob("sid-*") if path.is_dir()]


def no_loader(made: Path) -> None:
    write(made / RELEASES["sid"].programs[0], "#!/bin/sh\n")


def no_program(made: Path) -> None:
    write(made / "usr/lib64/ld-linux-x86-64.so.2", LOADER)


def no_answer(made: Path) -> None:
    raise CommandFailed("mmdebstrap ended with 25")


@pytest.mark.parametrize("contents", [no_loader, no_program, no_answer])
def test_unavailable_release_is_noted_and_retried_next_day(
    mirror: FakeMmdebstrap, tmp_path: Path, contents: Callable[[Path], None]
) -> None:
    available, mirror.contents["sid"] = mirror.contents["sid"], contents
    for _ in range(2):
        found, notes = ensure_releases()
        assert found == ["trixie", "forky", "prometheus"]
        assert "MySQL 9.7 cannot be had" in notes
    assert mirror.unpacked.count("sid") == 1
    mirror.contents["sid"] = available
    (remembered,) = tmp_path.glob("sid-*")
    yesterday = time.time() - 25 * 3600
    os.utime(remembered, (yesterday, yesterday))
    found, notes = ensure_releases()
    assert found == list(RELEASES)
    assert "cannot be had" not in notes
