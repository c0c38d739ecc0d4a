"""``scripts/articles.py`` writes the page and finds requirements without a test."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[3] / "scripts" / "articles.py"
ARTICLES = """
[[articles]]
id = "overview"
title = "K8s Operator"
source = "Notes"
about = "Five levels."

[[articles.requirements]]
id = "backups"
quotation = "备份和恢复 | `a | b`"
meaning = "The operator takes backups."

[[articles.requirements]]
id = "requests"
quotation = "`cpu: 100m`"
meaning = "The operator requests CPU."
missing = "It requests less."
"""
TEST = "tests/unit/test_backups.py"
MARKED = """
import pytest

@pytest.mark.requirement("overview/backups")
async def test_backup_is_taken(): ...
"""


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A repository with the script, its articles and a marked test."""
    subprocess.run(["git", "init", "--quiet", str(tmp_path)], check=True)
    (tmp_path / "docs/explanation").mkdir(parents=True)
    write(tmp_path, "scripts/articles.py", SCRIPT.read_text())
    write(tmp_path, "scripts/articles.toml", ARTICLES)
    write(tmp_path, TEST, MARKED)
    return tmp_path


def write(tree: Path, name: str, text: str) -> None:
    (tree / name).parent.mkdir(parents=True, exist_ok=True)
    (tree / name).write_text(text)


def run(tree: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(tree / "scripts/articles.py"), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_page_has_quotations_tests_and_reasons(tree: Path) -> None:
    assert run(tree).stdout == "requirements of the articles: 2, not yet shown: 1\n"
    page = (tree / "docs/explanation/articles.md").read_text()
    test = f"unit: `{TEST}::test_backup_is_taken`"
    assert f"| The operator takes backups. | 备份和恢复 \\| `a \\| b` | {test} |\n" in page
    assert "| The operator requests CPU. | `cpu: 100m` | not yet shown |\n" in page
    assert page.endswith("## Not yet shown\n\n- `cpu: 100m` (K8s Operator): It requests less.\n")
    assert run(tree, "--check").returncode == 0


@pytest.mark.parametrize(
    ("name", "old", "new", "problem"),
    [
        (TEST, "overview/backups", "overview/requests", "no test shows overview/backups: mark one"),
        (TEST, "overview/backups", "overview/requests", "a test shows overview/requests: remove its field missing"),
        (TEST, '"overview/backups"', '"overview/backups", "a/b"', f"{TEST}:4: scripts/articles.toml has no"),
        (TEST, '"overview/backups"', "BACKUPS", "has no requirement 'BACKUPS'"),
        (TEST, "test_backup_is_taken", "backup_is_taken", f"{TEST}:4: decorate a test function"),
        (TEST, "test_backup_is_taken", "test_backup_ends", "docs/explanation/articles.md is outdated: run make"),
        ("scripts/articles.toml", 'id = "requests"', 'id = "backups"', "two requirements have the same id"),
        ("scripts/articles.toml", "meaning =", "means =", "unknown field `means`"),
    ],
)
def test_problem_is_reported(tree: Path, name: str, old: str, new: str, problem: str) -> None:
    assert run(tree).returncode == 0
    text = (tree / name).read_text()
    assert old in text
    write(tree, name, text.replace(old, new))
    completed = run(tree, "--check")
    assert completed.returncode == 1
    assert problem in completed.stderr


def test_marker_outside_of_known_directories_is_reported(tree: Path) -> None:
    write(tree, "more/test_backups.py", MARKED)
    completed = run(tree)
    assert completed.returncode == 1
    assert completed.stderr.startswith("more/test_backups.py:4: no directory names the kind of test")
    assert not (tree / "docs/explanation/articles.md").exists()
