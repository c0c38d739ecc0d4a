"""Projects as ``steersman init`` makes them, and the commands in them as processes of their own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

INIT = ("init", "--domain", "handsomeguy.cn", "--repo", "handsomeguy.cn/databaseuser")
KIND = ("--group", "mygroup", "--version", "v1alpha1", "--kind", "DatabaseUser")
CREATE = ("create", "api", *KIND)


def ours(*paths: Path) -> dict[str, str]:
    """The environment in which Steersman's sources, and ``paths``, are importable."""
    places = [*(str(p) for p in paths), *(p for p in sys.path if p)]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(places)}


def steersman(root: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Runs a command in ``root`` and returns how it ended."""
    command = [sys.executable, "-m", "steersman.cli", *arguments]
    return subprocess.run(command, cwd=root, env=ours(), capture_output=True, text=True, check=False)


def made(root: Path, *commands: tuple[str, ...]) -> Path:
    """Runs ``commands`` in ``root``, which must all succeed."""
    root.mkdir(parents=True, exist_ok=True)
    for each in commands:
        ended = steersman(root, *each)
        assert ended.returncode == 0, f"{each}: {ended.stdout}{ended.stderr}"
    return root
