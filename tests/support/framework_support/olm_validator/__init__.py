"""Validators of the Operator Framework for bundles, built from ``go/``."""

from __future__ import annotations

import subprocess
from pathlib import Path

import msgspec

from devcluster.go_module import GoModule
from devcluster.progress import Progress

_MODULE = GoModule(Path(__file__).parent / "go", "the validators of bundles", "olm-bundles")


class Findings(msgspec.Struct):
    """Errors and warnings about a bundle."""

    errors: list[str]
    warnings: list[str]


def validated(bundle: Path) -> Findings:
    """Validate the bundle in a directory."""
    done = subprocess.run([program(), bundle], capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()
    return msgspec.json.decode(done.stdout, type=Findings)


def program() -> Path:
    """Path of the validator, built on the first call (90 seconds)."""
    return _MODULE.ensure(_build, Progress()) / "olm-bundles"


def _build(directory: Path, progress: Progress) -> None:
    with progress.step("Build the validators of bundles (90 s, once)", total=_MODULE.count_packages(".")) as step:
        _MODULE.compile(directory, "-s -w", (".",), step)
