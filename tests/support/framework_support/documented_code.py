"""Python code of the documentation. Blocks with the same title form one file."""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

DOCS = Path(__file__).parents[3] / "docs"
_FILE = re.compile(r'^```\w+ title="(?P<name>\w+\.\w+)"\n(?P<code>.*?)^```$', re.MULTILINE | re.DOTALL)

Load = Callable[[str], Any]
"""Function that imports a file of a page."""

Pages = Callable[[str], Load]
"""The files of a page, such as ``how-to/use-the-client.md``."""


def write_documented_files(page: str, directory: Path) -> list[str]:
    """Write the files of ``page`` into ``directory`` and return their modules."""
    files = {n.removesuffix(".py"): text for n, text in documented_files(page).items() if n.endswith(".py")}
    assert files, f"{page} has no Python with a title"
    for name, text in files.items():
        (directory / f"{name}.py").write_text(text)
    return list(files)


def documented_files(page: str) -> dict[str, str]:
    """Return the files of ``page`` in all languages, by name."""
    found: dict[str, list[str]] = {}
    for file in _FILE.finditer((DOCS / page).read_text()):
        found.setdefault(file["name"], []).append(file["code"])
    return {name: "\n\n".join(parts) for name, parts in found.items()}


def load(name: str) -> Any:
    """Import the module ``name``, which must be on the path."""
    return importlib.import_module(name)
