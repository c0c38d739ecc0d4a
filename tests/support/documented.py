"""Python in the documentation, as a reader would write it down: blocks of one title are parts of one file."""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

DOCS = Path(__file__).parents[2] / "docs"
_BLOCK = re.compile(r'^```python title="(?P<name>\w+)\.py"\n(?P<code>.*?)^```$', re.MULTILINE | re.DOTALL)

Load = Callable[[str], Any]
"""Imports one of a page's files."""

Pages = Callable[[str], Load]
"""The files of a page, such as ``how-to/use-the-client.md``."""


def written_down(page: str, directory: Path) -> list[str]:
    """Writes the files of ``page`` into ``directory``, and gives their modules."""
    files: dict[str, list[str]] = {}
    for found in _BLOCK.finditer((DOCS / page).read_text()):
        files.setdefault(found["name"], []).append(found["code"])
    assert files, f"{page} has no Python with a title"
    for name, parts in files.items():
        (directory / f"{name}.py").write_text("\n\n".join(parts))
    return list(files)


def load(name: str) -> Any:
    """The module ``name``, which must be on the path."""
    return importlib.import_module(name)
