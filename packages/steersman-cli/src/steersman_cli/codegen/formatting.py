"""Formats generated modules with ``ruff format``."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path, PurePath
from tempfile import TemporaryDirectory
from typing import TypeVar

from steersman.errors import ConfigurationError

PathT = TypeVar("PathT", bound=PurePath)


def format_modules(sources: Mapping[PathT, str], line_length: int) -> dict[PathT, str]:
    """The source of each module, formatted by ruff.

    Args:
        sources: source text by relative path.
        line_length: in columns.

    Raises:
        ConfigurationError: ruff is not installed, or cannot parse a module.
    """
    with TemporaryDirectory(prefix="steersman-codegen-") as directory:
        files = {path: Path(directory, path) for path in sources}
        for path, file in files.items():
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(sources[path])
        _run_ruff_format(Path(directory), line_length)
        return {path: file.read_text() for path, file in files.items()}


def _run_ruff_format(directory: Path, line_length: int) -> None:
    options = ("--isolated", "--no-cache", "--quiet", "--line-length", str(line_length))
    completed = subprocess.run(
        [_find_ruff(), "format", *options, str(directory)], capture_output=True, text=True, check=False
    )
    if completed.returncode:
        raise ConfigurationError(f"ruff cannot format the generated modules: {completed.stderr.strip()}")


def _find_ruff() -> str:
    beside_python = Path(sys.executable).with_name("ruff")
    found = str(beside_python) if beside_python.exists() else shutil.which("ruff")
    if found is None:
        raise ConfigurationError("ruff is not installed, but formats the generated modules: pip install ruff")
    return found
