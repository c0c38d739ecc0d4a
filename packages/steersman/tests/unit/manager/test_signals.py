"""Signals, sent to a real process."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

import framework_support

PROGRAM = Path(framework_support.__file__).with_name("managed_process.py")


@contextmanager
def running(*behaviour: str) -> Generator[subprocess.Popen[str], None, None]:
    """A process that has started to reconcile. It is killed at the end."""
    process = subprocess.Popen(
        [sys.executable, str(PROGRAM), *behaviour],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(PROGRAM.parents[1])},
    )
    try:
        assert process.stdout is not None
        first = process.stdout.readline()
        assert first == "started\n", (process.kill(), process.communicate())
        yield process
    finally:
        process.kill()
        process.communicate()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signal_stops_manager_gracefully(number: signal.Signals) -> None:
    with running() as process:
        process.send_signal(number)
        stdout, stderr = process.communicate(timeout=60)
    assert stdout.split() == ["finished", "ended"], stderr
    assert process.returncode == 0


def test_slow_reconcile_is_cancelled_after_signal() -> None:
    with running("slow") as process:
        process.send_signal(signal.SIGTERM)
        stdout, stderr = process.communicate(timeout=60)
    assert stdout.split() == ["cancelled", "ended"], stderr
    assert process.returncode == 0


def test_second_signal_kills_process() -> None:
    with running("slow", "patient") as process:
        process.send_signal(signal.SIGTERM)
        assert process.stdout is not None
        assert process.stdout.readline() == "ending\n"
        process.send_signal(signal.SIGTERM)
        stdout, _ = process.communicate(timeout=60)
    assert stdout == ""
    assert process.returncode == -signal.SIGTERM


def test_signal_before_cache_sync_ends_process() -> None:
    with running("unsynced") as process:
        process.send_signal(signal.SIGTERM)
        stdout, stderr = process.communicate(timeout=60)
    assert stdout.split() == ["ended"], stderr
    assert process.returncode == 0
