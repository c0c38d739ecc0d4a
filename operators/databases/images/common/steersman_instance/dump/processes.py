"""Programs of a database client, connected by pipes."""

from __future__ import annotations

import os
import subprocess
import tempfile
import threading
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import IO

_CHUNK_BYTES = 1 << 20
_MAX_ERROR_BYTES = 64 << 10
_MAX_ERROR_LENGTH = 300


class ClientFailed(Exception):
    """A program of the client failed. The message is its first error, short and printable."""


@dataclass(frozen=True, slots=True)
class ClientProgram:
    """A program with its environment, which has no secrets.

    Args:
        errors: marks a line of standard error that is an error, such as ``ERROR:``.
    """

    command: Sequence[str]
    environment: Mapping[str, str]
    errors: Sequence[str] = ("error:", "ERROR:", "FATAL:")

    def run(self, text: str = "") -> str:
        """Run it with `text` as input and return its output. Raises ClientFailed."""
        done = subprocess.run(
            self.command, input=text.encode(), capture_output=True, env=dict(self.environment), check=False
        )
        if done.returncode:
            raise ClientFailed(self.first_error(done.stderr, done.returncode))
        return done.stdout.decode(errors="replace")

    def complaints(self, text: str) -> list[str]:
        """Run it with `text` as input and return its errors by line."""
        done = subprocess.run(
            self.command, input=text.encode(), capture_output=True, env=dict(self.environment), check=False
        )
        return done.stderr.decode(errors="replace").splitlines()

    def output(self) -> Generator[bytes]:
        """Run it and yield its output. Raises ClientFailed at the end, before the reader sees the end."""
        with tempfile.TemporaryFile() as errors:
            process = subprocess.Popen(
                self.command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=errors,
                env=dict(self.environment),
            )
            assert process.stdout is not None
            try:
                while chunk := process.stdout.read(_CHUNK_BYTES):
                    yield chunk
                if code := process.wait():
                    raise ClientFailed(self.first_error(end_of(errors), code))
            finally:
                process.kill()
                process.wait()
                process.stdout.close()

    @contextmanager
    def stream(self) -> Generator[IO[bytes]]:
        """Run it, and yield its output. Raises ClientFailed after a complete read.

        If the reader fails because this program has failed, it raises the error of this program.
        """
        with tempfile.TemporaryFile() as errors:
            process = subprocess.Popen(
                self.command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=errors,
                env=dict(self.environment),
            )
            assert process.stdout is not None
            failed: ClientFailed | None = None
            try:
                try:
                    yield process.stdout
                except ClientFailed as error:
                    failed = error
                # The reader did not need the rest.
                code = 0 if process.stdout.read(1) else process.wait()
            finally:
                process.kill()
                process.wait()
                process.stdout.close()
            if code:
                raise ClientFailed(self.first_error(end_of(errors), code))
            if failed is not None:
                raise failed

    @contextmanager
    def fed(self, source: IO[bytes]) -> Generator[IO[bytes]]:
        """Run it with a stream as input, and yield its output. Raises ClientFailed after a complete read."""
        with tempfile.TemporaryFile() as errors:
            process = subprocess.Popen(
                self.command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                env=dict(self.environment),
            )
            assert process.stdin is not None
            assert process.stdout is not None
            feeder = threading.Thread(target=_copy, args=(source, process.stdin), daemon=True)
            feeder.start()
            try:
                yield process.stdout
                if process.stdout.read(1):
                    return
                code = process.wait()
            finally:
                process.kill()
                process.wait()
                process.stdout.close()
            # Otherwise the thread ends with its source.
            feeder.join()
            if code:
                raise ClientFailed(self.first_error(end_of(errors), code))

    @contextmanager
    def sink(self) -> Generator[Callable[[bytes], object]]:
        """Run it, and yield a function that writes to its input.

        An error in the block kills it before its input ends. Raises ClientFailed.
        """
        with tempfile.TemporaryFile() as errors:
            process = subprocess.Popen(
                self.command,
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=errors,
                env=dict(self.environment),
            )
            assert process.stdin is not None
            try:
                try:
                    yield process.stdin.write
                    process.stdin.close()
                except BrokenPipeError:  # it ended first, and says why
                    pass
                code = process.wait()
            finally:
                process.kill()
                process.wait()
                with suppress(BrokenPipeError):
                    process.stdin.close()
            if code:
                raise ClientFailed(self.first_error(end_of(errors), code))

    def first_error(self, output: bytes, code: int) -> str:
        """Return the first error in standard error, otherwise its last line."""
        lines = [line.strip() for line in output.decode(errors="replace").splitlines() if line.strip()]
        matching = [line for line in lines if any(mark in line for mark in self.errors)] or lines[-1:]
        found = matching[0] if matching else f"exit code {code}"
        return "".join(character for character in found if character.isprintable())[:_MAX_ERROR_LENGTH].rstrip(".")


def end_of(file: IO[bytes]) -> bytes:
    """Return the end of a file that a process wrote."""
    size = file.seek(0, os.SEEK_END)
    file.seek(max(size - _MAX_ERROR_BYTES, 0))
    return file.read()


def _copy(source: IO[bytes], sink: IO[bytes]) -> None:
    # The program may end before its input does, and the reader may end before the source.
    with suppress(BrokenPipeError, ValueError):
        while chunk := source.read(_CHUNK_BYTES):
            sink.write(chunk)
    with suppress(BrokenPipeError):
        sink.close()
