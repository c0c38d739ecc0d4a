"""``make demo-operator`` shows each step, and stops what it started."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from framework_support.projects import ours

ROOT = Path(__file__).parents[5]


@pytest.mark.timeout(300)
def test_demo_operator_shows_all_steps(tmp_path: Path) -> None:
    completed = subprocess.run(
        [sys.executable, "examples/myapp/demo"],
        cwd=ROOT,
        env={**ours(), "TMPDIR": str(tmp_path), "COLUMNS": "120"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert completed.returncode == 0, completed.stdout + completed.stderr
    for step in ("Create", "Change", "Scale", "Delete the Service", "Delete the MyApp"):
        assert f"✓ {step}" in completed.stdout
    assert "It reconciled because of: Service default/my-application" in completed.stdout
    assert "everything is stopped" in completed.stdout
    (crd,) = re.findall(r"^ *steersman dev --crd (\S+)$", completed.stdout, re.MULTILINE)
    assert (ROOT / "examples/myapp" / crd).is_file()
    assert list(tmp_path.iterdir()) == []
