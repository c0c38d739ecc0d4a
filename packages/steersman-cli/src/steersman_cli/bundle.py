"""``steersman bundle``: what the Operator Lifecycle Manager installs the operator by."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from steersman.meta.manifests import Manifest, manifests_in
from steersman_cli.ending import told_plainly
from steersman_cli.generated import settle
from steersman_cli.project import Project

if TYPE_CHECKING:
    from steersman_cli.packaging.bundle import Bundle, BundleSettings


def bundle(
    image: Annotated[str, typer.Option("--image", help="The operator's image, in a registry.")] = "",
    version: Annotated[str, typer.Option(help="Of the bundle, such as 1.2.3; the project's unless given.")] = "",
    channels: Annotated[str, typer.Option(help="In which it appears, separated by commas.")] = "",
    default_channel: Annotated[str, typer.Option(help="Of new subscriptions; the first unless given.")] = "",
    output: Annotated[Path, typer.Option("--output", "-o", help="The directory, below the project.")] = Path(
        "bundle"
    ),
    check: Annotated[
        bool, typer.Option("--check", help="Write nothing; exit code 1 and the difference if a file is stale.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print what would be written.")] = False,
) -> None:
    """Write an OLM bundle of what config/default deploys, and the Containerfile of its image.

    Exit codes: 0 all is well, 1 --check found a stale file, 2 the project says what cannot be.

    Example: steersman bundle --image registry.example.com/databaseuser:v1.0.0

    Example: steersman bundle --image registry.example.com/databaseuser:v1.0.0 --channels stable,candidate --check
    """
    with told_plainly():
        project = Project.here()
        place = project.root / output
        made = _made(project, image, version, _settings(project, channels, default_channel))
    for note in made.notes:
        typer.echo(f"cannot be expressed: {note}", err=True)
    files: dict[str, str | None] = {f"{place.name}/{path}": text for path, text in made.files.items()}
    files[f"{place.name}.Containerfile"] = made.containerfile
    gone = dict.fromkeys(name for name in _manifests(place) if name not in files)
    settle(place.parent, {**files, **gone}, again="make bundle", check=check, dry_run=dry_run)


def _settings(project: Project, channels: str, default_channel: str) -> BundleSettings:
    from steersman_cli.packaging.bundle import BundleSettings

    told: dict[str, Any] = {}
    if channels:
        told["channels"] = [c.strip() for c in channels.split(",")]
    if default_channel:
        told["default-channel"] = default_channel
    return BundleSettings.of({**project.settings.get("bundle", {}), **told})


def _made(project: Project, image: str, version: str, settings: BundleSettings) -> Bundle:
    from steersman_cli.manifests import declared_by
    from steersman_cli.packaging.about import About
    from steersman_cli.packaging.bundle import Operator, bundle

    about = About.read(project.root)
    operator = Operator(
        root=project.root,
        about=replace(about, version=version) if version else about,
        domain=project.domain,
        installation=project.installation(),
        manager=declared_by(project, project.webhooks()),
        samples=_samples(project),
        image=image or settings.image,
    )
    return bundle(operator, settings)


def _samples(project: Project) -> tuple[Manifest, ...]:
    directory = project.root / "config" / "samples"
    kinds = tuple(d["spec"]["names"]["kind"] for d in project.definitions())
    return tuple(manifests_in(directory, kinds)) if directory.is_dir() else ()


def _manifests(place: Path) -> list[str]:
    """What is there of a former bundle; all of its manifests would be installed."""
    return sorted(p.relative_to(place.parent).as_posix() for p in (place / "manifests").glob("*.yaml"))
