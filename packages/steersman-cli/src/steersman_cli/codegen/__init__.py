"""Types of other people's kinds, from their definitions: the way back of ``steersman.crd``."""

from steersman_cli.codegen.package import Package, package

__all__ = ["Package", "package"]
