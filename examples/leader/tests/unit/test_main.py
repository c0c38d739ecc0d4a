"""Test of the operator's command."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import leader_operator


def test_help_lists_manager_flags() -> None:
    command = [sys.executable, "-m", "leader_operator", "--help"]
    source = Path(leader_operator.__file__).parents[1]
    result = subprocess.run(command, cwd=source, capture_output=True, text=True, check=True)
    assert "--leader-elect" in result.stdout
