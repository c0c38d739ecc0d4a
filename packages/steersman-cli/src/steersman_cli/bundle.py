"""``steersman bundle``: write a bundle for the Operator Lifecycle Manager (OLM)."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from steersman_cli.exit_codes import report_errors
from steersman_cli.project import Project
from steersman_cli.project_files import sync_files
from steersman_manifests.manifest_files import Manifest, load_manifests

if TYPE_CHECKING:
    from steersman_cli.packaging.bundle import Bundle, BundleSettings


def bundle(
    image: Annotated[
        str, typer.Option("--image", help="Image of the operator. Defaults to image in [tool.steersman.bundle].")
    ] = "",
    version: Annotated[str, typer.Option(help="Version of the bundle. Defaults to the version of the project.")] = "",
    channels: Annotated[
        str, typer.Option(help="Comma-separated channels. Defaults to channels in [tool.steersman.bundle].")
    ] = "",
    default_channel: Annotated[
        str, typer.Option(help="Channel of new subscriptions. Defaults to the first channel.")
    ] = "",
    output: Annotated[Path, typer.Option("--output", "-o", help="Output directory, relative to the project.")] = Path(
        "bundle"
    ),
    check: Annotated[
        bool, typer.Option("--check", help="Write nothing; print the differences and exit with 1 if a file is stale.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the files instead of writing them.")] = False,
) -> None:
    """Write an OLM bundle of config/default, and its Containerfile.

    Exit codes: 0 success, 1 --check found a stale file, 2 the project is invalid.

    Example: steersman bundle --image registry.example.com/databaseuser:v1.0.0

    Example: steersman bundle --image registry.example.com/databaseuser:v1.0.0 --channels stable,candidate --check
    """
    with report_errors():
        project = Project.from_working_directory()
        output_directory = project.root / output
        built = _build_bundle(project, image, version, _settings(project, channels, default_channel))
    for note in built.warnings:
        typer.echo(f"unsupported in a bundle: {note}", err=True)
    files: dict[str, str | None] = {f"{output_directory.name}/{path}": text for path, text in built.files.items()}
    files[f"{output_directory.name}.Containerfile"] = built.containerfile
    stale = dict.fromkeys(name for name in _existing_manifests(output_directory) if name not in files)
    sync_files(output_directory.parent, {**files, **stale}, command="make bundle", check=check, dry_run=dry_run)


def _settings(project: Project, channels: str, default_channel: str) -> BundleSettings:
    from steersman_cli.packaging.bundle import BundleSettings

    overrides: dict[str, Any] = {}
    if channels:
        overrides["channels"] = [c.strip() for c in channels.split(",")]
    if default_channel:
        overrides["default-channel"] = default_channel
    return BundleSettings.from_toml({**project.settings.get("bundle", {}), **overrides})


def _build_bundle(project: Project, image: str, version: str, settings: BundleSettings) -> Bundle:
    from steersman_cli.manifests import load_project_manager
    from steersman_cli.packaging.bundle import OperatorInfo, build_bundle
    from steersman_cli.packaging.project_metadata import ProjectMetadata

    metadata = ProjectMetadata.read(project.root)
    operator = OperatorInfo(
        root=project.root,
        metadata=replace(metadata, version=version) if version else metadata,
        domain=project.domain,
        manifests=project.installation(),
        manager=load_project_manager(project, project.load_webhook_serving()),
        samples=_samples(project),
        image=image or settings.image,
    )
    return build_bundle(operator, settings)


def _samples(project: Project) -> tuple[Manifest, ...]:
    directory = project.root / "config" / "samples"
    kinds = tuple(d["spec"]["names"]["kind"] for d in project.crd_manifests())
    return tuple(load_manifests(directory, kinds)) if directory.is_dir() else ()


def _existing_manifests(bundle_directory: Path) -> list[str]:
    """Return the manifests of the previous bundle. OLM would install stale ones."""
    return sorted(
        p.relative_to(bundle_directory.parent).as_posix() for p in (bundle_directory / "manifests").glob("*.yaml")
    )
