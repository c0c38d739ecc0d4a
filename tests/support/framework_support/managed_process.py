"""A process with a manager over an API server in memory. Run by tests that send it signals.

It says ``started`` once a buoy is being reconciled, and what happens then. ``slow`` makes that reconcile take long,
``patient`` gives it a minute at shutdown, and says ``ending`` when that begins, ``unsynced`` makes the first list
never end.
"""

from __future__ import annotations

import asyncio
import sys

from framework_support.buoy import Buoy
from framework_support.world import World
from steersman.controller import Reconciler, Request, Result
from steersman.errors import ConnectionFailed
from steersman.manager import Manager, ManagerOptions
from steersman.observability.runtime import Runtime
from steersman_testing import matching


class Talker(Reconciler[Buoy]):
    """Says what happens to it."""

    async def reconcile(self, request: Request) -> Result:
        say("started")
        try:
            await asyncio.sleep(60 if "slow" in sys.argv else 0.05)
        except asyncio.CancelledError:
            say("cancelled")
            raise
        say("finished")
        return Result()


async def notice_the_end() -> None:
    """Says when shutdown begins."""
    try:
        await asyncio.Event().wait()
    finally:
        say("ending")


def say(word: str) -> None:
    """One line, at once."""
    sys.stdout.write(f"{word}\n")
    sys.stdout.flush()


async def main() -> None:
    world = World(Runtime())
    world.make("a")
    if "unsynced" in sys.argv:
        world.server.fail_next(matching("GET", "/buoys"), ConnectionFailed("scripted"), times=1000)
    manager = Manager(world.server, ManagerOptions(graceful_shutdown_timeout=60 if "patient" in sys.argv else 0.2))
    if "patient" in sys.argv:
        manager.add(notice_the_end)
    manager.controller(Buoy).complete(Talker)
    if "unsynced" in sys.argv:
        asyncio.get_running_loop().call_later(0.05, say, "started")
    await manager.run_until_signalled()
    say("ended")


if __name__ == "__main__":
    asyncio.run(main())
