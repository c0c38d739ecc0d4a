"""Manager process on an in-memory API server, for tests that send signals.

It prints ``started`` when a widget is reconciled, and further events. Arguments: ``slow`` delays the reconcile,
``patient`` sets a shutdown timeout of a minute and prints ``ending`` at its start, and ``unsynced`` makes the first
list fail repeatedly.
"""

from __future__ import annotations

import asyncio
import sys

from framework_support.controller_env import ControllerEnv
from framework_support.widget import Widget
from steersman.controller import Request, RequestReconciler, Result
from steersman.errors import ConnectionFailed
from steersman.manager import Manager, ManagerOptions
from steersman.observability.runtime import Runtime
from steersman_testing import matching


class ReportingReconciler(RequestReconciler[Widget]):
    """Prints its progress."""

    async def reconcile(self, request: Request) -> Result:
        print_line("started")
        try:
            await asyncio.sleep(60 if "slow" in sys.argv else 0.05)
        except asyncio.CancelledError:
            print_line("cancelled")
            raise
        print_line("finished")
        return Result()


async def report_shutdown() -> None:
    """Print a line when shutdown starts."""
    try:
        await asyncio.Event().wait()
    finally:
        print_line("ending")


def print_line(word: str) -> None:
    """Print a line and flush."""
    sys.stdout.write(f"{word}\n")
    sys.stdout.flush()


async def main() -> None:
    world = ControllerEnv(Runtime())
    world.create_widgets("a")
    if "unsynced" in sys.argv:
        world.server.fail_next(matching("GET", "/widgets"), ConnectionFailed("scripted"), times=1000)
    manager = Manager(world.server, ManagerOptions(graceful_shutdown_timeout=60 if "patient" in sys.argv else 0.2))
    if "patient" in sys.argv:
        manager.add(report_shutdown)
    manager.controller(Widget).complete(ReportingReconciler)
    if "unsynced" in sys.argv:
        asyncio.get_running_loop().call_later(0.05, print_line, "started")
    await manager.run_until_signalled()
    print_line("ended")


if __name__ == "__main__":
    asyncio.run(main())
