from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from framework_support.documented_code import Load, Pages, load, write_documented_files


@pytest.fixture
def pages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Pages]:
    """Writes a page's files down and imports them."""
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    written: set[str] = set()

    def of(page: str) -> Load:
        written.update(write_documented_files(page, tmp_path))
        importlib.invalidate_caches()
        return load

    yield of
    for name in written:
        sys.modules.pop(name, None)
