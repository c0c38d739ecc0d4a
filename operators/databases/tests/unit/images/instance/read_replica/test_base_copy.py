"""Deletion of previous data and the copy, with a model of the processes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from steersman_instance.paths import InstancePaths
from steersman_instance.read_replica import base_copy
from steersman_instance.read_replica.base_copy import BaseCopy, PrimaryUnavailable
from steersman_instance.read_replica.configuration import Declaration, Upstream


class World:
    """A volume, and the processes that ran on it. Each ends when the test sets its exit code."""

    def __init__(self, directory: Path) -> None:
        self.paths = InstancePaths(volume=directory)
        self.upstream = Upstream(Declaration(host="a"), self.paths, "orders-read0-0")
        self.commands: list[Sequence[str]] = []
        self.code: int | None = None
        self.slots = 0
        self.primary_is_available = True

    last_line = "the last line"

    def start(self, command: Sequence[str]) -> World:
        self.commands.append(command)
        self.code = None
        return self

    def poll(self) -> int | None:
        return self.code

    def run_on_primary(self, _upstream: Upstream, command: str) -> str:
        if not self.primary_is_available:
            raise PrimaryUnavailable("connection refused")
        self.slots += command.startswith("CREATE")
        return "7|"

    def make(self, name: str) -> None:
        (self.paths.volume / name / "global").mkdir(parents=True)
        (self.paths.volume / name / "PG_VERSION").write_text("17")

    def finish(self) -> None:
        """Do what the running process does."""
        program, *arguments = self.commands[-1]
        if program == "rm":
            for path in map(Path, arguments[2:]):
                (path / "PG_VERSION").unlink()
                (path / "global").rmdir()
                path.rmdir()
        else:
            self.make(".pgdata.copying")
        self.code = 0

    @property
    def names(self) -> set[str]:
        return {path.name for path in self.paths.volume.iterdir()}


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    made = World(tmp_path)
    monkeypatch.setattr(base_copy, "LoggedProcess", made.start)
    monkeypatch.setattr(base_copy, "run_on_primary", made.run_on_primary)
    return made


def test_previous_data_are_renamed_before_they_are_deleted(world: World) -> None:
    data = world.paths.postgresql_data.name
    world.make(data)
    copy = BaseCopy(world.upstream)
    assert world.names == {".pgdata.removing"}, "a deletion that is interrupted leaves no data for a server"
    assert copy.poll() is None
    assert world.slots == 0, "a slot would retain WAL for the time of the deletion"
    world.finish()
    assert copy.poll() is None
    assert world.names == set()
    assert (world.commands[-1][0], world.slots) == ("pg_basebackup", 1)
    world.finish()
    assert copy.poll() == 0
    assert world.names == {data}


def test_interrupted_deletion_and_copy_are_cleaned_up(world: World) -> None:
    data = world.paths.postgresql_data.name
    for name in (data, ".pgdata.removing", ".pgdata.copying"):
        world.make(name)
    copy = BaseCopy(world.upstream)
    assert world.names == {data, ".pgdata.removing", ".pgdata.copying"}
    world.finish()
    assert copy.poll() is None
    assert world.names == {".pgdata.removing"}
    world.finish()
    assert copy.poll() is None
    assert (world.commands[-1][0], world.names) == ("pg_basebackup", set())


def test_failed_deletion_ends_the_copy(world: World) -> None:
    world.make(".pgdata.removing")
    copy = BaseCopy(world.upstream)
    world.code = 1
    assert (copy.poll(), copy.last_line) == (1, "the last line")
    assert len(world.commands) == 1


def test_data_are_kept_while_the_primary_is_unavailable(world: World) -> None:
    world.make(world.paths.postgresql_data.name)
    world.primary_is_available = False
    with pytest.raises(PrimaryUnavailable):
        BaseCopy(world.upstream)
    assert world.names == {world.paths.postgresql_data.name}
