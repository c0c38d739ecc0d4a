"""``scripts/public_api.py`` lists public names, and requires a changelog fragment for changes."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from scripts.public_api import LISTING, changelog_problem, listing, stale_lines

WIDGETS = {
    "__init__.py": """
from widgets.store import MAX_WIDGETS, Widget, resize
from widgets.resize import resize

__all__ = ["MAX_WIDGETS", "Widget", "resize"]
""",
    "resize.py": """
async def resize(widget, *, size: int = 1) -> None:
    pass
""",
    "store.py": """
MAX_WIDGETS = 9

class _Holder:
    def inherited(self) -> None: ...

    def overridden(self) -> int: ...

class Widget(_Holder):
    size: int = 3

    def overridden(self) -> bool: ...

    def __init__(self, name: str) -> None:
        self.name = name

    @property
    def owner(self) -> str: ...

    def _hidden(self) -> None: ...

class Internal: ...
""",
    "errors.py": """
from typing import TypeVar

T = TypeVar("T")

class WidgetError(Exception): ...
""",
}


def write_packages(root: Path) -> None:
    package = root / "packages/widgets/src/widgets"
    package.mkdir(parents=True)
    for name, text in WIDGETS.items():
        (package / name).write_text(text)


def test_listing_has_public_names_with_signatures(tmp_path: Path) -> None:
    write_packages(tmp_path)
    found = listing(tmp_path, ("widgets",), ("widgets.errors",)).splitlines()[1:]
    assert found == [
        "widgets.MAX_WIDGETS = 9",
        "class widgets.Widget(_Holder)",
        "def widgets.Widget.__init__(name: str) -> None",
        "def widgets.Widget.inherited() -> None",
        "widgets.Widget.name",
        "def widgets.Widget.overridden() -> bool",
        "widgets.Widget.owner: str",
        "widgets.Widget.size: int = 3",
        "class widgets.errors.WidgetError(Exception)",
        "async def widgets.resize(widget, *, size: int = 1) -> None",
    ]


def test_stale_listing_shows_the_difference() -> None:
    assert stale_lines("a\nb\n", "a\nb\n") == []
    assert "+def widgets.grow() -> None" in stale_lines("a\ndef widgets.grow() -> None\n", "a\n")


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A repository with a listing and one commit."""
    git(tmp_path, "init", "--quiet", "--initial-branch", "main")
    commit(tmp_path, LISTING, "widgets.grow")
    git(tmp_path, "branch", "change")
    return tmp_path


def git(directory: Path, *arguments: str) -> None:
    identity = ("-c", "user.name=Widget", "-c", "user.email=widget@example.com")
    subprocess.run(["git", "-C", str(directory), *identity, *arguments], check=True)


def commit(directory: Path, name: str, text: str) -> None:
    file = directory / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    git(directory, "add", name)
    git(directory, "commit", "--quiet", "--message", "widgets: change a file")


@pytest.mark.parametrize(
    ("files", "is_problem"),
    [
        (("widgets.py",), False),
        ((LISTING,), True),
        ((LISTING, "changelog.d/README.md"), True),
        ((LISTING, "changelog.d/+grow.changed.md"), False),
    ],
)
def test_changed_listing_needs_a_fragment(repository: Path, files: tuple[str, ...], is_problem: bool) -> None:
    git(repository, "switch", "--quiet", "change")
    for name in files:
        commit(repository, name, "widgets.shrink")
    assert bool(changelog_problem("main...change", repository)) is is_problem
