"""Add the templates of this release to the history for ``steersman update``. Run it before each release."""

from __future__ import annotations

import subprocess
import tempfile
from pathlib import Path

from steersman_cli.update import HISTORY, build_template_repository


def record_templates(history: Path = HISTORY) -> None:
    """Add the current templates to ``history``, with their version as the tag."""
    with tempfile.TemporaryDirectory() as directory:
        templates = Path(directory) / "templates"
        build_template_repository(templates, history)
        bundle = Path(directory) / "history.bundle"
        subprocess.run(["git", "bundle", "create", "--quiet", str(bundle), "--tags"], cwd=templates, check=True)
        history.write_bytes(bundle.read_bytes())


if __name__ == "__main__":
    record_templates()
