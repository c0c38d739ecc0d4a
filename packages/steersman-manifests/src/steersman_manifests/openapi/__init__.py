"""Published OpenAPI schemas of the built-in kinds, by name."""

from __future__ import annotations

from functools import cache
from importlib import resources
from typing import Any

import msgspec

REFERENCE_PREFIX = "#/components/schemas/"

_APIMACHINERY_PACKAGE = "io.k8s.apimachinery.pkg.apis.meta.v1"
_APIEXTENSIONS_PACKAGE = "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1"
_PACKAGES = {"meta_v1": _APIMACHINERY_PACKAGE, "apiextensions_v1": _APIEXTENSIONS_PACKAGE}


@cache
def published_schemas() -> dict[str, dict[str, Any]]:
    """Return the schemas by name, such as ``io.k8s.api.core.v1.Pod``. Do not modify the result."""
    found = msgspec.json.decode((resources.files("steersman_manifests.openapi") / "published.json").read_bytes())
    return {name: schema for name, schema in found.items() if name}


def published_schema_name(kind: type) -> str | None:
    """Return the schema name of a class in ``steersman.api``.

    None for any other class. ``published_schemas`` may lack the schema: it contains only kinds that are stored in
    etcd, and their parts.
    """
    package, _, module = kind.__module__.rpartition(".")
    if package != "steersman.api":
        return None
    group, _, version = module.rpartition("_")
    return f"{_PACKAGES.get(module, f'io.k8s.api.{group}.{version}')}.{kind.__name__}"
