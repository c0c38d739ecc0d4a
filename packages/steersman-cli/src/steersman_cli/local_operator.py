"""Process of the project's operator on this machine, restarted after changes."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import typer

from steersman.errors import ConfigurationError
from steersman_cli.debug_endpoint import DEBUG_PORT
from steersman_cli.exit_codes import EXIT_CHECK_FAILED
from steersman_cli.project import Project

# Longer than the operator's graceful shutdown timeout.
_STOP_TIMEOUT_SECONDS = 40.0
# Exit codes after SIGTERM before the operator handles signals: by the signal, or by the handler in `__main__`.
_TERMINATED_CODES = (-signal.SIGTERM, 128 + signal.SIGTERM)
# SIGHUP arrives when the terminal is closed. The operator has a session of its own and does not receive it. A second
# SIGHUP (one for the session, one for the foreground) must not kill the operator.
_KEYBOARD_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_STOP_SIGNALS = (*_KEYBOARD_SIGNALS, *([signal.SIGHUP] if sys.platform != "win32" else []))
_LOOPBACK = "127.0.0.1"
# Yields every 500 ms to check whether the operator still runs.
_WATCH_OPTIONS: dict[str, Any] = {"rust_timeout": 500, "yield_on_timeout": True}

SourceChanges = Callable[[threading.Event], Iterator[Any]]
"""Yields changed files, possibly none, until the event is set."""


class OperatorProcess:
    """Process of the operator, restarted after changes.

    Args:
        project: project of the operator.
        prepare: called before each start. It returns the options of the operator.
    """

    def __init__(self, project: Project, prepare: Callable[[], list[str]]) -> None:
        self._command = [sys.executable, "-m", project.package, "--log-format", "console"]
        self._prepare = prepare
        self._root = project.root
        self._stopped = threading.Event()
        self._process: subprocess.Popen[bytes] | None = None
        self._terminated_process: subprocess.Popen[bytes] | None = None

    def run_with(self, changes: SourceChanges | None) -> int:
        """Run until a signal or a successful exit; return the code."""
        with self._handle_signals():
            self._start()
            if changes is None:
                return self._wait()
            for changed in changes(self._stopped):
                if self._stopped.is_set() or (not changed and self._finished_successfully()):
                    break
                if not changed:
                    continue
                names = ", ".join(sorted({str(name) for _, name in changed}))
                typer.echo(f"steersman: changed: {names.replace(f'{self._root}/', '')}; restarting", err=True)
                self._stop()
                if self._stopped.is_set():
                    break
                self._start()
            return self._stop()

    def _finished_successfully(self) -> bool:
        """Return True if the process has exited with 0."""
        code = None if self._process is None else self._process.poll()
        if code:
            typer.echo(f"steersman: the operator exited with {code}; waiting for a change", err=True)
            self._process = None
        return code == 0

    def _start(self) -> None:
        command = [*self._command, *self._prepare()]
        # With a session of its own, it receives Ctrl-C once: from here, not from the terminal as well.
        path = os.pathsep.join(p for p in (str(self._root / "src"), os.environ.get("PYTHONPATH", "")) if p)
        self._process = subprocess.Popen(
            command, cwd=self._root, env={**os.environ, "PYTHONPATH": path}, start_new_session=True
        )
        # A signal arrived before the process existed.
        if self._stopped.is_set():
            self._terminate(self._process)

    def _stop(self) -> int:
        """Terminate the process; return its code, or 0 after SIGTERM."""
        process = self._process
        if process is None:
            return EXIT_CHECK_FAILED
        self._terminate(process)
        try:
            code = process.wait(_STOP_TIMEOUT_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            return process.wait()
        return 0 if code in _TERMINATED_CODES else code

    def _terminate(self, process: subprocess.Popen[bytes]) -> None:
        """Send SIGTERM once: a second one would abort the graceful shutdown."""
        if self._terminated_process is not process and process.poll() is None:
            self._terminated_process = process
            process.send_signal(signal.SIGTERM)

    def _wait(self) -> int:
        assert self._process is not None
        code = self._process.wait()
        return 0 if self._stopped.is_set() and code in _TERMINATED_CODES else code

    @contextmanager
    def _handle_signals(self) -> Generator[None]:
        """Terminate the operator at the first signal, kill it at the second."""

        def stop(number: int, _: FrameType | None) -> None:
            second = self._stopped.is_set()
            if second and number not in _KEYBOARD_SIGNALS:
                return
            self._stopped.set()
            if self._process is None:
                return
            if second:
                self._process.kill()
            else:
                self._terminate(self._process)

        previous = {number: signal.signal(number, stop) for number in _STOP_SIGNALS}
        try:
            yield
        finally:
            for number, handler in previous.items():
                signal.signal(number, handler)


def source_changes(project: Project) -> SourceChanges:
    """Return a watch of the Python files in src/.

    Raises:
        ConfigurationError: watchfiles is not installed.
    """
    try:
        from watchfiles import PythonFilter, watch
    except ImportError as error:
        raise ConfigurationError(
            f"cannot watch files ({error}): pip install 'steersman[cli]', or give --no-reload"
        ) from None

    def changes(stopped: threading.Event) -> Iterator[Any]:
        source = project.root / "src"
        return watch(source, watch_filter=PythonFilter(), stop_event=stopped, raise_interrupt=False, **_WATCH_OPTIONS)

    return changes


def debug_address() -> str:
    """Return the address of the debug endpoint, and print another port."""
    address = loopback_address(DEBUG_PORT)
    if not address.endswith(f":{DEBUG_PORT}"):
        typer.echo(
            f"steersman: port {DEBUG_PORT} is in use: give `steersman top` and `steersman explain` "
            f"--url http://{address}",
            err=True,
        )
    return address


def loopback_address(preferred_port: int) -> str:
    """Return a loopback address with ``preferred_port``, or another free port."""
    for port in (preferred_port, 0):
        with socket.socket() as listener:
            # As servers do: connections of the previous operator may be in TIME_WAIT.
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                listener.bind((_LOOPBACK, port))
            except OSError:
                continue
            return f"{_LOOPBACK}:{listener.getsockname()[1]}"
    raise ConfigurationError(f"{_LOOPBACK} has no free port")
