"""What the engines' contract needs of a real server, the same for each of them."""

from __future__ import annotations

import asyncio
import re
import socket
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from database_support.servers.process import free_port
from steersman_databases.engines import ServerEndpoint, SqlCredentials, SqlEngine

ADMINISTRATOR = SqlCredentials("the-administrator", "4dmin-s3cret")
WRITES = re.compile(
    r"(?:statement: |execute [^:]*: |(?:Execute|Query)\t)(?:CREATE|ALTER|DROP|GRANT|REVOKE|INSERT|UPDATE|DELETE)"
)


class RealServer:
    """What the contract needs that is the same for every real server."""

    sql_engine: SqlEngine

    async def users(self) -> set[str]:
        """The names of all accounts and roles."""
        raise NotImplementedError

    def __init__(self, endpoint: ServerEndpoint, statements: Path) -> None:
        self.endpoint = endpoint
        self.superuser = self.administrator = ADMINISTRATOR
        self.log = statements
        self._unread = statements.open(errors="replace")
        self._writes = 0

    async def writes(self) -> int:
        """How many statements that change something the server has logged so far."""
        self._writes += len(WRITES.findall(self._unread.read()))
        return self._writes

    def closed_endpoint(self) -> ServerEndpoint:
        return ServerEndpoint("127.0.0.1", free_port())

    @asynccontextmanager
    async def hanging(self) -> AsyncGenerator[ServerEndpoint]:
        """Accepts connections and says nothing."""
        with socket.create_server(("127.0.0.1", 0)) as listener:
            yield ServerEndpoint("127.0.0.1", listener.getsockname()[1])

    @asynccontextmanager
    async def cut_after(self, messages: int) -> AsyncGenerator[ServerEndpoint]:
        """A way to the server that breaks at the nth message, on all connections together."""
        async with self.forwarding(messages, lambda writer: writer.transport.abort()) as endpoint:
            yield endpoint

    @asynccontextmanager
    async def stalling_after(self, messages: int) -> AsyncGenerator[ServerEndpoint]:
        """A way to the server that lets nothing through any more from the nth message on."""
        async with self.forwarding(messages, lambda _: None) as endpoint:
            yield endpoint

    @asynccontextmanager
    async def forwarding(
        self, messages: int, then: Callable[[asyncio.StreamWriter], None]
    ) -> AsyncGenerator[ServerEndpoint]:
        left = messages
        tasks: set[asyncio.Task[None]] = set()

        async def forward(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, counted: bool) -> None:
            nonlocal left
            while data := await reader.read(65536):
                left -= counted
                if left < 0:
                    then(writer)
                    await asyncio.Event().wait()
                writer.write(data)
            writer.close()

        async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            there, back = await asyncio.open_connection(self.endpoint.host, self.endpoint.port)
            for task in (
                asyncio.create_task(forward(reader, back, True)),
                asyncio.create_task(forward(there, writer, False)),
            ):
                tasks.add(task)
                task.add_done_callback(lambda done: done.cancelled() or done.exception())
            writers.extend((writer, back))

        writers: list[asyncio.StreamWriter] = []
        listener = await asyncio.start_server(accept, "127.0.0.1", 0)
        try:
            yield ServerEndpoint("127.0.0.1", listener.sockets[0].getsockname()[1])
        finally:
            listener.close()
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            for writer in writers:
                writer.transport.abort()
