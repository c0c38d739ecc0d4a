"""Child processes: the server, and the clone of the primary.

Their output goes to the logs.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence

_FAST_STOP_SECONDS = 90.0  # of the 120 s that a pod has
_IMMEDIATE_STOP_SECONDS = 10.0


class LoggedProcess:
    """A process with output to a function and to the logs.

    Args:
        command: argument list.
        read: called with each line, in a thread.
    """

    def __init__(self, command: Sequence[str], read: Callable[[str], None] = lambda _line: None) -> None:
        self._process = subprocess.Popen(
            list(command),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=environment(),
            text=True,
            errors="replace",
        )
        self._read = read
        self._last: deque[str] = deque(maxlen=5)
        self._pump = threading.Thread(target=self._pass_on, name="output", daemon=True)
        self._pump.start()

    def poll(self) -> int | None:
        """Return the exit code, or None while it runs."""
        code = self._process.poll()
        if code is not None:
            # A child that outlives it may hold the pipe open.
            self._pump.join(1.0)
        return code

    @property
    def last_line(self) -> str:
        """Its last line of output."""
        return self._last[-1] if self._last else ""

    def send(self, number: signal.Signals) -> None:
        """Send a signal, if it still runs."""
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(number)

    def stop(self, first: signal.Signals = signal.SIGTERM) -> None:
        """End it: by this signal, then by SIGQUIT, then by SIGKILL."""
        for number, seconds in ((first, _FAST_STOP_SECONDS), (signal.SIGQUIT, _IMMEDIATE_STOP_SECONDS)):
            self.send(number)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(seconds)
                return
        self._process.kill()
        self._process.wait()

    def _pass_on(self) -> None:
        output = self._process.stdout
        assert output is not None
        for line in output:
            sys.stderr.write(line)
            sys.stderr.flush()
            if text := line.strip():
                self._last.append(text)
                self._read(text)


def environment() -> Mapping[str, str]:
    """Return the environment without settings of libpq, and with untranslated messages."""
    return {**{name: value for name, value in os.environ.items() if not name.startswith("PG")}, "LC_ALL": "C"}
