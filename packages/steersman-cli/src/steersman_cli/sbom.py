"""``steersman sbom``: what is in the operator's image."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from steersman.errors import ConfigurationError
from steersman_cli.build import chosen
from steersman_cli.ending import told_plainly
from steersman_cli.generated import settle
from steersman_cli.packaging import About
from steersman_cli.project import Project

_INSPECT = ("-m", "pip", "inspect", "--local")


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
    with told_plainly():
        project = Project.here()
        report = _in_image(image, chosen(builder)) if image else _to_be_installed(project)
        text = _bill_of_materials(report, About.read(project.root))
    settle(project.root, {output.as_posix(): text}, again="make sbom", check=False, dry_run=dry_run)


def _bill_of_materials(report: Any, about: About) -> str:
    try:
        from steersman_cli.packaging.sbom import bill_of_materials
    except ImportError as error:
        raise ConfigurationError(f"this command needs more: pip install 'steersman[cli]' ({error})") from None
    return bill_of_materials(report, about)


def _to_be_installed(project: Project) -> Any:
    """pip's report of what the Containerfile would have it install, by the Python that runs this."""
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    wheels = project.root / "wheels"
    offline = ["--no-index", f"--find-links={wheels}"] if wheels.is_dir() else []
    return _told([*command, *offline, "--dry-run", "--ignore-installed", "--report=-", str(project.root)])


def _in_image(image: str, builder: str) -> Any:
    """What pip in the image tells of the packages there."""
    if builder != "buildah":
        return _told([builder, "run", "--rm", "--network=none", "--entrypoint=python3", image, *_INSPECT])
    container = _output(["buildah", "from", "--pull-never", image]).strip()
    try:
        return _told(["buildah", "run", "--network=none", container, "--", "python3", *_INSPECT])
    finally:
        _output(["buildah", "rm", container])


def _told(command: list[str]) -> Any:
    try:
        return json.loads(_output(command))
    except ValueError as error:
        raise ConfigurationError(f"`{' '.join(command[:3])}` gave no JSON: {error}") from None


def _output(command: list[str]) -> str:
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    if ended.returncode:
        reason = ended.stderr.strip() or f"exit code {ended.returncode}"
        raise ConfigurationError(f"`{' '.join(command[:3])}` failed: {reason}")
    return ended.stdout
