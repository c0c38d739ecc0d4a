"""Test of the operator's command."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

SOURCES = Path(__file__).parents[2] / "src"


def test_help_lists_manager_flags() -> None:
    command = [sys.executable, "-m", "project", "--help"]
    result = subprocess.run(command, cwd=SOURCES, capture_output=True, text=True, check=True)
    assert "--leader-elect" in result.stdout
