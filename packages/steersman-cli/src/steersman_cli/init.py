"""``steersman init``: create a project."""

from __future__ import annotations

import re
import sys
from datetime import UTC, datetime
from importlib.metadata import version
from importlib.util import find_spec
from keyword import iskeyword
from pathlib import Path
from typing import Annotated, Literal

import typer

from steersman.errors import ConfigurationError
from steersman_cli.exit_codes import prompt_if_missing, report_errors
from steersman_cli.project import PROJECT_FILE, PROJECT_LAYOUT, Project, to_project_yaml
from steersman_cli.project_files import write_files
from steersman_cli.templating import TEMPLATE_SOURCE, release, render_template

License = Literal["apache2", "mit", "none"]

_DOMAIN_PATTERN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)+")
# The longest derived name is NAME-leader-election; names of Services have at most 63 characters.
_NAME_PATTERN = re.compile(r"[a-z]([-a-z0-9]{0,43}[a-z0-9])?")


def init(
    domain: Annotated[str | None, typer.Option(help="Domain of the API groups, such as example.com.")] = None,
    repo: Annotated[str, typer.Option(help="Repository of the project, such as example.com/shop.")] = "",
    project_name: Annotated[
        str, typer.Option(help="Name of the project. Defaults to the last part of --repo, or to the directory.")
    ] = "",
    owner: Annotated[str, typer.Option(help="Copyright owner.")] = "",
    license: Annotated[License, typer.Option(help="License in file headers.")] = "apache2",
    force: Annotated[bool, typer.Option("--force", help="Overwrite existing files.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the files that would be written.")] = False,
) -> None:
    """Create a project in the current directory.

    Example: steersman init --domain example.com --repo example.com/databaseuser

    Example: steersman init --domain example.com --project-name shop-operator --license none --dry-run
    """
    with report_errors():
        root = Path.cwd()
        if (root / PROJECT_FILE).exists() and not force:
            raise ConfigurationError(f"{PROJECT_FILE} exists: this directory is already a project")
        domain = prompt_if_missing(domain, "--domain", "Domain of the API groups, such as example.com", _domain_error)
        name = project_name or repo.rstrip("/").rpartition("/")[2] or root.name.lower()
        if not _NAME_PATTERN.fullmatch(name):
            raise ConfigurationError(
                f"{name!r} is not a valid project name: give --project-name, at most 45 of a-z, 0-9 and -"
            )
        package = name.replace("-", "_")
        if reason := _package_name_conflict(package, root):
            problem = f"{package!r} cannot be the name of your Python package, {reason}"
            raise ConfigurationError(f"{problem}: give --project-name")
        variables = {
            "domain": domain,
            "license": license,
            "owner": owner,
            "package": package,
            "project_name": name,
            "repo": repo,
            "steersman": steersman_requirement(),
            "template_source": TEMPLATE_SOURCE,
            "template_version": release(),
            "year": str(datetime.now(UTC).year),
        }
        content = {"domain": domain, "layout": [PROJECT_LAYOUT], "projectName": name, "repo": repo, "version": "3"}
        files = {PROJECT_FILE: to_project_yaml(content), **render_template("project", variables)}
        write_files(root, files, force=force, dry_run=dry_run, edits={})
        if not dry_run:
            _generate_manifests(root)
            typer.echo("\nNext: steersman create api --group GROUP --version v1alpha1 --kind KIND")


def steersman_requirement() -> str:
    """Return the version specifier of Steersman in new projects."""
    major, minor, *_ = version("steersman").split(".")
    return f">={version('steersman')},<{f'0.{int(minor) + 1}' if major == '0' else int(major) + 1}"


def _package_name_conflict(package: str, root: Path) -> str:
    """Return the reason why a package name cannot be used.

    The text starts with "because" and completes an error message. It is empty if the name can be used. A module below
    ``root`` is not a conflict.
    """
    if iskeyword(package):
        return "because it is a Python keyword"
    if package in sys.stdlib_module_names:
        return "because the standard library has a module of that name"
    spec = find_spec(package)
    if spec is None or spec.origin is None or Path(spec.origin).resolve().is_relative_to(root.resolve()):
        return ""
    return "because a module of that name is installed"


def _domain_error(domain: str) -> str | None:
    return None if _DOMAIN_PATTERN.fullmatch(domain) else "use a DNS name, such as example.com"


def _generate_manifests(root: Path) -> None:
    from steersman_cli.manifests import generate_in_subprocess

    generate_in_subprocess(Project.load(root))
