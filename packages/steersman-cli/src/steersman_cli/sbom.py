"""``steersman sbom``: write a software bill of materials (SBOM) of the image."""

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
        str, typer.Option("--image", help="Image to inspect. Defaults to the packages that pip would install now.")
    ] = "",
    builder: Annotated[
        str,
        typer.Option(help="podman, docker or buildah. Defaults to the first one installed."),
    ] = "",
    output: Annotated[Path, typer.Option("--output", "-o", help="Output file, relative to the project.")] = Path(
        "dist/sbom.cdx.json"
    ),
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the SBOM instead of writing it.")] = False,
) -> None:
    """Write the Python packages of the image as a CycloneDX SBOM.

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
        raise ConfigurationError(
            f"cannot import a required package ({error}): pip install 'steersman[cli]'"
        ) from None
    return render_sbom(report, metadata)


def _resolve_dependencies(project: Project) -> Any:
    """Return pip's report of the packages that the Containerfile would install."""
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    wheels = project.root / "wheels"
    offline = ["--no-index", f"--find-links={wheels}"] if wheels.is_dir() else []
    return _run_json([*command, *offline, "--dry-run", "--ignore-installed", "--report=-", str(project.root)])


def _inspect_image(image: str, builder: str) -> Any:
    """Return the report of ``pip inspect`` in the image."""
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
        raise ConfigurationError(f"`{' '.join(command[:3])}` printed invalid JSON: {error}") from None


def _run(command: list[str]) -> str:
    completed = subprocess.run(command, capture_output=True, text=True, check=False)
    if completed.returncode:
        reason = completed.stderr.strip() or f"exit code {completed.returncode}"
        raise ConfigurationError(f"`{' '.join(command[:3])}` failed: {reason}")
    return completed.stdout
