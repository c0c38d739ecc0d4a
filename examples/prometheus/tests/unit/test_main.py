"""Test of the operator's command."""

from __future__ import annotations

import os
import subprocess
import sys


def test_help_lists_manager_flags() -> None:
    command = [sys.executable, "-m", "monitoring_operator", "--help"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    result = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert "--leader-elect" in result.stdout
