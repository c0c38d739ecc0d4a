"""Operator process under test, pinned to its own core."""

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
    """The operator exited unexpectedly. The message contains the end of its logs."""


@dataclass(frozen=True, slots=True)
class OperatorReport:
    """Report that a pod operator prints once a second.

    Attributes:
        reconciles: number of reconciles so far.
        pause_ms: longest delay of a 5 ms timer in that second.
    """

    reconciles: int
    pause_ms: float


class OperatorProcess:
    """A running operator. Created by ``run_operator``."""

    def __init__(self, process: Process, log: Path) -> None:
        self._process = process
        self._log = log
        self.reports: list[OperatorReport] = []

    @property
    def cpu(self) -> float:
        """CPU time so far in seconds."""
        return cpu_seconds(self._process.pid)

    @property
    def rss(self) -> float:
        """Current resident memory in MiB."""
        return rss_mib(self._process.pid)

    @property
    def peak_rss(self) -> float:
        """Peak resident memory in MiB."""
        return peak_rss_mib(self._process.pid)

    async def wait_for(self, work: Coroutine[Any, Any, T], timeout: float) -> T:
        """Return the result of ``work`` unless the operator exits first.

        Raises:
            OperatorFailed: the operator exited.
            TimeoutError: ``work`` took more than ``timeout`` seconds. The message contains the end of the logs.
        """
        work_task, exit_task = asyncio.ensure_future(work), asyncio.ensure_future(self._process.wait())
        try:
            await asyncio.wait((work_task, exit_task), timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
            if work_task.done():
                return work_task.result()
            if exit_task.done():
                raise OperatorFailed(f"the operator exited with code {exit_task.result()}:\n{self.log_tail()}")
            raise TimeoutError(f"timeout after {timeout:.0f} s; end of the operator's logs:\n{self.log_tail()}")
        finally:
            for task in (work_task, exit_task):
                task.cancel()
            await asyncio.gather(work_task, exit_task, return_exceptions=True)

    def log_tail(self) -> str:
        """Return the end of the operator's logs."""
        return "\n".join(self._log.read_text(errors="replace").splitlines()[-15:])

    async def read_reports(self) -> None:
        """Append to ``reports`` until the operator exits."""
        assert self._process.stdout is not None
        async for line in self._process.stdout:
            self.reports.append(msgspec.json.decode(line, type=OperatorReport))


@asynccontextmanager
async def run_operator(
    command: Sequence[str], environment: Mapping[str, str], core: int
) -> AsyncGenerator[OperatorProcess]:
    """Run the operator on ``core`` and stop it after the block."""
    with tempfile.NamedTemporaryFile(prefix="benchmark-", suffix=".log") as log:
        process = await asyncio.create_subprocess_exec(
            # Pin before the start, because runtimes count the usable cores at start-up.
            *("taskset", "--cpu-list", str(core), *command),
            cwd=_ROOT,
            env=dict(environment),
            stdout=PIPE,
            stderr=log.fileno(),
            # Ctrl+C must reach the benchmark only, which then stops the operator.
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
