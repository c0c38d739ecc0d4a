"""A program in a pseudo-terminal: its output and key presses."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import subprocess
import termios
import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path

CTRL_C = b"\x03"
_TIMEOUT_SECONDS = 10.0


class Terminal:
    """A process and its terminal."""

    def __init__(self, process: subprocess.Popen[bytes], end: int) -> None:
        self._process = process
        self._end = end
        self._read = 0
        self.output = ""

    def send_keys(self, keys: bytes) -> None:
        os.write(self._end, keys)

    def wait_for_text(self, words: str, seconds: float = 60.0) -> None:
        """Wait until ``words`` appear after the previous match."""
        deadline = time.monotonic() + seconds
        while (place := self.output.find(words, self._read)) < 0:
            assert self._more(deadline), f"{words!r} did not appear:\n{self.output}"
        self._read = place + len(words)

    def wait(self, seconds: float = 60.0) -> int:
        """Wait for the process and return its exit code."""
        deadline = time.monotonic() + seconds
        while self._more(deadline):
            continue
        return self._process.wait(max(0.1, deadline - time.monotonic()))

    def _more(self, deadline: float) -> bool:
        """Read more output. Return False at the end or the deadline."""
        ready, _, _ = select.select([self._end], [], [], max(0.0, deadline - time.monotonic()))
        if not ready:
            return False
        try:
            content = os.read(self._end, 65536)
        except OSError:
            # Linux raises EIO when the last process has closed the terminal.
            return False
        self.output += content.decode(errors="replace")
        return bool(content)


@contextmanager
def run_in_terminal(
    command: Sequence[str], *, directory: Path | None = None, environment: dict[str, str] | None = None
) -> Generator[Terminal]:
    """Run ``command`` in a new terminal, which is closed at the end."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        command,
        cwd=directory,
        env=environment,
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
        # A controlling terminal turns keys into signals.
        preexec_fn=_set_controlling_terminal,
    )
    os.close(theirs)
    try:
        yield Terminal(process, ours)
    finally:
        # Remaining processes receive SIGHUP.
        os.close(ours)
        try:
            process.wait(_TIMEOUT_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _set_controlling_terminal() -> None:
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
