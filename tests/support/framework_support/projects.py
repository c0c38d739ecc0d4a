"""Projects created by ``steersman init``, and commands run in them."""

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
"""Example projects of this repository."""

INIT = ("init", "--domain", "handsomeguy.cn", "--repo", "handsomeguy.cn/databaseuser")
KIND = ("--group", "mygroup", "--version", "v1alpha1", "--kind", "DatabaseUser")
CREATE = ("create", "api", *KIND)


def ours(*paths: Path) -> dict[str, str]:
    """Environment in which this checkout and ``paths`` are importable."""
    places = [*(str(p) for p in paths), *(p for p in sys.path if p)]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(places)}


def steersman(root: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a command in ``root`` and return the completed process."""
    return preloaded_cli.run_steersman(root, *arguments, env=ours())


def create_project(root: Path, *commands: tuple[str, ...]) -> Path:
    """Run ``commands`` in ``root``, which must succeed."""
    root.mkdir(parents=True, exist_ok=True)
    for each in commands:
        ended = steersman(root, *each)
        assert ended.returncode == 0, f"{each}: {ended.stdout}{ended.stderr}"
    return root


def write_project(root: Path, *commands: tuple[str, ...]) -> Path:
    """Like ``create_project``, but in this process and without manifests."""
    root.mkdir(parents=True, exist_ok=True)
    with chdir(root), patch("steersman_cli.manifests.generate_in_subprocess"):
        for each in commands:
            ended = CliRunner().invoke(app, each, prog_name="steersman")
            assert ended.exit_code == 0, f"{each}: {ended.output}"
    return root


def prepare_directory(directory: Path, project: str) -> dict[str, str]:
    """Environment in which Steersman and the project's dependencies are installed.

    Args:
        directory: directory for the programs.
        project: name of the project.
    """
    directory.mkdir()
    # make uses the environment of these tests instead of installing dependencies.
    installed = f"VENV={sys.prefix} --old-file={sys.prefix}/.{project}"
    for name, command in (
        ("steersman", f"{sys.executable} -m steersman_cli"),
        ("make", f"/usr/bin/make {installed}"),
    ):
        (directory / name).write_text(f'#!/bin/sh\nexec {command} "$@"\n')
        (directory / name).chmod(0o755)
    return {**ours(), "PATH": os.pathsep.join([str(directory), os.environ["PATH"]])}
