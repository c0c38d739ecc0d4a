"""The operator's process: on its own core, heard, ended in order, and its early end is told with its last words."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest
from benchmarks.machine import Cores, cores, description, pin
from benchmarks.measurement import cpu_seconds, peak_rss_mib, rss_mib
from benchmarks.process import OperatorFailed, Report, running

CORE = max(os.sched_getaffinity(0))
REPORTING = """
import os, time
for n in range(2):
    print('{"reconciles": %d, "pause_ms": 1.5}' % n, flush=True)
print('{"reconciles": %d, "pause_ms": 0}' % max(os.sched_getaffinity(0)), flush=True)
print('{"reconciles": %d, "pause_ms": 0}' % len(os.sched_getaffinity(0)), flush=True)
time.sleep(60)
"""

NAMING_ITSELF = """
import os, time
print('{"reconciles": %d, "pause_ms": 0}' % os.getpid(), flush=True)
time.sleep(60)
"""


def script(text: str) -> list[str]:
    return [sys.executable, "-c", text]


async def reported(reports: list[Report], count: int) -> None:
    while len(reports) < count:
        await asyncio.sleep(0.01)


async def test_reports_are_collected_and_the_process_has_one_core() -> None:
    async with running(script(REPORTING), {}, CORE) as operator:
        await operator.until(reported(operator.reports, 4), 30)
        assert operator.reports[:2] == [Report(0, 1.5), Report(1, 1.5)]
        assert [report.reconciles for report in operator.reports[2:]] == [CORE, 1]
        assert 0 < operator.rss <= operator.peak_rss


async def test_an_operator_that_ends_by_itself_is_told_with_its_last_words() -> None:
    async with running(script("import sys; sys.exit('no such cluster')"), {}, CORE) as operator:
        with pytest.raises(OperatorFailed, match=r"exit code 1:\nno such cluster"):
            await operator.until(asyncio.sleep(60), 30)


async def test_one_that_does_not_finish_is_not_waited_for_for_ever() -> None:
    async with running(script("import time; time.sleep(60)"), {}, CORE) as operator:
        with pytest.raises(TimeoutError, match="not done"):
            await operator.until(asyncio.sleep(60), 0.01)


async def test_it_is_ended_with_the_block_though_the_work_fails() -> None:
    pids: list[int] = []
    with pytest.raises(RuntimeError, match="measuring failed"):
        async with running(script(NAMING_ITSELF), {}, CORE) as operator:
            await operator.until(reported(operator.reports, 1), 30)
            pids.append(operator.reports[0].reconciles)
            os.kill(pids[0], 0)
            raise RuntimeError("measuring failed")
    with pytest.raises(ProcessLookupError):
        os.kill(pids[0], 0)


def allow(monkeypatch: pytest.MonkeyPatch, allowed: set[int]) -> None:
    def affinity(pid: int) -> set[int]:
        return allowed

    monkeypatch.setattr(os, "sched_getaffinity", affinity)


def test_the_operator_has_a_core_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    allow(monkeypatch, {0, 1, 5})
    assert cores() == Cores(operator=5, others=frozenset({0, 1}))


def test_on_a_machine_with_one_core_all_share_it(monkeypatch: pytest.MonkeyPatch) -> None:
    allow(monkeypatch, {3})
    assert cores() == Cores(operator=3, others=frozenset({3}))


def test_a_process_can_be_moved_to_another_core() -> None:
    with subprocess.Popen(["sleep", "60"]) as process:
        try:
            pin([process.pid], {CORE})
            assert os.sched_getaffinity(process.pid) == {CORE}
        finally:
            process.kill()


def test_what_the_system_says_of_this_process() -> None:
    before = cpu_seconds(os.getpid())
    deadline = time.monotonic() + 30
    while cpu_seconds(os.getpid()) == before and time.monotonic() < deadline:
        pass
    assert cpu_seconds(os.getpid()) > before
    assert 1 < rss_mib(os.getpid()) <= peak_rss_mib(os.getpid())


def test_of_a_process_that_is_gone_nothing_is_said() -> None:
    with pytest.raises(FileNotFoundError):
        cpu_seconds(2**22 + 1)


def test_the_memory_of_a_kernel_thread_is_no_number(monkeypatch: pytest.MonkeyPatch) -> None:
    def status(path: Path) -> str:
        return "Name:\tkthreadd\n"

    monkeypatch.setattr(Path, "read_text", status)
    with pytest.raises(ValueError, match="VmRSS"):
        rss_mib(2)


def test_the_machine_is_described_by_cores_memory_and_system() -> None:
    assert re.fullmatch(r"\d+ cores of .+, (\d+ GiB|unknown memory), Linux [\d.]+", description())
