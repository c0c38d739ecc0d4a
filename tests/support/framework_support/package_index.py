"""What a package index would have: Steersman's wheel as this checkout is, and all that it and its projects need."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from devcluster.images import CHECKOUT
from devcluster.wheels import download


def package_index(directory: Path) -> Path:
    """A new directory with wheels for Debian's Python, pinned and checked; those of others are kept between calls."""
    with tempfile.TemporaryDirectory() as logs:
        download(CHECKOUT / "requirements/dev.txt", directory, Path(logs) / "log")
    build_wheels(directory)
    return directory


def build_wheels(directory: Path) -> None:
    """Build the wheels of all packages of this checkout into ``directory``."""
    with tempfile.TemporaryDirectory() as temporary:
        packages = [str(each.parent) for each in (CHECKOUT / "packages").glob("*/pyproject.toml")]
        # hatchling looks for files to leave out upwards of the sources, and writes nothing beside them.
        options = ["--quiet", "--no-deps", "--no-build-isolation", "--wheel-dir", temporary]
        subprocess.run([sys.executable, "-m", "pip", "wheel", *options, *packages], check=True)
        for wheel in Path(temporary).glob("*.whl"):
            shutil.move(wheel, directory / wheel.name)
