"""Test of the operator's command."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from steersman_cli.debug_endpoint import DEBUG_PORT

import leader_operator
from leader_operator.discovery import PORT


def test_help_lists_manager_flags() -> None:
    command = [sys.executable, "-m", "leader_operator", "--help"]
    source = Path(leader_operator.__file__).parents[1]
    result = subprocess.run(command, cwd=source, capture_output=True, text=True, check=True)
    assert "--leader-elect" in result.stdout


def test_port_of_leaders_is_not_the_debug_port() -> None:
    # Of steersman dev and steersman run. The operator ended, because it could not listen on both.
    assert PORT != DEBUG_PORT
