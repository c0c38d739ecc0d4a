"""The agent's supervisor: each service alone, with its own back-off, and a bounded end."""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from steersman_instance import agent
from steersman_instance.agent import (
    MAX_BACKOFF_SECONDS,
    STOP_SECONDS,
    SupervisedService,
    Supervisor,
)
from steersman_instance.services import Service


@dataclass
class FakeProcess:
    pid: int
    signals: list[int] = field(default_factory=list[int])
    code: int | None = None
    stubborn: bool = False

    def poll(self) -> int | None:
        return self.code

    def send_signal(self, sig: int, /) -> None:
        self.signals.append(sig)
        if sig == signal.SIGTERM and not self.stubborn:
            self.code = 0


@dataclass
class Machine:
    """Starts fake processes. Signals of groups reach the newest process."""

    started: list[FakeProcess] = field(default_factory=list[FakeProcess])
    missing: bool = False

    def start(self, service: Service) -> FakeProcess:
        if self.missing:
            raise FileNotFoundError(2, "No such file or directory")
        self.started.append(FakeProcess(len(self.started) + 1))
        return self.started[-1]

    def kill_group(self, pid: int, number: int) -> None:
        process = self.started[pid - 1]
        process.signals.append(number)
        if number == signal.SIGKILL and process.code is None:
            process.code = -9


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    found = Machine()
    monkeypatch.setattr(os, "killpg", found.kill_group)
    return found


def test_service_that_ends_restarts_with_backoff(machine: Machine) -> None:
    supervised = SupervisedService(Service(name="loop", command=["loop"]), machine.start)
    now, starts = 0.0, list[float]()
    while now < 400:
        before = len(machine.started)
        now = max(supervised.step(now), now)
        if len(machine.started) > before:
            starts.append(now)
            machine.started[-1].code = 1
    pauses = [round(after - before) for before, after in itertools.pairwise(starts)]
    assert pauses[-1] >= MAX_BACKOFF_SECONDS
    assert len(starts) < 15


def test_failing_service_leaves_others_running(machine: Machine) -> None:
    def broken() -> bool:
        raise RuntimeError("store.json: bucket is missing")

    other = SupervisedService(Service(name="server", command=["server"]), machine.start)
    failing = SupervisedService(Service(name="report", command=["report"], enabled=broken), machine.start)
    clock = iter(float(n) for n in range(0, 1000, 5))
    supervisor = Supervisor([failing, other], lambda: next(clock))
    for _ in range(50):
        assert supervisor.step() >= 0
    assert other.running
    assert not failing.running


def test_missing_program_is_retried(machine: Machine) -> None:
    machine.missing = True
    supervised = SupervisedService(Service(name="server", command=["server"]), machine.start)
    assert supervised.step(0.0) > 0
    machine.missing = False
    supervised.step(100.0)
    assert supervised.running


def test_disabled_service_is_stopped(machine: Machine) -> None:
    enabled = [False]
    service = Service(name="server", command=["server"], enabled=lambda: enabled[0])
    supervised = SupervisedService(service, machine.start)
    supervised.step(0.0)
    assert not supervised.running
    enabled[0] = True
    supervised.step(5.0)
    assert supervised.running
    enabled[0] = False
    supervised.step(10.0)
    supervised.step(10.1)
    assert not supervised.running
    assert machine.started[0].signals[0] == signal.SIGTERM


@pytest.mark.parametrize(("on_change", "expected"), [("reload", signal.SIGHUP), ("restart", signal.SIGTERM)])
def test_changed_file_reaches_service(
    machine: Machine, tmp_path: Path, on_change: str, expected: signal.Signals
) -> None:
    file = tmp_path / "store.json"
    service = Service(name="server", command=["server"], watched=(file,), on_change=on_change)  # type: ignore[arg-type]
    supervised = SupervisedService(service, machine.start)
    supervised.step(0.0)
    supervised.step(5.0)
    assert machine.started[0].signals == []
    file.write_text("{}")
    supervised.step(10.0)
    assert machine.started[0].signals == [expected]
    supervised.step(15.0)
    supervised.step(15.0)
    assert supervised.running
    assert len(machine.started) == (1 if on_change == "reload" else 2)


def test_stop_kills_service_that_ignores_sigterm(machine: Machine) -> None:
    services = [SupervisedService(Service(name=n, command=[n]), machine.start) for n in ("a", "b")]
    now = [0.0]
    supervisor = Supervisor(services, lambda: now[0])
    supervisor.step()
    machine.started[0].stubborn = True

    def wait(seconds: float) -> None:
        now[0] += seconds

    supervisor.stop(wait)
    assert not any(each.running for each in services)
    assert now[0] <= STOP_SECONDS + 1
    assert signal.SIGKILL in machine.started[0].signals


def test_agent_ends_its_children_on_sigterm(tmp_path: Path) -> None:
    """The real loop with real processes, one of which ignores SIGTERM and has a child."""
    script = f"""
import sys
from steersman_instance import agent, services
stubborn = ["/bin/sh", "-c", "trap '' TERM; sleep 97 & echo $! > {tmp_path}/child; while :; do wait; done"]
services.SERVICES = {{"mysql": lambda: [services.Service(name="stubborn", command=stubborn)]}}
agent.SERVICES = services.SERVICES
agent.STOP_SECONDS = 0.2
sys.exit(agent.main(["mysql"]))
"""
    images = str(Path(agent.__file__).parents[1])
    process = subprocess.Popen([sys.executable, "-c", script], env={**os.environ, "PYTHONPATH": images})
    try:
        child = tmp_path / "child"
        while not child.exists() or not child.read_text().strip():
            assert process.poll() is None
        process.send_signal(signal.SIGTERM)
        assert process.wait(5) == 0
        assert not is_running(int(child.read_text()))
    finally:
        process.kill()
        process.wait()


def is_running(pid: int) -> bool:
    """Return True unless the process is gone or a zombie."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


@pytest.mark.parametrize("arguments", [[], ["oracle"], ["mysql", "now"]])
def test_agent_refuses_other_arguments(arguments: Sequence[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert agent.main(arguments) == 2
    assert "usage" in capsys.readouterr().err
