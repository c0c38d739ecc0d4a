"""Proxy between one pod and the API server that can stop forwarding."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress


class PartitionProxy:
    """Forwards bytes while ``forwarding`` is set. Connections stay open, as in a partition.

    Attributes:
        port: port on localhost.
    """

    def __init__(self, target: int) -> None:
        self.port = 0
        self.forwarding = asyncio.Event()
        self.forwarding.set()
        self._target = target
        self._tasks: set[asyncio.Task[None]] = set()

    @asynccontextmanager
    async def listening(self) -> AsyncGenerator[PartitionProxy]:
        """Listen during the block."""
        listener = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.port = listener.sockets[0].getsockname()[1]
        try:
            yield self
        finally:
            listener.close()
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection("127.0.0.1", self._target)
        for source, target in ((reader, back), (there, writer)):
            task = asyncio.create_task(self._forward(source, target))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while data := await reader.read(65536):
                await self.forwarding.wait()
                writer.write(data)
                await writer.drain()
        writer.transport.abort()
