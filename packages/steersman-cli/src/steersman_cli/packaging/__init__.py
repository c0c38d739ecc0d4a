"""Packages of an operator: Helm chart, OLM bundle and SBOM."""

from steersman_cli.packaging.kustomize import build_kustomization
from steersman_cli.packaging.operator_manifests import OPTIONAL_COMPONENTS, PLACEHOLDER_IMAGE, OperatorManifests
from steersman_cli.packaging.project_metadata import Maintainer, ProjectMetadata

__all__ = [
    "OPTIONAL_COMPONENTS",
    "PLACEHOLDER_IMAGE",
    "Maintainer",
    "OperatorManifests",
    "ProjectMetadata",
    "build_kustomization",
]
