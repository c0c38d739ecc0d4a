"""Projects as ``steersman init`` makes them, and the commands in them as processes of their own."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import chdir
from pathlib import Path
from unittest.mock import patch

from typer.testing import CliRunner

from framework_support import preloaded_cli
from steersman_cli import app

EXAMPLES = sorted(p.parent for p in (Path(__file__).parents[3] / "examples").glob("*/PROJECT"))
"""The projects of this repository."""

INIT = ("init", "--domain", "handsomeguy.cn", "--repo", "handsomeguy.cn/databaseuser")
KIND = ("--group", "mygroup", "--version", "v1alpha1", "--kind", "DatabaseUser")
CREATE = ("create", "api", *KIND)


def ours(*paths: Path) -> dict[str, str]:
    """The environment in which Steersman's sources, and ``paths``, are importable."""
    places = [*(str(p) for p in paths), *(p for p in sys.path if p)]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(places)}


def steersman(root: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Runs a command in ``root`` and returns how it ended."""
    return preloaded_cli.run_steersman(root, *arguments, env=ours())


def create_project(root: Path, *commands: tuple[str, ...]) -> Path:
    """Runs ``commands`` in ``root``, which must all succeed."""
    root.mkdir(parents=True, exist_ok=True)
    for each in commands:
        ended = steersman(root, *each)
        assert ended.returncode == 0, f"{each}: {ended.stdout}{ended.stderr}"
    return root


def write_project(root: Path, *commands: tuple[str, ...]) -> Path:
    """As ``made``, but in this process and without manifests, for tests of what several commands write."""
    root.mkdir(parents=True, exist_ok=True)
    with chdir(root), patch("steersman_cli.manifests.generate_in_subprocess"):
        for each in commands:
            ended = CliRunner().invoke(app, each, prog_name="steersman")
            assert ended.exit_code == 0, f"{each}: {ended.output}"
    return root


def prepare_directory(directory: Path, project: str) -> dict[str, str]:
    """The environment of somebody who has installed Steersman and, by ``make``, what the project needs.

    Args:
        directory: for the programs.
        project: its name.
    """
    directory.mkdir()
    # To make, what it would install is there: in the environment of these tests.
    installed = f"VENV={sys.prefix} --old-file={sys.prefix}/.{project}"
    for name, command in (
        ("steersman", f"{sys.executable} -m steersman_cli"),
        ("make", f"/usr/bin/make {installed}"),
    ):
        (directory / name).write_text(f'#!/bin/sh\nexec {command} "$@"\n')
        (directory / name).chmod(0o755)
    return {**ours(), "PATH": os.pathsep.join([str(directory), os.environ["PATH"]])}
