"""Build contexts of operator images, with wheels included."""

import hashlib
import shutil
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from devcluster import architecture, lock
from devcluster.commands import logged

PYTHON = "3.13"  # Debian trixie's
_REQUIREMENTS = "requirements/operator.txt"
_DISTRIBUTIONS = ("packages/steersman", "operators/databases")
_SOURCE_DIRECTORIES = tuple(f"{name}/src" for name in _DISTRIBUTIONS)
_FILES = (
    "packages/steersman/README.md",
    *(f"{name}/pyproject.toml" for name in _DISTRIBUTIONS),
    "operators/databases/images/operator/Containerfile",
    _REQUIREMENTS,
)


def sources(checkout: Path) -> Iterator[Path]:
    """Yield every file that determines the image."""
    yield from (checkout / name for name in _FILES)
    for name in _SOURCE_DIRECTORIES:
        yield from source_files(checkout / name)


def fill_context(checkout: Path, directory: Path, log: Path) -> None:
    """Fill `directory` as the Containerfile's build context, with wheels for everything.

    Raises CommandFailed with the log's place.
    """
    copy(sources(checkout), checkout, directory)
    download(checkout / _REQUIREMENTS, directory / "image-wheels", log)
    for name in _DISTRIBUTIONS:
        build(directory / name, directory / "image-dist", log)


def copy(files: Iterable[Path], root: Path, directory: Path) -> None:
    """Copy files below `root` to the same places below `directory`."""
    for source in files:
        target = directory / source.relative_to(root)
        target.parent.mkdir(parents=True, exist_ok=True)
        # With the mode: scripts stay executable in the image.
        shutil.copy(source, target)


def build(distribution: Path, directory: Path, log: Path) -> None:
    """Build the wheel of a distribution. Raises CommandFailed with the log's place."""
    command = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(directory)]
    logged(command, log, seconds=120, directory=distribution)


def source_files(directory: Path) -> Iterator[Path]:
    """Yield the files below a directory, without compiled ones."""
    yield from (p for p in sorted(directory.rglob("*")) if p.is_file() and "__pycache__" not in p.parts)


def download(requirements: Path, target: Path, log: Path) -> None:
    """Download the pinned wheels for Debian's Python, checked against their hashes.

    The newest set of each requirements file is cached. Raises CommandFailed with the log's place.
    """
    cache = architecture.cache_directory("wheels") / requirements.stem
    content = f"{PYTHON} {architecture.TARGET_MACHINE}".encode() + requirements.read_bytes()
    cached_wheels = cache / hashlib.sha256(content).hexdigest()[:16]
    with lock.exclusive(cache.with_suffix(".lock")):
        if not cached_wheels.exists():
            unfinished = cache / "unfinished"
            shutil.rmtree(cache, ignore_errors=True)
            unfinished.mkdir(parents=True)
            logged([*_pip_download(), f"--dest={unfinished}", f"--requirement={requirements}"], log, seconds=600)
            unfinished.rename(cached_wheels)
        shutil.copytree(cached_wheels, target)


def _pip_download() -> list[str]:
    machine = architecture.TARGET_MACHINE
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
