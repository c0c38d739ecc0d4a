"""Types of other people's kinds, from their definitions: the way back of ``steersman.crd``."""

from steersman_cli.codegen.package import GeneratedPackage, generate_package

__all__ = ["GeneratedPackage", "generate_package"]
