"""Progress of one informer: its sinks report, others wait."""

from __future__ import annotations

import asyncio


class Progress:
    """Collects what the sinks of one informer report, and wakes the tasks that wait for it.

    Args:
        sinks: number of sinks. The informer has synced when each has completed its first list.
    """

    def __init__(self, sinks: int) -> None:
        self._unsynced = sinks
        self._synced = asyncio.Event()
        self._waiters: list[asyncio.Future[None]] = []
        self.has_synced = False

    def first_list_completed(self) -> None:
        """Record that one more sink has completed its first list."""
        self._unsynced -= 1
        if self._unsynced == 0:
            self.has_synced = True
            self._synced.set()

    def notify(self) -> None:
        """Wake the tasks in ``wait``: a list or a watch event was processed."""
        if self._waiters:
            waiters, self._waiters = self._waiters, []
            for future in waiters:
                if not future.done():
                    future.set_result(None)

    async def wait(self) -> None:
        """Wait for the next list or watch event."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.append(future)
        await future

    async def wait_for_sync(self) -> None:
        """Wait until each sink has completed its first list."""
        await self._synced.wait()
