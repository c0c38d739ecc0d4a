"""Server processes that never outlive the tests that started them, however those end."""

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

# Becomes the server itself, after asking the kernel to kill it when its parent dies (prctl(2), PR_SET_PDEATHSIG).
# Not a preexec_fn: Python code between fork and exec can deadlock where there are threads.
_LAUNCHER = """
import ctypes, os, signal, sys
parent, log, *command = sys.argv[1:]
if sys.platform == "linux":
    ctypes.CDLL(None).prctl(1, signal.SIGKILL, 0, 0, 0)
if os.getppid() != int(parent):
    sys.exit("the tests ended before the server began")
output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
os.dup2(output, 1)
os.dup2(output, 2)
os.execv(command[0], command)
"""


BytesPopen = subprocess.Popen[bytes]


class _ProcessLauncher:
    """Starts processes from one thread that ends with the interpreter.

    To the kernel the parent of a process is the thread that started it. A server that a short-lived thread started,
    as an executor's may be, would be killed with that.
    """

    def __init__(self) -> None:
        self._thread: threading.Thread | None = None
        self._start_requests: queue.SimpleQueue[tuple[Future[BytesPopen], Callable[[], BytesPopen]]] = (
            queue.SimpleQueue()
        )
        self._lock = threading.Lock()

    def start(self, factory: Callable[[], BytesPopen]) -> BytesPopen:
        with self._lock:
            # After a fork it is not there.
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
    """One server program. ``log`` holds its output; it runs in the log's directory."""

    def __init__(self, command: Sequence[str], log: Path) -> None:
        def start() -> BytesPopen:
            return subprocess.Popen(
                [sys.executable, "-I", "-S", "-c", _LAUNCHER, str(os.getpid()), str(log), *command],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                # So that Ctrl+C reaches the tests alone, which then end the server in their own order.
                start_new_session=True,
                cwd=log.parent,
                # Proxies and Kubernetes' own variables of the caller must not reach in.
                env={"PATH": os.environ.get("PATH", ""), "HOME": str(log.parent), "LANG": "C.UTF-8"},
            )

        self._process = _launcher.start(start)
        self.log = log

    @property
    def pid(self) -> int:
        """The process id."""
        return self._process.pid

    @property
    def has_exited(self) -> bool:
        """Whether it runs no more."""
        return self._process.poll() is not None

    @property
    def exit_code(self) -> int | None:
        """How it ended: its exit code, or minus the signal that ended it; None while it runs."""
        return self._process.poll()

    def signal(self, number: signal.Signals) -> None:
        """Sends a signal; does nothing to a process that has ended."""
        self._process.send_signal(number)

    def pause(self) -> None:
        """Stops it (SIGSTOP) until it gets SIGCONT; returns once it does nothing any more."""
        if self.has_exited:
            return
        self.signal(signal.SIGSTOP)
        if sys.platform == "linux":
            # Threads that run at that moment go on a little. Its end would do as well, and is left to others to see.
            os.waitid(os.P_PID, self.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)

    def stop(self, grace: float) -> None:
        """Asks it to end, and kills it after ``grace`` seconds; at once with 0."""
        if grace > 0 and not self.has_exited:
            self._process.terminate()
            try:
                self._process.wait(grace)
            except subprocess.TimeoutExpired:
                self.kill()
        self.kill()

    def kill(self) -> None:
        """Ends it without warning (SIGKILL)."""
        if not self.has_exited:
            self._process.kill()
        self._process.wait()

    def log_tail(self, lines: int = 15) -> str:
        """The end of its output."""
        try:
            text = self.log.read_text(errors="replace")
        except FileNotFoundError:
            return ""
        return "\n".join(text.splitlines()[-lines:])
