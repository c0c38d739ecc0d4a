"""Server processes that end with the test process."""

from __future__ import annotations

import os
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from pathlib import Path

# Sets the parent-death signal (prctl(2), PR_SET_PDEATHSIG), then executes the server.
# A preexec_fn could deadlock: it runs Python code between fork and exec.
_LAUNCHER = """
import ctypes, os, signal, sys
parent, log, *command = sys.argv[1:]
if sys.platform == "linux":
    ctypes.CDLL(None).prctl(1, signal.SIGKILL, 0, 0, 0)
if os.getppid() != int(parent):
    sys.exit("the test process exited before the server started")
output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
os.dup2(output, 1)
os.dup2(output, 2)
os.execv(command[0], command)
"""


BytesPopen = subprocess.Popen[bytes]


class _ProcessLauncher:
    """Starts processes from one thread that lives as long as the interpreter.

    The kernel treats the starting thread as parent. A process started by a short-lived thread, such as that of an
    executor, would be killed with the thread.
    """

    def __init__(self) -> None:
        self._thread: threading.Thread | None = None
        self._start_requests: queue.SimpleQueue[tuple[Future[BytesPopen], Callable[[], BytesPopen]]] = (
            queue.SimpleQueue()
        )
        self._lock = threading.Lock()

    def start(self, factory: Callable[[], BytesPopen]) -> BytesPopen:
        with self._lock:
            # The thread does not survive a fork.
            if self._thread is None or not self._thread.is_alive():
                self._start_requests = queue.SimpleQueue()
                self._thread = threading.Thread(target=self._run, name="envtest-starter", daemon=True)
                self._thread.start()
        started: Future[BytesPopen] = Future()
        self._start_requests.put((started, factory))
        return started.result()

    def _run(self) -> None:
        while True:
            started, factory = self._start_requests.get()
            try:
                started.set_result(factory())
            except BaseException as error:
                started.set_exception(error)


_launcher = _ProcessLauncher()


class ServerProcess:
    """A server process. It runs in the directory of ``log``, which receives its output."""

    def __init__(self, command: Sequence[str], log: Path) -> None:
        def start() -> BytesPopen:
            return subprocess.Popen(
                [sys.executable, "-I", "-S", "-c", _LAUNCHER, str(os.getpid()), str(log), *command],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                # Ctrl+C must reach only the tests, which stop the servers in order.
                start_new_session=True,
                cwd=log.parent,
                # Excludes proxy and Kubernetes variables of the caller.
                env={"PATH": os.environ.get("PATH", ""), "HOME": str(log.parent), "LANG": "C.UTF-8"},
            )

        self._process = _launcher.start(start)
        self.log = log

    @property
    def pid(self) -> int:
        """Process id."""
        return self._process.pid

    @property
    def has_exited(self) -> bool:
        """Return True if the process has exited."""
        return self._process.poll() is not None

    @property
    def exit_code(self) -> int | None:
        """Exit code, or the negated signal number. None while the process runs."""
        return self._process.poll()

    def signal(self, number: signal.Signals) -> None:
        """Send a signal. Does nothing after the process has exited."""
        self._process.send_signal(number)

    def pause(self) -> None:
        """Send SIGSTOP and wait until the process is stopped."""
        if self.has_exited:
            return
        self.signal(signal.SIGSTOP)
        if sys.platform == "linux":
            # Running threads stop with a delay. WNOWAIT leaves the exit status to others.
            os.waitid(os.P_PID, self.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)

    def stop(self, grace: float) -> None:
        """Send SIGTERM, and SIGKILL after ``grace`` seconds. 0 kills at once."""
        if grace > 0 and not self.has_exited:
            self._process.terminate()
            try:
                self._process.wait(grace)
            except subprocess.TimeoutExpired:
                self.kill()
        self.kill()

    def kill(self) -> None:
        """Send SIGKILL and wait for the exit."""
        if not self.has_exited:
            self._process.kill()
        self._process.wait()

    def log_tail(self, lines: int = 15) -> str:
        """Last lines of the output."""
        try:
            text = self.log.read_text(errors="replace")
        except FileNotFoundError:
            return ""
        return "\n".join(text.splitlines()[-lines:])
