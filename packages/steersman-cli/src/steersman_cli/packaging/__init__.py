"""What users install an operator by, all of it made of the manifests in a project's ``config/``."""

from steersman_cli.packaging.about import About, Person
from steersman_cli.packaging.installation import COMPONENTS, IMAGE, Installation
from steersman_cli.packaging.kustomize import rendered

__all__ = ["COMPONENTS", "IMAGE", "About", "Installation", "Person", "rendered"]
