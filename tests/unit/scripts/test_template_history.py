"""Tests of ``scripts/template_history.py``."""

from __future__ import annotations

import subprocess
from pathlib import Path

from scripts.template_history import record_templates

from steersman_cli.templating import release


def test_record_templates_adds_tag_of_release(tmp_path: Path) -> None:
    history = tmp_path / "history.bundle"
    record_templates(history)
    record_templates(history)
    listed = subprocess.run(["git", "bundle", "list-heads", str(history)], capture_output=True, text=True, check=True)
    assert listed.stdout.split()[1:] == [f"refs/tags/{release()}"]
