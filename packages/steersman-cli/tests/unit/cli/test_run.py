"""``steersman run`` always ends with its operator."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from framework_support.projects import ours
from framework_support.pty_terminal import CTRL_C, Terminal, run_in_terminal
from steersman_cli import app

OPERATOR = """\
import signal, sys
from pathlib import Path

signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
print("it runs", flush=True)
signal.sigwait([signal.SIGTERM])
# It takes its time to end, and a second signal would cut that short.
if signal.sigtimedwait([signal.SIGTERM], 0.7):
    sys.exit(9)
Path("ended").touch()
"""


def send_ctrl_c(terminal: Terminal) -> None:
    terminal.send_keys(CTRL_C)
    assert terminal.wait() == 0


def close_terminal(_: Terminal) -> None:
    return


@pytest.mark.parametrize("how", [send_ctrl_c, close_terminal])
@pytest.mark.parametrize("reload", ["--reload", "--no-reload"])
def test_run_stops_gracefully(project: Path, how: Callable[[Terminal], None], reload: str) -> None:
    (project / "src/databaseuser/__main__.py").write_text(OPERATOR)
    command = [sys.executable, "-m", "steersman_cli", "run", reload]
    with run_in_terminal(command, directory=project, environment=ours()) as terminal:
        terminal.wait_for_text("it runs\r\n")
        how(terminal)
    assert (project / "ended").exists()


def test_run_signal_during_start_stops_operator(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (project / "src/databaseuser/__main__.py").write_text("import time\ntime.sleep(90)\n")

    class Popen(subprocess.Popen[Any]):
        def __init__(self, *arguments: Any, **options: Any) -> None:
            signal.raise_signal(signal.SIGINT)
            super().__init__(*arguments, **options)

    with monkeypatch.context() as patch:
        patch.chdir(project)
        patch.setattr(subprocess, "Popen", Popen)
        started = time.monotonic()
        result = CliRunner().invoke(app, ["run", "--no-reload"])
    assert result.exit_code == 0
    assert time.monotonic() - started < 60
