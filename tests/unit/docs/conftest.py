from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from framework_support.documented import Load, Pages, load, written_down


@pytest.fixture
def pages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Pages]:
    """Writes a page's files down and imports them."""
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    written: set[str] = set()

    def of(page: str) -> Load:
        written.update(written_down(page, tmp_path))
        importlib.invalidate_caches()
        return load

    yield of
    for name in written:
        sys.modules.pop(name, None)
