"""actionlint, built from the version pinned in ``go/``."""

from __future__ import annotations

import subprocess
from pathlib import Path

from devcluster.go_module import GoModule
from devcluster.progress import Progress

_MODULE = GoModule(Path(__file__).parent / "go", "actionlint", "workflow-rules")
_PACKAGE = "github.com/rhysd/actionlint/cmd/actionlint"


def complaints(directory: Path) -> str:
    """Findings of actionlint for the workflows in ``directory``, without other linters."""
    files = sorted(directory.glob("*.yml"))
    assert files, directory
    command = [str(program()), "-shellcheck=", "-pyflakes=", *map(str, files)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout + done.stderr


def program() -> Path:
    """Path of actionlint, built on the first call (20 seconds)."""
    return _MODULE.ensure(_build, Progress()) / "actionlint"


def _build(directory: Path, progress: Progress) -> None:
    with progress.step("Build actionlint (20 s, once)", total=_MODULE.count_packages(_PACKAGE)) as step:
        _MODULE.compile(directory, "-s -w", (_PACKAGE,), step)
