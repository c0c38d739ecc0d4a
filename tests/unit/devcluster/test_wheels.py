"""The wheels that images and tests install from."""

from __future__ import annotations

from pathlib import Path

import pytest

from devcluster import wheels


def test_each_set_of_requirements_is_fetched_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    fetched: list[str] = []

    def fetch(command: list[str], *_: object, **__: object) -> None:
        options = {name: value for name, _, value in (word.partition("=") for word in command)}
        requirements = Path(options["--requirement"])
        fetched.append(requirements.name)
        (Path(options["--dest"]) / f"{requirements.stem}.whl").touch()

    monkeypatch.setattr(wheels, "logged", fetch)
    for name in ("dev.txt", "project.txt"):
        (tmp_path / name).write_text("msgspec==0.19\n")
    for round_ in ("first", "second"):
        for name in ("dev.txt", "project.txt"):
            wheels.download(tmp_path / name, tmp_path / round_ / name, tmp_path / "log")
            assert [p.stem for p in (tmp_path / round_ / name).iterdir()] == [Path(name).stem]
    assert fetched == ["dev.txt", "project.txt"]


def test_copied_scripts_stay_executable(tmp_path: Path) -> None:
    source = tmp_path / "source/images/entrypoint.sh"
    source.parent.mkdir(parents=True)
    source.write_text("#!/bin/sh\n")
    source.chmod(0o755)
    wheels.copy([source], tmp_path / "source", tmp_path / "context")
    assert (tmp_path / "context/images/entrypoint.sh").stat().st_mode & 0o111 == 0o111
