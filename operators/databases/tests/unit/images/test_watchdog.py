"""`steersman-watchdog`, which ends a server whose Patroni hangs."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

from database_support.unit.declared_clusters import declared_cluster
from database_support.unit.image_script import script
from steersman_databases.engines.postgresql.ha.patroni import dynamic_configuration

watchdog = script("postgresql", "watchdog")
start = script("postgresql", "start")


def timer(content: bytes = b"Ctimeout=12\n", now: float = 100.0) -> Any:
    found = watchdog.Timer()
    found.receive(content, now)
    return found


def test_timer_expires_without_keepalives() -> None:
    found = timer()
    assert [found.expired(now) for now in (100.0, 111.9, 112.0)] == [False, False, True]
    found.receive(b"1", 120.0)
    assert [found.expired(now) for now in (131.9, 132.0)] == [False, True]


def test_keepalives_extend_the_timer() -> None:
    found = timer()
    found.receive(b"11", 111.0)
    assert [found.expired(now) for now in (122.9, 123.0)] == [False, True]


def test_replica_has_no_timer() -> None:
    assert not watchdog.Timer().expired(1e9)
    found = timer(b"Ctimeout=12\n1V")
    assert not found.expired(1e9), "the device was closed"
    found.receive(b"Ctimeout=9\n", 200.0)
    assert found.expired(209.0), "it leads again"


def test_restarted_watchdog_learns_of_the_leader() -> None:
    found = timer(b"1")
    assert [found.expired(now) for now in (111.9, 112.0)] == [False, True]


def test_timeout_is_before_the_end_of_the_lock() -> None:
    ttl = dynamic_configuration(declared_cluster())["ttl"]
    assert ttl - start.WATCHDOG_MARGIN == watchdog.DEFAULT_TIMEOUT_SECONDS


@pytest.fixture
def processes(tmp_path: Path) -> Generator[dict[str, subprocess.Popen[bytes]]]:
    """Programs called postgres and sleep, in the directory of the data and elsewhere."""
    data, elsewhere = tmp_path / "pgdata", tmp_path / "elsewhere"
    sleep = shutil.which("sleep")
    assert sleep is not None
    shutil.copy(sleep, tmp_path / "postgres")
    started: dict[str, subprocess.Popen[bytes]] = {}
    for directory in (data, elsewhere):
        directory.mkdir()
        for program in (str(tmp_path / "postgres"), sleep):
            name = f"{Path(program).name} in {directory.name}"
            started[name] = subprocess.Popen([program, "600"], cwd=directory, start_new_session=True)
    yield started
    for process in started.values():
        process.kill()
        process.wait()


def test_all_processes_of_the_server_are_killed(
    processes: dict[str, subprocess.Popen[bytes]], tmp_path: Path
) -> None:
    server = processes["postgres in pgdata"]
    os.kill(server.pid, signal.SIGSTOP)
    assert list(watchdog.servers(tmp_path / "pgdata")) == [server.pid]
    assert watchdog.kill_servers(tmp_path / "pgdata") == 1
    assert server.wait(10) == -signal.SIGKILL
    assert [process.poll() for name, process in processes.items() if name != "postgres in pgdata"] == [None] * 3


def test_device_is_served(processes: dict[str, subprocess.Popen[bytes]], tmp_path: Path) -> None:
    device = tmp_path / "watchdog"
    os.mkfifo(device)
    run = "import runpy, sys, pathlib; runpy.run_path(sys.argv[1])['main'](*map(pathlib.Path, sys.argv[2:]))"
    command = [sys.executable, "-c", run, str(watchdog.__file__), str(device), str(tmp_path / "pgdata")]
    program = subprocess.Popen(command, stderr=subprocess.PIPE)
    try:
        with device.open("wb", buffering=0) as patroni:
            patroni.write(b"Ctimeout=1\n")
            assert processes["postgres in pgdata"].wait(30) == -signal.SIGKILL
            assert program.stderr is not None
            assert b"has not renewed its lock: ended 1 processes" in program.stderr.readline()
            assert program.poll() is None
    finally:
        program.kill()
        program.wait()
