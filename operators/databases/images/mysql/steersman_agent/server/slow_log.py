"""Forwards the slow query log to the container's logs.

MySQL writes it to regular files only. The file is in memory, so it is emptied often.
"""

from __future__ import annotations

import sys
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

INTERVAL_SECONDS = 0.5
LIMIT_BYTES = 1 << 20
"""Size from which on the file is emptied."""
_CHUNK_BYTES = 64 << 10


@dataclass(slots=True)
class SlowLogForwarder:
    """Copies what the server appends.

    A server appends to the present end of its file, so it continues in an emptied file.
    """

    file: Path
    output: BinaryIO
    _position: int = 0

    def step(self) -> None:
        """Copy new content. Raises OSError."""
        try:
            with self.file.open("r+b") as source:
                source.seek(self._position)
                while chunk := source.read(_CHUNK_BYTES):
                    self.output.write(chunk)
                    self._position += len(chunk)
                self.output.flush()
                if self._position >= LIMIT_BYTES:
                    source.truncate(0)
                    self._position = 0
        except FileNotFoundError:
            self._position = 0

    def run(self, stop: threading.Event) -> None:
        """Copy until `stop` is set. A failure is logged once."""
        failed = ""
        while not stop.wait(INTERVAL_SECONDS):
            try:
                self.step()
                failed = ""
            except OSError as error:
                if str(error) != failed:
                    sys.stderr.write(f"slow query log: {error}\n")
                failed = str(error)


def start(file: Path) -> None:
    """Copy in a thread that ends with the process. A previous container's content is left out."""
    file.unlink(missing_ok=True)
    forwarder = SlowLogForwarder(file, sys.stdout.buffer)
    threading.Thread(target=forwarder.run, args=(threading.Event(),), name="slow-log", daemon=True).start()
