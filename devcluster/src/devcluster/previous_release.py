"""Images and Helm chart of the previous release, for tests of upgrades.

The previous release is the newest tag such as `v1.2.3` before HEAD. Without one, it is the commit in
`operators/databases/previous-release.txt`.
"""

import io
import os
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

from devcluster import binaries, layout, lock
from devcluster.commands import logged
from devcluster.errors import Unsupported
from devcluster.images import CHECKOUT
from devcluster.progress import Progress

_RELEASE_TAGS = "v[0-9]*"
_PROJECT = "operators/databases"
_PINNED = f"{_PROJECT}/previous-release.txt"


def commit(repository: Path = CHECKOUT) -> str:
    """Return the commit of the previous release.

    Raises Unsupported if the clone does not have it.
    """
    name = _tag(repository) or _pinned(repository)
    found = _git(repository, "rev-parse", "--verify", "--quiet", f"{name}^{{commit}}")
    if not found:
        raise Unsupported(
            f"this clone lacks the previous release, {name}: run git fetch --tags, and --unshallow in a shallow clone"
        )
    return found


def is_tagged(repository: Path = CHECKOUT) -> bool:
    """Return True if the previous release is a tag."""
    return bool(_tag(repository))


def checkout(repository: Path = CHECKOUT) -> Path:
    """Return a directory with the files of the previous release. It is cached by commit.

    Raises Unsupported if the clone does not have them.
    """
    found = commit(repository)
    directory = layout.cache_directory() / "previous-release" / found
    with lock.exclusive(directory.with_suffix(".lock")):
        if not directory.exists():
            _extract(repository, found, directory)
    return directory


def write_chart(source: Path, image: str, directory: Path, progress: Progress) -> None:
    """Write the Helm chart of a checkout, by its own code.

    Raises CommandFailed with the log's place.
    """
    sources = [str(path) for path in sorted(source.glob("packages/*/src"))]
    environment = {
        "PYTHONPATH": os.pathsep.join([*sources, str(source / _PROJECT / "src")]),
        "PATH": os.pathsep.join([str(binaries.ensure(progress)), os.environ.get("PATH", "")]),
    }
    command = [sys.executable, "-m", "steersman_cli", "chart", "--image", image, "--directory", str(directory)]
    log = layout.cache_directory() / "previous-release" / "chart.log"
    logged(command, log, seconds=120, extra=environment, directory=source / _PROJECT)


def _tag(repository: Path) -> str:
    """Return the newest tag of a release before HEAD, or ""."""
    # A tag of HEAD itself is the present release.
    return _git(repository, "describe", "--tags", "--abbrev=0", "--match", _RELEASE_TAGS, "HEAD^")


def _pinned(repository: Path) -> str:
    """Return the commit in the file, without its comments."""
    lines = (repository / _PINNED).read_text().split("\n")
    return next(line for line in lines if line and not line.startswith("#"))


def _extract(repository: Path, found: str, directory: Path) -> None:
    command = ["git", "-C", str(repository), "archive", "--format=tar", found]
    archive = subprocess.run(command, capture_output=True, check=True).stdout
    with tempfile.TemporaryDirectory(dir=directory.parent) as temporary:
        with tarfile.open(fileobj=io.BytesIO(archive)) as files:
            files.extractall(Path(temporary) / found, filter="data")
        (Path(temporary) / found).rename(directory)


def _git(repository: Path, *arguments: str) -> str:
    """Return the output of git, or "" if it fails."""
    found = subprocess.run(["git", "-C", str(repository), *arguments], capture_output=True, text=True, check=False)
    return found.stdout.strip() if found.returncode == 0 else ""
