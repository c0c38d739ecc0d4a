"""The release installs the project's own distributions from files only."""

from __future__ import annotations

import re
from pathlib import Path

import yaml

ROOT = Path(__file__).parents[2]


def test_release_asks_no_index_for_own_names() -> None:
    workflow = yaml.safe_load((ROOT / ".github/workflows/release.yml").read_text())
    commands = [step["run"] for job in workflow["jobs"].values() for step in job["steps"] if "run" in step]
    installs = [line for command in commands for line in command.splitlines() if "pip install" in line]
    assert installs
    for line in installs:
        assert "--require-hashes" in line or "--no-index" in line, line


def test_actions_are_pinned_by_commit() -> None:
    for path in sorted((ROOT / ".github/workflows").glob("*.yml")):
        for job in yaml.safe_load(path.read_text())["jobs"].values():
            for step in job["steps"]:
                if "uses" in step:
                    assert re.fullmatch(r"[\w/.-]+@[0-9a-f]{40}", step["uses"]), f"{path.name}: {step['uses']}"
