"""Crashes of PostgreSQL are recorded by its processes, and outlive containers."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from database_support.unit.image_script import script
from steersman_instance.postgresql_crashes import CrashWatch
from steersman_pod.crash_log import MAX_TIMES, CrashLog

watch, role = script("postgresql", "watch"), script("postgresql", "role")


class Processes:
    """A directory like /proc."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.recorded = 0
        self.watch = CrashWatch(self._record, directory)
        (directory / "self").mkdir()

    def _record(self) -> None:
        self.recorded += 1

    def start(self, pid: int, parent: int, title: str, started: int = 100) -> None:
        entry = self.directory / str(pid)
        entry.mkdir()
        (entry / "comm").write_text("postgres\n")
        (entry / "cmdline").write_bytes(title.encode() + b"\0\0")
        fields = ["S", str(parent), *["0"] * 17, str(started)]
        (entry / "stat").write_text(f"{pid} (postgres) {' '.join(fields)}\n")

    def stop(self, *pids: int) -> None:
        for pid in pids:
            shutil.rmtree(self.directory / str(pid))


@pytest.fixture
def processes(tmp_path: Path) -> Processes:
    found = Processes(tmp_path)
    found.start(20, 1, "postgres -D /var/lib/steersman/data/pgdata")
    found.start(21, 20, "postgres: orders: checkpointer ")
    found.start(22, 20, "postgres: orders: postgres shop [local] checkpointing")
    found.watch.check()
    return found


def test_other_checkpointer_of_same_postmaster_is_a_crash(processes: Processes) -> None:
    processes.watch.check()
    assert processes.recorded == 0
    processes.stop(21)
    processes.watch.check()  # not started yet
    processes.start(30, 20, "postgres: orders: checkpointer ")
    processes.watch.check()
    processes.watch.check()
    assert processes.recorded == 1


def test_reused_process_id_is_a_crash(processes: Processes) -> None:
    processes.stop(21)
    processes.start(21, 20, "postgres: orders: checkpointer ", started=200)
    processes.watch.check()
    assert processes.recorded == 1


def test_restarted_postmaster_is_not_a_crash(processes: Processes) -> None:
    processes.stop(20, 21)
    processes.watch.check()
    processes.start(40, 1, "postgres -D /var/lib/steersman/data/pgdata")
    processes.start(41, 40, "postgres: orders: checkpointer ")
    processes.watch.check()
    assert processes.recorded == 0


def test_crash_log_counts_container_starts(tmp_path: Path) -> None:
    now = 1000.0
    log = CrashLog(tmp_path / "crashes.json", lambda: now)
    log.record_container_start()
    assert not log.times
    log.record_crash()
    now = 1010.0
    CrashLog(tmp_path / "crashes.json", lambda: now).record_container_start()
    assert log.times == [1000, 1010]
    for _ in range(MAX_TIMES):
        log.record_crash()
    assert log.times == [1010] * MAX_TIMES


def test_damaged_crash_log_starts_again(tmp_path: Path) -> None:
    file = tmp_path / "crashes.json"
    file.write_text("[1000")
    log = CrashLog(file, lambda: 1000.0)
    assert log.times == ()
    log.record_crash()
    assert log.times == [1000]


def test_full_volume_stops_no_server(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = CrashLog(tmp_path / "missing" / "crashes.json")
    log.record_container_start()
    log.record_crash()
    assert log.times == () and "crashes cannot be recorded" in capsys.readouterr().err


def test_crashes_are_reported_on_change(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    commands: list[list[str]] = []

    def run(command: list[str]) -> int:
        commands.append(command)
        return 0

    monkeypatch.setattr(watch, "run", run)
    log = CrashLog(tmp_path / "crashes.json", lambda: 1000.0)
    log.record_container_start()
    report = watch.CrashReport(log)
    report.run(1.0)
    assert commands == [], "a pod without crashes has no annotation"
    log.record_crash()
    for now in (4.0, 7.0, 400.0):
        report.run(now)
    assert commands == [["steersman-role", "crashes", "[1000]"]] * 2
    pod = role.PodIdentity(name="orders-0-0", namespace="shop", uid="u", node="n", addresses=())
    (request,) = role.report_patch(pod, "databases.steersman.dev/crashes", json.dumps([1000]))
    assert request.body["metadata"]["uid"] == "u"
