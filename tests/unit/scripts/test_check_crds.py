"""``scripts/check_crds.py`` compares the CRDs with those of the last release."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from scripts.check_crds import CRDS, FRAGMENTS, ROOT, last_release, undocumented_changes

NAME = "databases.steersman.dev_databases.yaml"


def git(root: Path, *arguments: str) -> None:
    identity = ["-c", "user.name=a", "-c", "user.email=a@example.com", "-c", "commit.gpgsign=false"]
    subprocess.run(["git", "-C", str(root), *identity, *arguments], check=True, capture_output=True)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A repository with one CRD and the tag ``v0.1.0``."""
    directory = tmp_path / CRDS
    directory.mkdir(parents=True)
    (tmp_path / FRAGMENTS).mkdir()
    (directory / NAME).write_text((ROOT / CRDS / NAME).read_text())
    git(tmp_path, "init", "--quiet")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "--quiet", "-m", "release")
    git(tmp_path, "tag", "v0.1.0")
    return tmp_path


def remove_field(root: Path, name: str) -> None:
    path = root / CRDS / NAME
    definition: dict[str, Any] = yaml.safe_load(path.read_text())
    for version in definition["spec"]["versions"]:
        del version["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"][name]
    path.write_text(yaml.safe_dump(definition))


def test_crds_unchanged_have_no_changes(root: Path) -> None:
    assert last_release(root) == "v0.1.0"
    assert undocumented_changes(root, "v0.1.0") == []


def test_crds_removed_field_needs_a_fragment(root: Path) -> None:
    remove_field(root, "extensions")
    changes = undocumented_changes(root, "v0.1.0")
    assert changes
    assert all(".spec.extensions" in change for change in changes)
    (root / FRAGMENTS / "+extensions.removed.md").write_text("`spec.extensions` is removed.")
    assert undocumented_changes(root, "v0.1.0") == []


def test_crds_commit_of_release_has_no_fragments(root: Path) -> None:
    """Between ``towncrier build`` and the tag, the changelog has the text."""
    remove_field(root, "extensions")
    (root / "CHANGELOG.md").write_text("- `spec.extensions` is removed.\n")
    git(root, "add", "CHANGELOG.md")
    assert undocumented_changes(root, "v0.1.0") == []


def test_crds_release_without_crds_is_not_compared(root: Path) -> None:
    git(root, "rm", "-r", "--quiet", "--cached", "operators")
    git(root, "commit", "--quiet", "-m", "without", "--allow-empty")
    assert undocumented_changes(root, "HEAD") is None


def test_crds_without_tags_have_no_release(root: Path) -> None:
    git(root, "tag", "--delete", "v0.1.0")
    assert last_release(root) == ""


def test_crds_outside_of_git_have_no_release(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    assert last_release(tmp_path) == ""
