"""Processes are known by id and start time, and nobody else is ever ended."""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path

import pytest

from devcluster import process
from devcluster.errors import CommandFailed
from devcluster.process import Process


def start(log: Path, *arguments: str) -> Process:
    return process.start([sys.executable, "-c", *arguments], log)


def test_a_process_ends_when_asked(tmp_path: Path) -> None:
    sleeper = start(tmp_path / "log", "import time; time.sleep(60)")
    assert sleeper.alive()
    sleeper.end(grace=10)
    assert not sleeper.alive()


def test_a_process_that_ignores_the_question_is_killed(tmp_path: Path) -> None:
    log = tmp_path / "log"
    deaf = start(log, "import signal, time; signal.signal(15, signal.SIG_IGN); print(1, flush=True); time.sleep(60)")
    while not log.exists() or not log.read_text():
        assert deaf.alive()
    deaf.end(grace=0.1)
    assert not deaf.alive()


def test_a_process_that_has_taken_over_an_id_is_left_alone(tmp_path: Path) -> None:
    newcomer = start(tmp_path / "log", "import time; time.sleep(60)")
    predecessor = dataclasses.replace(newcomer, started=newcomer.started - 1)
    assert not predecessor.alive()
    predecessor.end(grace=0)
    predecessor.kill()
    assert newcomer.alive()
    newcomer.end(grace=0)


def test_there_is_no_process_with_an_id_that_is_free(tmp_path: Path) -> None:
    gone = start(tmp_path / "log", "pass")
    assert gone.wait(60)
    assert Process.of(gone.pid) is None


def test_a_child_is_found_by_its_parent(tmp_path: Path) -> None:
    code = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'import time; time.sleep(60)'])"
    parent = start(tmp_path / "log", code)
    child = parent.child()
    while child is None:
        assert parent.alive()
        child = parent.child()
    assert child.pid != parent.pid
    child.end(grace=0)
    assert parent.wait(60)


def test_components_see_nothing_of_the_callers_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "http://192.0.2.1:3128")
    log = tmp_path / "log"
    assert start(log, "import os; print(sorted(os.environ))").wait(60)
    assert "HTTPS_PROXY" not in log.read_text()
    assert "HTTPS_PROXY" not in process.run(["env"])


def test_a_component_outlives_the_session_that_started_it(tmp_path: Path) -> None:
    log = tmp_path / "log"
    assert start(log, "import os; print(os.getsid(0) == os.getpid())").wait(60)
    assert log.read_text().strip() == "True"


def test_a_failed_command_tells_its_own_words() -> None:
    with pytest.raises(CommandFailed, match="ended with 3: the reason"):
        process.run(["sh", "-c", "echo the reason >&2; exit 3"])


def test_a_command_without_end_is_ended() -> None:
    with pytest.raises(CommandFailed, match="no end after 0 s"):
        process.run(["sleep", "60"], seconds=0.1)
