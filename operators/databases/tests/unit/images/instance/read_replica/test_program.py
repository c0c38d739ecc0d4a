"""Steps of the program of a read replica, with models of its processes."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from steersman_instance.paths import InstancePaths
from steersman_instance.read_replica import program
from steersman_instance.read_replica.base_copy import PrimaryUnavailable
from steersman_instance.read_replica.configuration import Upstream
from steersman_instance.read_replica.program import ReadReplica, Setup
from steersman_instance.read_replica.server import ServerState

LOST = "FATAL:  requested WAL segment 000000010000000000000003 has already been removed"
FOLLOWS = ServerState(replayed=5, streaming=True, silent_seconds=0, known=5, connections=3, needs_restart=False)


@dataclass
class FakeProcess:
    code: int | None = None
    state_now: ServerState | None = None
    last_line: str = "why it ended"
    reloads: int = 0
    reload_error: Exception | None = None
    stops: int = 0
    read: Callable[[str], None] = lambda _line: None
    error: Exception | None = None

    def poll(self) -> int | None:
        if self.error is not None:
            raise self.error
        return self.code

    def state(self) -> ServerState | None:
        return self.state_now

    def reload(self, _upstream: Upstream) -> None:
        if self.reload_error is not None:
            raise self.reload_error
        self.reloads += 1

    def close_session(self) -> None:
        pass

    def stop(self) -> None:
        self.stops += 1


@dataclass
class World:
    directory: Path
    now: float = 1000.0
    identifier: str = "7"
    unavailable: bool = False
    copies: list[FakeProcess] = field(default_factory=list[FakeProcess])
    servers: list[FakeProcess] = field(default_factory=list[FakeProcess])

    @property
    def paths(self) -> InstancePaths:
        at = self.directory
        return InstancePaths(volume=at / "volume", run=at / "run", tls=at / "tls", peer=at / "peer")

    @property
    def data(self) -> Path:
        return self.paths.postgresql_data

    def declare(self, **changed: Any) -> None:
        declared: dict[str, object] = {
            "host": "a",
            "port": 5432,
            "parameters": {},
            "hba": [],
            "ident": [],
            "maxLagSeconds": 30,
        }
        fresh = self.directory / "fresh"
        fresh.write_text(json.dumps({**declared, **changed}))
        fresh.replace(self.directory / "declaration.json")

    def replica(self, number: int = 0) -> ReadReplica:
        declaration = self.directory / "declaration.json"
        setup = Setup(pod=f"orders-read{number}-0", version="17", paths=self.paths, declaration=declaration)
        return ReadReplica(setup, lambda: self.now)

    def complete(self, version: str = "17") -> None:
        self.data.mkdir(parents=True, exist_ok=True)
        (self.data / "PG_VERSION").write_text(f"{version}\n")

    def system_identifier(self, _upstream: Upstream) -> str:
        if self.unavailable:
            raise PrimaryUnavailable("connection refused")
        return self.identifier

    def control(self, _data: Path) -> dict[str, str]:
        return {"Database system identifier": "7"}

    def copy(self, upstream: Upstream) -> FakeProcess:
        self.system_identifier(upstream)
        self.copies.append(FakeProcess())
        return self.copies[-1]

    def serve(self, _upstream: Upstream, read: Callable[[str], None], _program: str) -> FakeProcess:
        self.servers.append(FakeProcess(read=read))
        return self.servers[-1]

    def advance(self, replica: ReadReplica, seconds: float) -> None:
        end = self.now + seconds
        while self.now < end:
            self.now += 1
            replica.step()


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    made = World(tmp_path)
    monkeypatch.setattr(program, "BaseCopy", made.copy)
    monkeypatch.setattr(program, "StandbyServer", made.serve)
    monkeypatch.setattr(program, "system_identifier", made.system_identifier)
    monkeypatch.setattr(program, "control_data", made.control)
    made.declare()
    return made


def test_copy_then_server(world: World) -> None:
    replica = world.replica()
    replica.step()
    assert (replica.report.state, len(world.copies)) == ("Copying", 1)
    assert not replica.report.ready
    world.copies[0].code = 0
    world.complete()
    world.advance(replica, 2)
    assert (replica.report.state, len(world.servers)) == ("Starting", 1)
    world.servers[0].state_now = FOLLOWS
    world.advance(replica, 1)
    assert (replica.report.state, replica.report.connections) == ("Streaming", 3)
    assert replica.report.ready
    replica.stop()
    assert world.servers[0].stops == 1
    assert not replica.report.ready


def test_copy_that_cannot_be_adopted_is_repeated(world: World) -> None:
    replica = world.replica()
    replica.step()
    world.copies[0].error = OSError("no space left on device")
    world.advance(replica, 1)
    assert (replica.report.state, replica.report.message) == ("Waiting", "no space left on device")
    world.advance(replica, 2)
    assert len(world.copies) == 2


def test_failed_copy_backs_off(world: World) -> None:
    replica = world.replica()
    for _ in range(300):
        world.advance(replica, 1)
        for copy in world.copies:
            copy.code = 1
    assert 10 <= len(world.copies) <= 16
    assert replica.report.message == "the copy failed: why it ended" or replica.report.state == "Copying"


def test_unusable_data_are_replaced_by_a_new_copy(world: World) -> None:
    for reason, change in (
        ("another major version", lambda: world.complete("15")),
        ("another primary", lambda: setattr(world, "identifier", "8")),
    ):
        world.complete()
        change()
        replica, before = world.replica(), len(world.copies)
        replica.step()
        assert (len(world.copies), replica.report.state) == (before + 1, "Copying"), reason


def test_complete_data_are_served_without_the_primary(world: World) -> None:
    world.complete()
    world.unavailable = True
    replica = world.replica()
    replica.step()
    assert (len(world.copies), len(world.servers)) == (0, 1)


def test_hopeless_server_is_stopped_for_a_new_copy(world: World) -> None:
    world.complete()
    replica = world.replica()
    world.advance(replica, 1)
    [server] = world.servers
    server.state_now = FOLLOWS
    world.advance(replica, 1)
    server.state_now = ServerState(
        replayed=5, streaming=False, silent_seconds=0, known=None, connections=0, needs_restart=False
    )
    for _ in range(20):
        server.read(LOST)
        world.advance(replica, 1)
    assert server.stops == 1
    assert len(world.copies) == 1


def test_server_that_ended_is_started_again_with_backoff(world: World) -> None:
    world.complete()
    replica = world.replica()
    for _ in range(120):
        world.advance(replica, 1)
        for server in world.servers:
            server.code = 1
    assert 5 <= len(world.servers) <= 9
    assert world.copies == [], "a server that does not start is no reason for a copy"


@pytest.mark.parametrize(("number", "seconds"), [(0, 0), (2, 60)])
def test_restart_for_parameters_is_staggered(world: World, number: int, seconds: int) -> None:
    world.complete()
    replica = world.replica(number)
    world.advance(replica, 1)
    [server] = world.servers
    server.state_now = ServerState(
        replayed=5, streaming=True, silent_seconds=0, known=5, connections=0, needs_restart=True
    )
    world.advance(replica, seconds)
    assert server.stops == 0
    world.advance(replica, 2)
    assert server.stops == 1


def test_changed_declaration_is_reloaded(world: World) -> None:
    world.complete()
    replica = world.replica()
    world.advance(replica, 2)
    [server] = world.servers
    assert server.reloads == 0
    world.declare(parameters={"work_mem": "5MB"})
    world.advance(replica, 2)
    assert server.reloads == 1


def test_failed_reload_is_repeated(world: World) -> None:
    world.complete()
    replica = world.replica()
    world.advance(replica, 2)
    [server] = world.servers
    server.reload_error = OSError("no space left on device")
    world.declare(parameters={"work_mem": "5MB"})
    world.advance(replica, 2)
    assert (server.reloads, server.stops) == (0, 0)
    server.reload_error = None
    world.advance(replica, 2)
    assert server.reloads == 1


def test_missing_declaration_is_waited_for(world: World) -> None:
    (world.directory / "declaration.json").unlink()
    replica = world.replica()
    replica.step()
    assert replica.report.state == "Waiting"
    assert "declaration.json" in replica.report.message
    world.declare()
    world.advance(replica, 1)
    assert replica.report.state == "Copying"


def test_promoted_server_is_replaced_by_a_new_copy(world: World) -> None:
    world.complete()
    world.unavailable = True
    replica = world.replica()
    world.advance(replica, 1)
    [server] = world.servers
    server.state_now = replace(FOLLOWS, promoted=True)
    world.advance(replica, 1)
    assert server.stops == 1
    assert not replica.report.ready
    world.advance(replica, 60)
    assert len(world.servers) == 1, "its data are not used again, even without the primary"
    world.unavailable = False
    world.advance(replica, 30)
    assert (len(world.copies), replica.report.state) == (1, "Copying")
