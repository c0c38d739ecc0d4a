"""What the Operator Framework's own validators say of a bundle: the program below ``go/``."""

from __future__ import annotations

import subprocess
from pathlib import Path

import msgspec

from devcluster.go_module import GoModule
from devcluster.progress import Progress

_MODULE = GoModule(Path(__file__).parent / "go", "the validators of bundles", "olm-bundles")


class Findings(msgspec.Struct):
    """What is wrong with a bundle, and what could be better."""

    errors: list[str]
    warnings: list[str]


def validated(bundle: Path) -> Findings:
    """What they say of the directory ``bundle``."""
    done = subprocess.run([program(), bundle], capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()
    return msgspec.json.decode(done.stdout, type=Findings)


def program() -> Path:
    """The program that asks them, built first if need be: 90 s, once."""
    return _MODULE.ensure(_build, Progress()) / "olm-bundles"


def _build(directory: Path, progress: Progress) -> None:
    with progress.step("Build the validators of bundles (90 s, once)", total=_MODULE.count_packages(".")) as step:
        _MODULE.compile(directory, "-s -w", (".",), step)
