"""Check the commands that install Steersman from a checkout."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PAGES = ("docs/how-to/start-a-project.md", "docs/tutorials/write-an-operator.md")


@pytest.mark.parametrize("page", PAGES)
def test_checkout_installation_names_every_package(page: str) -> None:
    command = next(line for line in (ROOT / page).read_text().splitlines() if line.startswith('pip install -e "$P/'))
    named = re.findall(r'-e "?\$P/([\w-]+)', command)
    assert sorted(named) == sorted(file.parent.name for file in ROOT.glob("packages/*/pyproject.toml"))


def test_checkout_wheel_command_names_package() -> None:
    path = re.search(r"hatchling '/path/to/steersman/(\S+)\[uvloop,webhooks\]'", (ROOT / PAGES[0]).read_text())
    assert path is not None
    assert (ROOT / path[1] / "pyproject.toml").is_file()
