"""Streams that are read again from their start.

The output of a dump program has its table of contents first, and a running server is dumped only once.
"""

from __future__ import annotations

import io
from typing import IO


class Recorder(io.RawIOBase):
    """Reads a stream, and keeps what was read."""

    def __init__(self, stream: IO[bytes]) -> None:
        super().__init__()
        self._stream, self._chunks = stream, list[bytes]()

    @property
    def data(self) -> bytes:
        """All bytes that were read."""
        return b"".join(self._chunks)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: bytearray | memoryview) -> int:  # type: ignore[override]
        chunk = self._stream.read(len(buffer))
        self._chunks.append(chunk)
        buffer[: len(chunk)] = chunk
        return len(chunk)


class _Joined(io.RawIOBase):
    """Bytes, and the stream that follows them."""

    def __init__(self, start: bytes, stream: IO[bytes]) -> None:
        super().__init__()
        self._start, self._stream = io.BytesIO(start), stream

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: bytearray | memoryview) -> int:  # type: ignore[override]
        chunk = self._start.read(len(buffer)) or self._stream.read(len(buffer))
        buffer[: len(chunk)] = chunk
        return len(chunk)


def followed_by(start: bytes, stream: IO[bytes]) -> IO[bytes]:
    """Return a stream of bytes and of what another stream still has."""
    return io.BufferedReader(_Joined(start, stream))
