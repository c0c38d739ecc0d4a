"""Input of a bundle."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from steersman.manager import Manager
from steersman_cli.packaging.bundle.settings import BundleSettings
from steersman_cli.packaging.operator_manifests import OperatorManifests
from steersman_cli.packaging.project_metadata import ProjectMetadata
from steersman_manifests.manifest_files import Manifest


@dataclass(frozen=True)
class OperatorInfo:
    """The operator of a bundle.

    Attributes:
        root: directory of the project.
        metadata: metadata of the project, with the version of the bundle.
        domain: domain of the API groups.
        manifests: manifests in ``config/``.
        manager: manager with the registered controllers and webhooks.
        samples: sample objects of the kinds.
        image: image of the operator.
    """

    root: Path
    metadata: ProjectMetadata
    domain: str
    manifests: OperatorManifests
    manager: Manager
    samples: tuple[Manifest, ...]
    image: str


def package_name(operator: OperatorInfo, settings: BundleSettings) -> str:
    """Return the package name in catalogs."""
    return settings.package or operator.manifests.name
