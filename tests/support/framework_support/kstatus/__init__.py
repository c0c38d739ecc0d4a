"""Status of objects by the library of kstatus, built from ``go/``."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from devcluster.go_module import GoModule
from devcluster.progress import Progress

_MODULE = GoModule(Path(__file__).parent / "go", "the library of kstatus", "kstatus")


class KStatus(msgspec.Struct):
    """Status of one object, such as ``InProgress``."""

    status: str
    message: str


def computed(objects: Sequence[dict[str, Any]]) -> list[KStatus]:
    """Return the status of each object."""
    done = subprocess.run([program()], input=json.dumps(objects).encode(), capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()
    return msgspec.json.decode(done.stdout, type=list[KStatus])


def program() -> Path:
    """Path of the program, built on the first call (2 minutes)."""
    return _MODULE.ensure(_build, Progress()) / "kstatus"


def _build(directory: Path, progress: Progress) -> None:
    with progress.step("Build the library of kstatus (2 min, once)", total=_MODULE.count_packages(".")) as step:
        _MODULE.compile(directory, "-s -w", (".",), step)
