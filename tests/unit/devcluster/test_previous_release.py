"""Selection of the previous release by tags, and by the pinned commit."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from devcluster import previous_release
from devcluster.errors import Unsupported

PINNED = "operators/databases/previous-release.txt"


@pytest.fixture(autouse=True)
def git_identity(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for role in ("AUTHOR", "COMMITTER"):
        monkeypatch.setenv(f"GIT_{role}_NAME", "test")
        monkeypatch.setenv(f"GIT_{role}_EMAIL", "test@example.com")
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", "/dev/null")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    root = tmp_path / "repository"
    root.mkdir()
    git(root, "init", "--quiet")
    commit(root, "first")
    (root / PINNED).parent.mkdir(parents=True)
    (root / PINNED).write_text(f"# a comment\n{head(root)}\n")
    commit(root, "second")
    return root


def git(root: Path, *arguments: str) -> str:
    return subprocess.run(["git", "-C", str(root), *arguments], check=True, capture_output=True, text=True).stdout


def commit(root: Path, content: str) -> str:
    (root / "content").write_text(content)
    git(root, "add", ".")
    git(root, "commit", "--quiet", "--message", content)
    return head(root)


def head(root: Path) -> str:
    return git(root, "rev-parse", "HEAD").strip()


def test_commit_without_tag_is_pinned(repository: Path) -> None:
    git(repository, "tag", "nightly")
    commit(repository, "third")
    assert f"\n{previous_release.commit(repository)}\n" in (repository / PINNED).read_text()
    assert not previous_release.is_tagged(repository)


def test_commit_is_newest_tag_before_head(repository: Path) -> None:
    tagged: list[str] = []
    for version in ("v0.1.0", "v0.2.0", "v0.3.0"):
        tagged.append(commit(repository, version))
        git(repository, "tag", "--annotate", "--message", version, version)
    assert previous_release.commit(repository) == tagged[1], "HEAD is the present release"
    commit(repository, "next")
    assert previous_release.commit(repository) == tagged[2]
    assert previous_release.is_tagged(repository)


def test_shallow_clone_without_commit_raises(repository: Path, tmp_path: Path) -> None:
    shallow = tmp_path / "shallow"
    git(repository, "clone", "--quiet", "--depth", "1", f"file://{repository}", str(shallow))
    with pytest.raises(Unsupported, match=r"lacks the previous release, [0-9a-f]{40}: run git fetch"):
        previous_release.commit(shallow)


def test_checkout_has_files_of_previous_release(repository: Path) -> None:
    directory = previous_release.checkout(repository)
    assert (directory / "content").read_text() == "first"
    assert directory.name == previous_release.commit(repository)
    assert previous_release.checkout(repository) == directory, "it is cached"
