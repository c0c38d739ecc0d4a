"""``steersman update``: merge changes of the templates into a project with copier."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Annotated

import typer
import yaml

from steersman.errors import ConfigurationError
from steersman_cli.exit_codes import EXIT_CHECK_FAILED, report_errors
from steersman_cli.init import steersman_requirement
from steersman_cli.manifests import generate_in_subprocess
from steersman_cli.project import Project
from steersman_cli.templating import TEMPLATE_SOURCE, TEMPLATES, load_copier, release

HISTORY = TEMPLATES / "history.bundle"
"""Git bundle of the templates of earlier releases, one tag per release. The first release has none."""

_CONFLICT_MARKER = "<" * 7 + " before updating"


def update(
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the files that would change.")] = False,
) -> None:
    """Merge changes of the templates into the project.

    Commit your changes first. Exit codes: 0 success, 1 files have conflict markers, 2 the update is impossible.

    Example: steersman update --dry-run
    """
    with report_errors():
        project = Project.from_working_directory()
        conflicts = update_project(project, dry_run=dry_run)
    if conflicts:
        typer.echo(
            f"merge conflicts, because you and the templates changed the same lines: {', '.join(conflicts)}", err=True
        )
        raise typer.Exit(EXIT_CHECK_FAILED)
    if not dry_run:
        generate_in_subprocess(project)
        typer.echo("Review `git diff`, then run `make check test`.")


def update_project(project: Project, *, history: Path = HISTORY, dry_run: bool = False) -> list[str]:
    """Update ``project`` and return the files with conflict markers.

    Raises:
        ConfigurationError: git or copier is missing, the project has uncommitted changes, or the release of its
            templates is unknown.
    """
    load_copier()
    if shutil.which("git") is None:
        raise ConfigurationError("git is not in PATH: install it")
    if _git(project.root, "rev-parse", "--is-inside-work-tree", check=False) != "true":
        raise ConfigurationError("the project is not in a Git repository: run `git init` and commit it")
    if _git(project.root, "status", "--porcelain", "."):
        raise ConfigurationError("the project has uncommitted changes: commit or stash them")
    with tempfile.TemporaryDirectory() as directory:
        workspace = Path(directory)
        build_template_repository(workspace / "templates", history)
        current_version = _recorded_version(project)
        known_versions = _git(workspace / "templates", "tag").split()
        if current_version not in known_versions:
            raise ConfigurationError(
                f"the templates of {current_version} are unknown (known: {', '.join(known_versions)}): "
                "install a newer steersman-cli"
            )
        _run_copier(project, workspace, dry_run=dry_run)
    changed = _git(project.root, "status", "--porcelain", "--untracked-files=all", ".").splitlines()
    names = [line.strip().partition(" ")[2].strip() for line in changed]
    return [n for n in names if (project.root / n).is_file() and _CONFLICT_MARKER in (project.root / n).read_text()]


def build_template_repository(
    directory: Path, history: Path = HISTORY, templates: Path = TEMPLATES / "project"
) -> None:
    """Create a Git repository with one tag per release of the templates."""
    directory.mkdir()
    _git(directory, "init", "--quiet")
    if history.exists():
        _git(directory, "fetch", "--quiet", str(history), "refs/tags/*:refs/tags/*")
    shutil.copytree(templates, directory, dirs_exist_ok=True)
    # --force: a global gitignore of the user must not exclude templates.
    _git(directory, "add", "--all", "--force")
    _git(directory, "commit", "--quiet", "--no-verify", "--no-gpg-sign", "--message", release())
    _git(directory, "tag", "--force", release())


def _run_copier(project: Project, workspace: Path, *, dry_run: bool) -> None:
    """Run copier; Git's ``insteadOf`` maps the template URL to the repository."""
    # Variables that the old templates lack have defaults.
    data = {"steersman": steersman_requirement(), "template_source": TEMPLATE_SOURCE, "template_version": release()}
    command = [sys.executable, "-m", "copier", "update", "--defaults", "--quiet", "--vcs-ref", release()]
    command += [part for name, value in data.items() for part in ("--data", f"{name}={value}")]
    environment = {
        **os.environ,
        "COPIER_CACHE_DIR": str(workspace / "cache"),
        "GIT_CONFIG_COUNT": "1",
        "GIT_CONFIG_KEY_0": f"url.{(workspace / 'templates').as_uri()}.insteadOf",
        "GIT_CONFIG_VALUE_0": TEMPLATE_SOURCE,
    }
    if dry_run:
        command.append("--pretend")
        command.remove("--quiet")
    completed = subprocess.run(
        [*command, str(project.root)], env=environment, capture_output=not dry_run, text=True, check=False
    )
    if completed.returncode:
        raise ConfigurationError(f"copier failed: {(completed.stderr or '').strip()}")


def _recorded_version(project: Project) -> str:
    file = project.root / ".copier-answers.yml"
    try:
        return yaml.safe_load(file.read_text())["_commit"]
    except (OSError, KeyError, TypeError, yaml.YAMLError) as error:
        raise ConfigurationError(f"{file} has no _commit: the version of the templates is unknown") from error


def _git(directory: Path, *arguments: str, check: bool = True) -> str:
    identity = ("-c", "user.name=steersman", "-c", "user.email=steersman@localhost")
    completed = subprocess.run(
        ["git", *identity, *arguments], cwd=directory, capture_output=True, text=True, check=False
    )
    if check and completed.returncode:
        raise ConfigurationError(f"git {arguments[0]} failed: {completed.stderr.strip()}")
    return completed.stdout.strip()
