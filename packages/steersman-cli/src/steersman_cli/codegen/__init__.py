"""Code generation: typed Python modules from schemas.

``generate_package`` generates modules from CustomResourceDefinitions. ``steersman_manifests.crd.definition`` is the
reverse.
Each struct becomes a class to read, and a class for apply configurations. Schema keywords become markers.

``source`` and ``formatting`` render modules for this package and for ``scripts/generate_api``, which generates the
built-in kinds from OpenAPI documents. ``ruff format`` lays out the result.
"""

from steersman_cli.codegen.package import GeneratedPackage, generate_package

__all__ = ["GeneratedPackage", "generate_package"]
