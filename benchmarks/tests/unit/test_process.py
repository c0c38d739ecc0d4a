"""Tests of the operator process: CPU affinity, reports, shutdown and early exit."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest
from benchmarks.machine import Cores, assign_cores, description, pin
from benchmarks.measurement import cpu_seconds, peak_rss_mib, rss_mib
from benchmarks.process import OperatorFailed, OperatorReport, run_operator

CORE = max(os.sched_getaffinity(0))
REPORTING_SCRIPT = """
import os, time
for n in range(2):
    print('{"reconciles": %d, "pause_ms": 1.5}' % n, flush=True)
print('{"reconciles": %d, "pause_ms": 0}' % max(os.sched_getaffinity(0)), flush=True)
print('{"reconciles": %d, "pause_ms": 0}' % len(os.sched_getaffinity(0)), flush=True)
time.sleep(60)
"""

PID_PRINTING_SCRIPT = """
import os, time
print('{"reconciles": %d, "pause_ms": 0}' % os.getpid(), flush=True)
time.sleep(60)
"""


def script(text: str) -> list[str]:
    return [sys.executable, "-c", text]


async def wait_for_reports(reports: list[OperatorReport], count: int) -> None:
    while len(reports) < count:
        await asyncio.sleep(0.01)


async def test_operator_reports_are_collected_on_one_core() -> None:
    async with run_operator(script(REPORTING_SCRIPT), {}, CORE) as operator:
        await operator.wait_for(wait_for_reports(operator.reports, 4), 30)
        assert operator.reports[:2] == [OperatorReport(0, 1.5), OperatorReport(1, 1.5)]
        assert [report.reconciles for report in operator.reports[2:]] == [CORE, 1]
        assert 0 < operator.rss <= operator.peak_rss


async def test_operator_exit_raises_with_log_tail() -> None:
    async with run_operator(script("import sys; sys.exit('no such cluster')"), {}, CORE) as operator:
        with pytest.raises(OperatorFailed, match=r"exited with code 1:\nno such cluster"):
            await operator.wait_for(asyncio.sleep(60), 30)


async def test_operator_timeout_raises() -> None:
    async with run_operator(script("import time; time.sleep(60)"), {}, CORE) as operator:
        with pytest.raises(TimeoutError, match="timeout after"):
            await operator.wait_for(asyncio.sleep(60), 0.01)


async def test_operator_ends_when_the_block_fails() -> None:
    pids: list[int] = []
    with pytest.raises(RuntimeError, match="measuring failed"):
        async with run_operator(script(PID_PRINTING_SCRIPT), {}, CORE) as operator:
            await operator.wait_for(wait_for_reports(operator.reports, 1), 30)
            pids.append(operator.reports[0].reconciles)
            os.kill(pids[0], 0)
            raise RuntimeError("measuring failed")
    with pytest.raises(ProcessLookupError):
        os.kill(pids[0], 0)


def stub_allowed_cores(monkeypatch: pytest.MonkeyPatch, allowed: set[int]) -> None:
    def affinity(pid: int) -> set[int]:
        return allowed

    monkeypatch.setattr(os, "sched_getaffinity", affinity)


def test_the_operator_has_a_core_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    stub_allowed_cores(monkeypatch, {0, 1, 5})
    assert assign_cores() == Cores(operator=5, others=frozenset({0, 1}))


def test_cores_on_single_core_machine_are_shared(monkeypatch: pytest.MonkeyPatch) -> None:
    stub_allowed_cores(monkeypatch, {3})
    assert assign_cores() == Cores(operator=3, others=frozenset({3}))


def test_a_process_can_be_moved_to_another_core() -> None:
    with subprocess.Popen(["sleep", "60"]) as process:
        try:
            pin([process.pid], {CORE})
            assert os.sched_getaffinity(process.pid) == {CORE}
        finally:
            process.kill()


def test_process_metrics_of_own_process_are_plausible() -> None:
    before = cpu_seconds(os.getpid())
    deadline = time.monotonic() + 30
    while cpu_seconds(os.getpid()) == before and time.monotonic() < deadline:
        pass
    assert cpu_seconds(os.getpid()) > before
    assert 1 < rss_mib(os.getpid()) <= peak_rss_mib(os.getpid())


def test_cpu_seconds_of_ended_process_raises() -> None:
    with pytest.raises(FileNotFoundError):
        cpu_seconds(2**22 + 1)


def test_rss_of_kernel_thread_raises(monkeypatch: pytest.MonkeyPatch) -> None:
    def status(path: Path) -> str:
        return "Name:\tkthreadd\n"

    monkeypatch.setattr(Path, "read_text", status)
    with pytest.raises(ValueError, match="VmRSS"):
        rss_mib(2)


def test_description_has_cores_memory_and_system() -> None:
    assert re.fullmatch(r"\d+ cores of .+, (\d+ GiB|unknown memory), Linux [\d.]+", description())
