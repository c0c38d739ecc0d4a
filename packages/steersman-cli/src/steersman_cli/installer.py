"""``steersman installer``: write all manifests into one file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from steersman_cli.exit_codes import report_errors
from steersman_cli.project import Project
from steersman_cli.project_files import sync_files
from steersman_manifests.yaml_codec import dump_yaml


def installer(
    image: Annotated[
        str, typer.Option("--image", help="Image of the operator, such as registry.example.com/shop:v1.")
    ],
    output: Annotated[Path, typer.Option("--output", "-o", help="Output file, relative to the project.")] = Path(
        "dist/install.yaml"
    ),
    check: Annotated[
        bool, typer.Option("--check", help="Write nothing; print the difference and exit with 1 if it is stale.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the files instead of writing them.")] = False,
) -> None:
    """Write the manifests of config/default into one file.

    The file is for kubectl apply. The command needs kubectl or kustomize.

    Example: steersman installer --image registry.example.com/databaseuser:v1

    Example: steersman installer --image registry.example.com/databaseuser:v1 -o install.yaml --check
    """
    with report_errors():
        project = Project.from_working_directory()
        manifests = project.installation().with_image(image)
    head = f"# {project.name}, for: kubectl apply --server-side -f {output.name}\n"
    text = head + "".join(f"---\n{dump_yaml(m)}" for m in manifests)
    sync_files(project.root, {output.as_posix(): text}, command="make build-installer", check=check, dry_run=dry_run)
