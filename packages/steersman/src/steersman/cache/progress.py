"""Progress of one informer: its sinks report, others wait."""

from __future__ import annotations

import asyncio


class Progress:
    """Collects reports of an informer's sinks and wakes waiting tasks.

    Args:
        sinks: number of sinks. The informer has synced when each has completed its first list.

    Attributes:
        has_synced: True once each sink has completed its first list.
        waiters: the tasks that wait for a list or a watch event.
    """

    def __init__(self, sinks: int) -> None:
        self._unsynced = sinks
        self._synced = asyncio.Event()
        self.waiters: list[asyncio.Future[None]] = []
        self.has_synced = False

    def first_list_completed(self) -> None:
        """Record that one more sink has completed its first list."""
        self._unsynced -= 1
        if self._unsynced == 0:
            self.has_synced = True
            self._synced.set()

    def mark_synced(self) -> None:
        """Record that the server does not serve the kind."""
        self.has_synced = True
        self._synced.set()
        self.notify()

    def notify(self) -> None:
        """Wake waiting tasks: a list or watch event was processed."""
        if self.waiters:
            waiters, self.waiters = self.waiters, []
            for future in waiters:
                if not future.done():
                    future.set_result(None)

    async def wait(self) -> None:
        """Wait for the next list or watch event."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.waiters.append(future)
        await future

    async def wait_for_sync(self) -> None:
        """Wait until each sink has completed its first list."""
        await self._synced.wait()
