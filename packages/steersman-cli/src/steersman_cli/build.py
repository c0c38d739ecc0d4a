"""``steersman build``: build the image of the operator."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Annotated

import typer

from steersman.errors import ConfigurationError
from steersman_cli.exit_codes import EXIT_CHECK_FAILED, report_errors
from steersman_cli.project import Project

BUILDERS = ("podman", "docker", "buildah")


def build(
    image: Annotated[str, typer.Option("--image", help="Name of the image, such as registry.example.com/shop:v1.")],
    builder: Annotated[
        str, typer.Option(help="podman, docker or buildah. Defaults to the first one installed.")
    ] = "",
    build_arg: Annotated[
        list[str] | None,
        typer.Option(help="NAME=VALUE of a build argument, such as BASE=python:3.12-slim. Repeatable."),
    ] = None,
    file: Annotated[Path, typer.Option(help="Containerfile, relative to the project.")] = Path("Containerfile"),
    directory: Annotated[Path, typer.Option(help="Build context, relative to the project.")] = Path(),
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the command instead of running it.")] = False,
) -> None:
    """Build the project's Containerfile, or another one.

    Example: steersman build --image registry.example.com/databaseuser:v1

    Example: steersman build --image databaseuser:dev --builder buildah --build-arg BASE=python:3.12-slim

    Example: steersman build --image shop-bundle:v1 --file bundle.Containerfile --directory bundle
    """
    with report_errors():
        project = Project.from_working_directory()
        tool = find_builder(builder)
        arguments = [a for given in build_arg or () for a in ("--build-arg", given)]
        containerfile, context = str(project.root / file), str(project.root / directory)
        command = [tool, "build", "--tag", image, "--file", containerfile, *arguments, context]
    if dry_run:
        typer.echo(" ".join(command))
        return
    if code := subprocess.run(command, check=False).returncode:
        typer.echo(f"steersman: {tool} failed with exit code {code}", err=True)
        raise typer.Exit(EXIT_CHECK_FAILED)


def find_builder(builder: str) -> str:
    """Return the builder to use.

    Raises:
        ConfigurationError: no builder is installed, or none is usable.
    """
    if builder:
        if not shutil.which(builder):
            raise ConfigurationError(f"{builder} is not in PATH")
        return builder
    installed = [b for b in BUILDERS if shutil.which(b)]
    if not installed:
        raise ConfigurationError(f"none of {', '.join(BUILDERS)} is in PATH: install one of them")
    if usable := next((b for b in installed if _is_usable(b)), ""):
        return usable
    raise ConfigurationError("the docker daemon does not respond: start it, or install podman or buildah")


def _is_usable(builder: str) -> bool:
    """Return True if the builder is usable: docker needs its daemon."""
    if builder != "docker":
        return True
    return subprocess.run(["docker", "info"], capture_output=True, check=False).returncode == 0
