"""Package index with the wheels of this checkout and their dependencies."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from devcluster.images import CHECKOUT
from devcluster.wheels import download


def package_index(directory: Path) -> Path:
    """Fill a directory with pinned wheels for Debian's Python.

    Downloaded wheels are kept between calls.
    """
    with tempfile.TemporaryDirectory() as logs:
        download(CHECKOUT / "requirements/dev.txt", directory, Path(logs) / "log")
    build_wheels(directory)
    return directory


def build_wheels(directory: Path) -> None:
    """Build the wheels of all packages of this checkout into ``directory``."""
    with tempfile.TemporaryDirectory() as temporary:
        packages = [str(each.parent) for each in (CHECKOUT / "packages").glob("*/pyproject.toml")]
        # hatchling reads ignore files above the sources, and writes nothing next to them.
        options = ["--quiet", "--no-deps", "--no-build-isolation", "--wheel-dir", temporary]
        subprocess.run([sys.executable, "-m", "pip", "wheel", *options, *packages], check=True)
        for wheel in Path(temporary).glob("*.whl"):
            shutil.move(wheel, directory / wheel.name)
