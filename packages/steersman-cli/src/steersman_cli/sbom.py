"""``steersman sbom``: what is in the operator's image."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from steersman.errors import ConfigurationError
from steersman_cli.build import find_builder
from steersman_cli.exit_codes import report_errors
from steersman_cli.packaging import ProjectMetadata
from steersman_cli.project import Project
from steersman_cli.project_files import sync_files

_PIP_INSPECT = ("-m", "pip", "inspect", "--local")


def sbom(
    image: Annotated[
        str, typer.Option("--image", help="What is in this image; what an image would be made of now, unless given.")
    ] = "",
    builder: Annotated[
        str,
        typer.Option(help="podman, docker or buildah, which has it; the first that is there unless given."),
    ] = "",
    output: Annotated[Path, typer.Option("--output", "-o", help="The file, below the project.")] = Path(
        "dist/sbom.cdx.json"
    ),
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print it.")] = False,
) -> None:
    """Write a bill of materials: the Python packages of the image, as CycloneDX in JSON.

    Example: steersman sbom --image registry.example.com/databaseuser:v1

    Example: steersman sbom -o sbom.cdx.json
    """
    with report_errors():
        project = Project.from_working_directory()
        report = _inspect_image(image, find_builder(builder)) if image else _resolve_dependencies(project)
        text = _render_sbom(report, ProjectMetadata.read(project.root))
    sync_files(project.root, {output.as_posix(): text}, command="make sbom", check=False, dry_run=dry_run)


def _render_sbom(report: Any, metadata: ProjectMetadata) -> str:
    try:
        from steersman_cli.packaging.sbom import render_sbom
    except ImportError as error:
        raise ConfigurationError(f"this command needs more: pip install 'steersman[cli]' ({error})") from None
    return render_sbom(report, metadata)


def _resolve_dependencies(project: Project) -> Any:
    """pip's report of what the Containerfile would have it install, by the Python that runs this."""
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    wheels = project.root / "wheels"
    offline = ["--no-index", f"--find-links={wheels}"] if wheels.is_dir() else []
    return _run_json([*command, *offline, "--dry-run", "--ignore-installed", "--report=-", str(project.root)])


def _inspect_image(image: str, builder: str) -> Any:
    """What pip in the image tells of the packages there."""
    if builder != "buildah":
        return _run_json([builder, "run", "--rm", "--network=none", "--entrypoint=python3", image, *_PIP_INSPECT])
    container = _run(["buildah", "from", "--pull-never", image]).strip()
    try:
        return _run_json(["buildah", "run", "--network=none", container, "--", "python3", *_PIP_INSPECT])
    finally:
        _run(["buildah", "rm", container])


def _run_json(command: list[str]) -> Any:
    try:
        return json.loads(_run(command))
    except ValueError as error:
        raise ConfigurationError(f"`{' '.join(command[:3])}` gave no JSON: {error}") from None


def _run(command: list[str]) -> str:
    completed = subprocess.run(command, capture_output=True, text=True, check=False)
    if completed.returncode:
        reason = completed.stderr.strip() or f"exit code {completed.returncode}"
        raise ConfigurationError(f"`{' '.join(command[:3])}` failed: {reason}")
    return completed.stdout
