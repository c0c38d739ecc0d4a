"""The architecture page names modules that exist."""

from __future__ import annotations

import re
from pathlib import Path

import steersman
from framework_support.documented_code import DOCS

PACKAGE = Path(steersman.__file__).parent
MODULE = re.compile(r"`((?:\w+/)+\w+\.py)`")


def test_architecture_page_names_existing_modules() -> None:
    named = [Path(path) for path in MODULE.findall((DOCS / "explanation/architecture.md").read_text())]
    assert len(named) > 20
    assert [path for path in named if not any((PACKAGE / path.parts[0]).rglob(path.name))] == []
