"""A program at a terminal: what it shows, and the keys that are pressed."""

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
    """One program and its terminal."""

    def __init__(self, process: subprocess.Popen[bytes], end: int) -> None:
        self._process = process
        self._end = end
        self._read = 0
        self.output = ""

    def send_keys(self, keys: bytes) -> None:
        os.write(self._end, keys)

    def wait_for_text(self, words: str, seconds: float = 60.0) -> None:
        """Waits until it shows ``words``, after what was waited for before."""
        deadline = time.monotonic() + seconds
        while (place := self.output.find(words, self._read)) < 0:
            assert self._more(deadline), f"it never said {words!r}:\n{self.output}"
        self._read = place + len(words)

    def wait(self, seconds: float = 60.0) -> int:
        """Waits for its end. Returns the exit code."""
        deadline = time.monotonic() + seconds
        while self._more(deadline):
            continue
        return self._process.wait(max(0.1, deadline - time.monotonic()))

    def _more(self, deadline: float) -> bool:
        """Whether it showed more, before its end and the deadline."""
        ready, _, _ = select.select([self._end], [], [], max(0.0, deadline - time.monotonic()))
        if not ready:
            return False
        try:
            content = os.read(self._end, 65536)
        except OSError:
            # Linux says so where the last program has let the terminal go.
            return False
        self.output += content.decode(errors="replace")
        return bool(content)


@contextmanager
def run_in_terminal(
    command: Sequence[str], *, directory: Path | None = None, environment: dict[str, str] | None = None
) -> Generator[Terminal]:
    """Runs ``command`` at a terminal of its own, which is closed in the end."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        command,
        cwd=directory,
        env=environment,
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
        # So that keys become signals.
        preexec_fn=_set_controlling_terminal,
    )
    os.close(theirs)
    try:
        yield Terminal(process, ours)
    finally:
        # What still runs is told that its terminal is gone.
        os.close(ours)
        try:
            process.wait(_TIMEOUT_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _set_controlling_terminal() -> None:
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
