"""What the operator's image is built from, gathered here: a build may not reach, or not trust, the package index."""

import hashlib
import platform
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

from devcluster.commands import logged

PYTHON = "3.13"  # Debian trixie's
_REQUIREMENTS = "requirements/operator.txt"
_DISTRIBUTIONS = (".", "operators/databases")
_SOURCES = ("src", "operators/databases/src")
_FILES = (
    "README.md",
    "pyproject.toml",
    "operators/databases/pyproject.toml",
    "operators/databases/images/operator/Containerfile",
    _REQUIREMENTS,
)


def sources(checkout: Path) -> Iterator[Path]:
    """Every file that decides what is in the image."""
    yield from (checkout / name for name in _FILES)
    for name in _SOURCES:
        yield from (path for path in sorted((checkout / name).rglob("*")) if path.is_file() and _is_source(path))


def context(checkout: Path, directory: Path, cache: Path, log: Path) -> None:
    """Fill `directory` as the Containerfile's build context, with wheels for everything.

    `cache` keeps downloaded wheels between calls. Raises CommandFailed with the log's place.
    """
    for source in sources(checkout):
        target = directory / source.relative_to(checkout)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, target)
    _download(checkout / _REQUIREMENTS, cache, directory / "image-wheels", log)
    for name in _DISTRIBUTIONS:
        command = [sys.executable, "-m", "hatchling", "build", "--target", "wheel"]
        logged([*command, "--directory", str(directory / "image-dist")], log, seconds=120, directory=directory / name)


def _is_source(path: Path) -> bool:
    return "__pycache__" not in path.parts


def _download(requirements: Path, cache: Path, target: Path, log: Path) -> None:
    """The pinned wheels for Debian's Python, checked against their hashes, in `target`."""
    kept = (
        cache / hashlib.sha256(f"{PYTHON} {platform.machine()}".encode() + requirements.read_bytes()).hexdigest()[:16]
    )
    if not kept.exists():
        unfinished = cache / "unfinished"
        shutil.rmtree(cache, ignore_errors=True)
        unfinished.mkdir(parents=True)
        logged([*_pip_download(), f"--dest={unfinished}", f"--requirement={requirements}"], log, seconds=600)
        unfinished.rename(kept)
    shutil.copytree(kept, target)


def _pip_download() -> list[str]:
    machine = platform.machine()
    # glibc 2.41, and all that is older
    platforms = [f"manylinux_2_{minor}_{machine}" for minor in range(41, 16, -1)]
    platforms += [f"manylinux2014_{machine}", f"linux_{machine}"]
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-input", "--disable-pip-version-check"]
    command += ["--require-hashes", "--no-deps", "--only-binary=:all:", f"--python-version={PYTHON}"]
    command += [
        "--implementation=cp",
        *(f"--abi={name}" for name in (f"cp{PYTHON.replace('.', '')}", "abi3", "none")),
    ]
    return command + [f"--platform={name}" for name in platforms]
