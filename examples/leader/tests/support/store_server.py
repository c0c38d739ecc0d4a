"""The store as a server. It prints each new writer, and the first refused write of each term.

Usage: ``python store_server.py PORT``. A line of a connection is a writer and a term.
"""

from __future__ import annotations

import asyncio
import sys
import time
from asyncio import StreamReader, StreamWriter
from contextlib import suppress

from store import Store


class StoreServer:
    """Serves a store that checks terms.

    Attributes:
        port: port in use.
    """

    def __init__(self) -> None:
        self.store = Store(checks_term=True)
        self.port = 0
        self._listener: asyncio.Server | None = None

    async def start(self, host: str = "127.0.0.1", port: int = 0) -> asyncio.Server:
        """Listen."""
        self._listener = await asyncio.start_server(self._accept, host, port)
        self.port = self._listener.sockets[0].getsockname()[1]
        return self._listener

    async def _accept(self, reader: StreamReader, writer: StreamWriter) -> None:
        with suppress(OSError):
            while line := await reader.readline():
                name, term = line.decode().split()
                acknowledged = self.store.write(asyncio.get_running_loop().time(), name, int(term))
                self._print(name, int(term), acknowledged)
                writer.write(b"stored\n" if acknowledged else b"refused: a later term has written\n")
        writer.close()

    def _print(self, name: str, term: int, acknowledged: bool) -> None:
        writes = self.store.acknowledged if acknowledged else self.store.refused
        if len(writes) < 2 or (writes[-2].writer, writes[-2].term) != (name, term):
            print(round(time.time(), 3), "acknowledged" if acknowledged else "refused", name, term, flush=True)


async def serve(port: int) -> None:
    """Serve on all addresses for ever."""
    server = StoreServer()
    await (await server.start("", port)).serve_forever()


if __name__ == "__main__":
    asyncio.run(serve(int(sys.argv[1])))
