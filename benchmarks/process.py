"""The operator under test, as a process on a core of its own."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import tempfile
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncGenerator, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from benchmarks.measurement import cpu_seconds, peak_rss_mib, rss_mib

T = TypeVar("T")

_ROOT = Path(__file__).parents[1]
_GRACE_SECONDS = 20.0


class OperatorFailed(Exception):
    """The operator ended when nobody asked it to; the text has its last words."""


@dataclass(frozen=True, slots=True)
class OperatorReport:
    """What an operator that caches pods says of itself, once a second.

    Attributes:
        reconciles: how many so far.
        pause_ms: how much later than asked a timer of 5 ms fired in that second, at the worst.
    """

    reconciles: int
    pause_ms: float


class OperatorProcess:
    """A running operator. Made by ``running``."""

    def __init__(self, process: Process, log: Path) -> None:
        self._process = process
        self._log = log
        self.reports: list[OperatorReport] = []

    @property
    def cpu(self) -> float:
        """Seconds of processor time so far."""
        return cpu_seconds(self._process.pid)

    @property
    def rss(self) -> float:
        """Memory resident now, in MiB."""
        return rss_mib(self._process.pid)

    @property
    def peak_rss(self) -> float:
        """The most memory ever resident, in MiB."""
        return peak_rss_mib(self._process.pid)

    async def wait_for(self, work: Coroutine[Any, Any, T], timeout: float) -> T:
        """What ``work`` gives, if the operator lives that long.

        Raises:
            OperatorFailed: it ended.
            TimeoutError: ``work`` took more than ``timeout`` seconds; the text has the operator's last words.
        """
        work_task, exit_task = asyncio.ensure_future(work), asyncio.ensure_future(self._process.wait())
        try:
            await asyncio.wait((work_task, exit_task), timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
            if work_task.done():
                return work_task.result()
            if exit_task.done():
                raise OperatorFailed(f"the operator ended with exit code {exit_task.result()}:\n{self.log_tail()}")
            raise TimeoutError(f"not done after {timeout:.0f} s; the operator says:\n{self.log_tail()}")
        finally:
            for task in (work_task, exit_task):
                task.cancel()
            await asyncio.gather(work_task, exit_task, return_exceptions=True)

    def log_tail(self) -> str:
        """The end of its log."""
        return "\n".join(self._log.read_text(errors="replace").splitlines()[-15:])

    async def read_reports(self) -> None:
        """Collects ``reports`` until the operator ends."""
        assert self._process.stdout is not None
        async for line in self._process.stdout:
            self.reports.append(msgspec.json.decode(line, type=OperatorReport))


@asynccontextmanager
async def run_operator(
    command: Sequence[str], environment: Mapping[str, str], core: int
) -> AsyncGenerator[OperatorProcess]:
    """Runs the operator on ``core`` during the block, and ends it in order after it."""
    with tempfile.NamedTemporaryFile(prefix="benchmark-", suffix=".log") as log:
        process = await asyncio.create_subprocess_exec(
            # Not after its start: runtimes count the cores they may use when they begin.
            *("taskset", "--cpu-list", str(core), *command),
            cwd=_ROOT,
            env=dict(environment),
            stdout=PIPE,
            stderr=log.fileno(),
            # So that Ctrl+C reaches the benchmark alone, which then ends the operator.
            start_new_session=True,
        )
        operator = OperatorProcess(process, Path(log.name))
        reader = asyncio.create_task(operator.read_reports())
        try:
            yield operator
        finally:
            await _terminate(process)
            reader.cancel()
            await asyncio.gather(reader, return_exceptions=True)


async def _terminate(process: Process) -> None:
    with contextlib.suppress(ProcessLookupError):
        process.send_signal(signal.SIGTERM)
    try:
        async with asyncio.timeout(_GRACE_SECONDS):
            await process.wait()
    except TimeoutError:
        process.kill()
        await process.wait()
