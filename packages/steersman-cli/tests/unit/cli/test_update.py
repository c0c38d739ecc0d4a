"""``steersman update``: new templates, and changes of the user."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from framework_support.projects import steersman
from steersman.errors import ConfigurationError
from steersman_cli import update
from steersman_cli.project import Project
from steersman_cli.templating import TEMPLATES, release

README = "README.md"
OLD = "make test               # unit tests, as they were"


def git(root: Path, *arguments: str) -> None:
    identity = ("-c", "user.name=Jane", "-c", "user.email=jane@example.com")
    subprocess.run(["git", *identity, *arguments], cwd=root, check=True, capture_output=True)


@pytest.fixture
def history(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A bundle with the templates of an older release, in which the README was another."""
    templates = Path(shutil.copytree(TEMPLATES / "project", tmp_path / "templates"))
    readme = templates / "files" / "README.md.jinja"
    readme.write_text(readme.read_text().replace("make test               # unit tests, in memory", OLD))
    with monkeypatch.context() as patch:
        patch.setattr(update, "release", lambda: "v0.0.1")
        update.repository(tmp_path / "repository", tmp_path / "none", templates)
    git(tmp_path / "repository", "bundle", "create", str(tmp_path / "history"), "--tags")
    return tmp_path / "history"


@pytest.fixture
def old(project: Path) -> Path:
    """A project that the older release made, committed."""
    readme, answers = project / README, project / ".copier-answers.yml"
    readme.write_text(readme.read_text().replace("make test               # unit tests, in memory", OLD))
    answers.write_text(answers.read_text().replace(release(), "v0.0.1"))
    git(project, "init")
    commit(project)
    return project


def commit(root: Path) -> None:
    git(root, "add", "--all")
    git(root, "commit", "--message", "mine")


def test_what_is_new_comes_and_what_is_mine_stays(old: Path, history: Path) -> None:
    readme, main = old / README, old / "src/databaseuser/main.py"
    readme.write_text(f"{readme.read_text()}\nMine.\n")
    main.write_text(main.read_text().replace('"""Which controllers', '"""Mine: which controllers'))
    code = main.read_text()
    commit(old)
    assert update.updated(Project.at(old), history=history) == []
    assert OLD not in readme.read_text()
    assert "unit tests, in memory" in readme.read_text()
    assert readme.read_text().endswith("\nMine.\n")
    assert main.read_text() == code
    assert f"_commit: {release()}" in (old / ".copier-answers.yml").read_text()
    commit(old)
    assert update.updated(Project.at(old), history=history) == []


def test_the_same_lines_are_marked(old: Path, history: Path) -> None:
    readme = old / README
    readme.write_text(readme.read_text().replace(OLD, "make test  # mine"))
    commit(old)
    assert update.updated(Project.at(old), history=history) == [README]
    assert "make test  # mine" in readme.read_text()


def test_a_dry_run_changes_nothing(old: Path, history: Path) -> None:
    before = (old / README).read_text()
    assert update.updated(Project.at(old), history=history, dry_run=True) == []
    assert (old / README).read_text() == before


def test_what_must_be_there(old: Path, project: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"the templates of v0\.0\.1 are not known here"):
        update.updated(Project.at(old), history=tmp_path / "none")
    (old / README).write_text("mine")
    ended = steersman(old, "update")
    assert ended.returncode == 2
    assert "something is not committed" in ended.stderr
    shutil.rmtree(project / ".git")
    assert "not in git" in steersman(project, "update").stderr
