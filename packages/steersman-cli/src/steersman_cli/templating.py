"""Render the templates of the package with copier."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

from steersman.errors import ConfigurationError

TEMPLATES = Path(__file__).parent / "templates"
TEMPLATE_SOURCE = "https://steersman.dev/templates/project.git"
"""Template URL in the projects. `steersman update` maps it to the templates of the package."""

_ANSWERS_FILE = ".copier-answers.yml"


def release() -> str:
    """Return the version of the templates as a tag, such as ``v0.1.0``."""
    return f"v{version('steersman')}"


def load_copier() -> Any:
    """The module. Raises ConfigurationError: not installed."""
    try:
        import copier
    except ImportError as error:
        raise ConfigurationError(
            f"cannot import a required package ({error}): pip install 'steersman[cli]'"
        ) from None
    return copier


def render_template(template: str, variables: Mapping[str, Any]) -> dict[str, str]:
    """Render ``template`` and return its files, by path.

    Raises:
        ConfigurationError: copier is not installed.
    """
    module = load_copier()
    with tempfile.TemporaryDirectory() as directory:
        module.run_copy(
            str(TEMPLATES / template),
            directory,
            dict(variables),
            defaults=True,
            quiet=True,
            answers_file=_ANSWERS_FILE,
        )
        _format(Path(directory))
        found = sorted(p for p in Path(directory).rglob("*") if p.is_file())
        return {p.relative_to(directory).as_posix(): p.read_text() for p in found}


def _format(directory: Path) -> None:
    """Format the files with ruff, if it is installed."""
    local_ruff = Path(sys.executable).with_name("ruff")
    ruff = str(local_ruff) if local_ruff.exists() else shutil.which("ruff")
    if ruff is not None:
        settings = ("--quiet", "--no-cache", "--isolated", "--config", "line-length=118", str(directory))
        subprocess.run([ruff, "format", *settings], check=False, capture_output=True)
