"""Tests of ``scripts/versions.py``."""

from __future__ import annotations

from pathlib import Path

import pytest
from scripts.versions import problems, project_files, root_version, set_version

REPOSITORY = Path(__file__).parents[3]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A copy of the repository's project files."""
    for path in project_files(REPOSITORY):
        copy = tmp_path / path.relative_to(REPOSITORY)
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_text(path.read_text())
    return tmp_path


def test_repository_has_one_version() -> None:
    assert not list(problems(REPOSITORY))


def test_set_version_writes_all_files(root: Path) -> None:
    set_version(root, "9.8.7rc1")
    assert root_version(root) == "9.8.7rc1"
    assert not list(problems(root))
    runtime = (root / "packages/steersman/pyproject.toml").read_text()
    assert 'cli = ["steersman-cli==9.8.7rc1"]' in runtime
    assert '"rich>=14"' in runtime


def test_problems_name_file_line_and_version(root: Path) -> None:
    path = root / "packages/steersman-cli/pyproject.toml"
    path.write_text(path.read_text().replace('"steersman==', '"steersman==9.', 1))
    (problem,) = problems(root)
    assert problem.startswith("packages/steersman-cli/pyproject.toml:")
    assert "steersman==9." in problem


def test_set_version_rejects_other_text(root: Path) -> None:
    with pytest.raises(ValueError, match="latest"):
        set_version(root, "latest")
