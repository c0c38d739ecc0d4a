"""Keep all distributions at the version of the root ``pyproject.toml``.

``versions.py --check`` lists files with another version and exits with 1. ``versions.py --set 1.2.3`` writes a
version into every ``pyproject.toml``, and into the ``==`` requirements between the distributions.
"""

from __future__ import annotations

import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

_VERSION = re.compile(r"[0-9]+\.[0-9]+\.[0-9]+((a|b|rc)[0-9]+)?(\.dev[0-9]+)?")
_PROJECT_VERSION = re.compile(r'^(version = ")([^"]+)(")', re.MULTILINE)
_REQUIREMENT = re.compile(r'("steersman(?:-[a-z]+)?(?:\[[a-z,]+\])?==)([^"]+)(")')


def project_files(root: Path) -> list[Path]:
    """Return the ``pyproject.toml`` of the root and of each distribution."""
    content: dict[str, Any] = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))
    members = (path for pattern in content["tool"]["uv"]["workspace"]["members"] for path in root.glob(pattern))
    return [root / "pyproject.toml", *sorted(path / "pyproject.toml" for path in members)]


def root_version(root: Path) -> str:
    """Return the version of the root ``pyproject.toml``."""
    return tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]


def problems(root: Path) -> Iterator[str]:
    """Yield a line for each version that differs from the root's."""
    expected = root_version(root)
    for path in project_files(root):
        text = path.read_text(encoding="utf-8")
        for pattern in (_PROJECT_VERSION, _REQUIREMENT):
            for match in pattern.finditer(text):
                if match[2] != expected:
                    line = text.count("\n", 0, match.start()) + 1
                    found = match[0].strip('"')
                    yield f"{path.relative_to(root)}:{line}: {found}: expected {expected}; run versions.py --set"


def set_version(root: Path, version: str) -> None:
    """Write ``version`` into all files.

    Raises:
        ValueError: ``version`` is not a version such as 1.2.3 or 1.2.3rc1.
    """
    if not _VERSION.fullmatch(version):
        raise ValueError(f"{version!r} is not a version such as 1.2.3 or 1.2.3rc1")
    for path in project_files(root):
        text = path.read_text(encoding="utf-8")
        for pattern in (_PROJECT_VERSION, _REQUIREMENT):
            text = pattern.sub(rf"\g<1>{version}\g<3>", text)
        path.write_text(text, encoding="utf-8")


def main() -> None:
    """Check or write the versions of this repository."""
    root = Path(__file__).resolve().parent.parent
    match sys.argv[1:]:
        case ["--check"]:
            found = list(problems(root))
            for problem in found:
                sys.stderr.write(f"{problem}\n")
            sys.exit(1 if found else 0)
        case ["--set", version]:
            try:
                set_version(root, version)
            except ValueError as error:
                sys.exit(str(error))
        case _:
            sys.exit("usage: versions.py --check | --set X.Y.Z")


if __name__ == "__main__":
    main()
