"""TCP proxy whose target can be switched, like a load balancer."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import replace

from steersman.client import ClusterConfig


class TcpSwitch:
    """Forwards connections to the current target."""

    def __init__(self, config: ClusterConfig) -> None:
        self._target = _port(config)
        self._config = config
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self.config = config
        self.connections = 0

    @asynccontextmanager
    async def listening(self) -> AsyncGenerator[TcpSwitch]:
        """Listen during the block. ``config`` then points to the proxy."""
        listener = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        port = listener.sockets[0].getsockname()[1]
        self.config = replace(self._config, server=f"https://127.0.0.1:{port}")
        try:
            yield self
        finally:
            listener.close()
            self.switch_to(self._config)
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    def switch_to(self, config: ClusterConfig) -> None:
        """Abort all connections. New ones go to ``config``."""
        self._target = _port(config)
        self.connections = 0
        for writer in self._writers:
            writer.transport.abort()
        self._writers.clear()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection("127.0.0.1", self._target)
        self.connections += 1
        self._writers |= {writer, back}
        for source, target in ((reader, back), (there, writer)):
            task = asyncio.create_task(_forward(source, target))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)


async def _forward(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    except OSError:
        pass
    finally:
        writer.transport.abort()


def _port(config: ClusterConfig) -> int:
    return int(config.server.rpartition(":")[2])
