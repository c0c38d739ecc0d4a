"""``steersman run``: run the operator on this machine, and restart it after changes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Annotated, Any

import typer

from steersman.errors import ConfigurationError
from steersman_cli.exit_codes import EXIT_CHECK_FAILED, report_errors
from steersman_cli.project import Project

# Longer than the operator's graceful shutdown timeout.
_STOP_TIMEOUT_SECONDS = 40.0
# Exit codes after SIGTERM before the operator handles signals: by the signal, or by the handler in `__main__`.
_TERMINATED_CODES = (-signal.SIGTERM, 128 + signal.SIGTERM)
# SIGHUP arrives when the terminal is closed. The operator has a session of its own and does not receive it. A second
# SIGHUP (one for the session, one for the foreground) must not kill the operator.
_KEYBOARD_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_STOP_SIGNALS = (*_KEYBOARD_SIGNALS, *([signal.SIGHUP] if sys.platform != "win32" else []))
# Yields every 500 ms to check whether the operator still runs.
_WATCH_OPTIONS: dict[str, Any] = {"rust_timeout": 500, "yield_on_timeout": True}


def run(
    context: typer.Context,
    reload: Annotated[bool, typer.Option(help="Restart when a file in src/ changes.")] = True,
) -> None:
    """Run the operator on this machine until Ctrl-C.

    It uses the cluster of your kubeconfig. Other options are passed to the operator.

    Example: steersman run --namespace shop --log-level debug

    Example: steersman run --no-reload --kubeconfig ./kubeconfig --debug-bind-address 127.0.0.1:8082
    """
    with report_errors():
        project = Project.from_working_directory()
        # Console logs, and no webhooks, which the API server cannot reach here. Arguments of the user follow and win.
        command = [sys.executable, "-m", project.package, "--log-format", "console"]
        if "webhooks" in project.settings:
            command.append("--no-webhooks")
        operator = _OperatorProcess([*command, *context.args], project)
        code = operator.run_with(_source_changes(project) if reload else None)
    raise typer.Exit(code)


class _OperatorProcess:
    """Process of the operator, restarted after changes."""

    def __init__(self, command: list[str], project: Project) -> None:
        self._command = command
        self._root = project.root
        self._stopped = threading.Event()
        self._process: subprocess.Popen[bytes] | None = None
        self._terminated_process: subprocess.Popen[bytes] | None = None

    def run_with(self, changes: Callable[[threading.Event], Iterator[Any]] | None) -> int:
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
        # With a session of its own, it receives Ctrl-C once: from here, not from the terminal as well.
        path = os.pathsep.join(p for p in (str(self._root / "src"), os.environ.get("PYTHONPATH", "")) if p)
        self._process = subprocess.Popen(
            self._command, cwd=self._root, env={**os.environ, "PYTHONPATH": path}, start_new_session=True
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


def _source_changes(project: Project) -> Callable[[threading.Event], Iterator[Any]]:
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
