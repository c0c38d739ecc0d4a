"""What users install an operator by, all of it made of the manifests in a project's ``config/``."""

from steersman.packages.about import About, Person
from steersman.packages.installation import COMPONENTS, IMAGE, Installation
from steersman.packages.kustomize import rendered

__all__ = ["COMPONENTS", "IMAGE", "About", "Installation", "Person", "rendered"]
