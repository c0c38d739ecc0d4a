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
OLD_README_LINE = "make test               # unit tests, as they were"


def git(root: Path, *arguments: str) -> None:
    identity = ("-c", "user.name=Jane", "-c", "user.email=jane@example.com")
    subprocess.run(["git", *identity, *arguments], cwd=root, check=True, capture_output=True)


@pytest.fixture
def history(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Create a Git bundle with the templates of an older release."""
    templates = Path(shutil.copytree(TEMPLATES / "project", tmp_path / "templates"))
    readme = templates / "files" / "README.md.jinja"
    readme.write_text(readme.read_text().replace("make test               # unit tests, in memory", OLD_README_LINE))
    with monkeypatch.context() as patch:
        patch.setattr(update, "release", lambda: "v0.0.1")
        update.build_template_repository(tmp_path / "repository", tmp_path / "none", templates)
    git(tmp_path / "repository", "bundle", "create", str(tmp_path / "history"), "--tags")
    return tmp_path / "history"


@pytest.fixture
def old_project(project: Path) -> Path:
    """A committed project, created by the older release."""
    readme, answers = project / README, project / ".copier-answers.yml"
    readme.write_text(readme.read_text().replace("make test               # unit tests, in memory", OLD_README_LINE))
    answers.write_text(answers.read_text().replace(release(), "v0.0.1"))
    git(project, "init")
    commit(project)
    return project


def commit(root: Path) -> None:
    git(root, "add", "--all")
    git(root, "commit", "--message", "mine")


def test_update_merges_template_and_keeps_user_changes(old_project: Path, history: Path) -> None:
    readme, main = old_project / README, old_project / "src/databaseuser/main.py"
    readme.write_text(f"{readme.read_text()}\nMine.\n")
    main.write_text(main.read_text().replace('"""Which controllers', '"""Mine: which controllers'))
    code = main.read_text()
    commit(old_project)
    assert update.update_project(Project.load(old_project), history=history) == []
    assert OLD_README_LINE not in readme.read_text()
    assert "unit tests, in memory" in readme.read_text()
    assert readme.read_text().endswith("\nMine.\n")
    assert main.read_text() == code
    assert f"_commit: {release()}" in (old_project / ".copier-answers.yml").read_text()
    commit(old_project)
    assert update.update_project(Project.load(old_project), history=history) == []


def test_update_marks_conflicting_lines(old_project: Path, history: Path) -> None:
    readme = old_project / README
    readme.write_text(readme.read_text().replace(OLD_README_LINE, "make test  # mine"))
    commit(old_project)
    assert update.update_project(Project.load(old_project), history=history) == [README]
    assert "make test  # mine" in readme.read_text()


def test_update_dry_run_changes_no_files(old_project: Path, history: Path) -> None:
    before = (old_project / README).read_text()
    assert update.update_project(Project.load(old_project), history=history, dry_run=True) == []
    assert (old_project / README).read_text() == before


def test_update_requires_known_version_and_git(old_project: Path, project: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"the templates of v0\.0\.1 are unknown"):
        update.update_project(Project.load(old_project), history=tmp_path / "none")
    (old_project / README).write_text("mine")
    result = steersman(old_project, "update")
    assert result.returncode == 2
    assert "uncommitted changes" in result.stderr
    shutil.rmtree(project / ".git")
    assert "not in a Git repository" in steersman(project, "update").stderr
