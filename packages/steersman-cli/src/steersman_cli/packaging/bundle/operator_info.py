"""What goes into a bundle."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from steersman.manager import Manager
from steersman.meta.manifests import Manifest
from steersman_cli.packaging.bundle.settings import BundleSettings
from steersman_cli.packaging.operator_manifests import OperatorManifests
from steersman_cli.packaging.project_metadata import ProjectMetadata


@dataclass(frozen=True)
class OperatorInfo:
    """What is packaged.

    Attributes:
        root: the project's directory, which names of files are relative to.
        about: what it says of itself, with the version of the bundle.
        domain: of its API groups.
        installation: what ``config/`` deploys.
        manager: to which its controllers and webhooks were declared.
        samples: of its kinds.
        image: of its container.
    """

    root: Path
    metadata: ProjectMetadata
    domain: str
    manifests: OperatorManifests
    manager: Manager
    samples: tuple[Manifest, ...]
    image: str


def package_name(operator: OperatorInfo, settings: BundleSettings) -> str:
    """By which catalogs know it."""
    return settings.package or operator.manifests.name
