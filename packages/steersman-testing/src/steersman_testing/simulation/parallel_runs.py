"""Runs of a sweep, in several processes if the user wants it.

Runs are independent and deterministic, so processes share nothing. The failure that the caller sees is the same as
with one process: that of the first failing run.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar, cast

from steersman_testing.sweep_settings import settings

if TYPE_CHECKING:
    from multiprocessing.connection import Connection
    from multiprocessing.process import BaseProcess

P = TypeVar("P")


def run_all(check: Callable[[P], int], plans: Sequence[P]) -> list[int]:
    """Return the result of ``check`` for each plan.

    Args:
        check: runs one plan. It raises an exception if the run fails.
        plans: plans in order.

    Raises:
        Exception: the exception of the first plan that fails.
        RuntimeError: a process ended before its last run.
    """
    processes = min(settings.processes, len(plans)) if sys.platform == "linux" else 1
    if processes > 1:
        return _ParallelRuns(check, plans, processes).run()
    results: list[int] = []
    for plan in plans:
        results.append(check(plan))
        _report(len(results), len(plans))
    return results


def _report(finished: int, total: int) -> None:
    if settings.on_progress is not None:
        settings.on_progress(finished, total)


class _ParallelRuns:
    """Runs in ``n`` processes. Process ``k`` has the plans ``k``, ``k + n``, ``k + 2n``."""

    def __init__(self, check: Callable[[Any], int], plans: Sequence[Any], processes: int) -> None:
        self._check = check
        self._plans = plans
        self._processes = processes
        self._results: dict[int, int] = {}
        self._first_failure = len(plans)

    def run(self) -> list[int]:
        from multiprocessing import get_context

        context = get_context("fork")
        workers: list[BaseProcess] = []
        connections: dict[Connection[Any, Any], int] = {}
        try:
            for number in range(self._processes):
                receiver, sender = context.Pipe(duplex=False)
                worker = context.Process(target=self._work, args=(number, sender), daemon=True)
                with warnings.catch_warnings():
                    # Python warns about threads, whose locks the runs do not use.
                    warnings.simplefilter("ignore", DeprecationWarning)
                    worker.start()
                sender.close()
                workers.append(worker)
                connections[receiver] = number
            self._collect(connections)
        finally:
            for worker in workers:
                worker.terminate()
                worker.join()
        if self._first_failure < len(self._plans):
            # The exception has a trace that is large and cannot be sent, so the run is repeated.
            self._check(self._plans[self._first_failure])
            raise RuntimeError(f"{self._plans[self._first_failure]} fails only in another process: use one process")
        return [self._results[index] for index in range(len(self._plans))]

    def _work(self, number: int, sender: Connection[Any, Any]) -> None:
        for index in range(number, len(self._plans), self._processes):
            try:
                result = self._check(self._plans[index])
            except Exception:
                sender.send((index, None))
                return
            sender.send((index, result))

    def _collect(self, connections: dict[Connection[Any, Any], int]) -> None:
        """Receive results until no plan before the first failure is missing."""
        from multiprocessing.connection import wait

        expected: dict[Connection[Any, Any], int] = dict(connections)
        while expected:
            for connection in cast("list[Connection[Any, Any]]", wait(list(expected))):
                try:
                    index, result = connection.recv()
                except EOFError:
                    raise RuntimeError("a process of the simulation ended unexpectedly: use one process") from None
                if result is None:
                    self._first_failure = min(self._first_failure, index)
                else:
                    self._results[index] = result
                expected[connection] = index + self._processes
                _report(len(self._results), len(self._plans))
            # Without a failure, this is the number of plans.
            end = self._first_failure
            expected = {c: index for c, index in expected.items() if index < end}
