"""Processes are identified by PID and start time before they are stopped."""

from __future__ import annotations

import dataclasses
import os
import sys
from pathlib import Path

import pytest

from devcluster import process
from devcluster.errors import CommandFailed
from devcluster.process import Process


def start(log: Path, *arguments: str) -> Process:
    return process.start([sys.executable, "-c", *arguments], log)


def test_process_ends_on_sigterm(tmp_path: Path) -> None:
    sleeper = start(tmp_path / "log", "import time; time.sleep(60)")
    assert sleeper.alive()
    sleeper.terminate(grace=10)
    assert not sleeper.alive()


def test_process_ignoring_sigterm_is_killed(tmp_path: Path) -> None:
    log = tmp_path / "log"
    ignoring = start(
        log, "import signal, time; signal.signal(15, signal.SIG_IGN); print(1, flush=True); time.sleep(60)"
    )
    while not log.exists() or not log.read_text():
        assert ignoring.alive()
    ignoring.terminate(grace=0.1)
    assert not ignoring.alive()


def test_process_with_reused_pid_is_not_killed(tmp_path: Path) -> None:
    newcomer = start(tmp_path / "log", "import time; time.sleep(60)")
    predecessor = dataclasses.replace(newcomer, start_time=newcomer.start_time - 1)
    assert not predecessor.alive()
    predecessor.terminate(grace=0)
    predecessor.kill()
    assert newcomer.alive()
    newcomer.terminate(grace=0)


def test_process_of_unused_pid_is_none(tmp_path: Path) -> None:
    ended = start(tmp_path / "log", "pass")
    assert ended.wait(60)
    assert Process.of(ended.pid) is None


def test_a_child_is_found_by_its_parent(tmp_path: Path) -> None:
    code = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'import time; time.sleep(60)'])"
    parent = start(tmp_path / "log", code)
    child = parent.child()
    while child is None:
        assert parent.alive()
        child = parent.child()
    assert child.pid != parent.pid
    child.terminate(grace=0)
    assert parent.wait(60)


def test_components_do_not_inherit_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "http://192.0.2.1:3128")
    log = tmp_path / "log"
    assert start(log, "import os; print(sorted(os.environ))").wait(60)
    assert "HTTPS_PROXY" not in log.read_text()
    assert "HTTPS_PROXY" not in process.run(["env"])


def test_component_runs_in_its_own_session(tmp_path: Path) -> None:
    log = tmp_path / "log"
    assert start(log, "import os; print(os.getsid(0) == os.getpid())").wait(60)
    assert log.read_text().strip() == "True"


def test_failed_command_error_has_its_output() -> None:
    with pytest.raises(CommandFailed, match="ended with 3: the reason"):
        process.run(["sh", "-c", "echo the reason >&2; exit 3"])


def test_run_timeout_kills_command() -> None:
    with pytest.raises(CommandFailed, match="no end after 0 s"):
        process.run(["sleep", "60"], seconds=0.1)


def test_process_inherits_no_descriptors(tmp_path: Path) -> None:
    inheritable = os.open(tmp_path, os.O_RDONLY)
    os.set_inheritable(inheritable, True)
    lister = start(tmp_path / "log", "import os; print(*map(os.path.realpath, os.scandir('/proc/self/fd')))")
    try:
        assert lister.wait(10)
    finally:
        os.close(inheritable)
    paths = (tmp_path / "log").read_text().split()
    assert str(tmp_path / "log") in paths
    assert str(tmp_path) not in paths
