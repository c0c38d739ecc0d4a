"""No default inside the elements of a list: GitOps tools would report each such object as changed for ever."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from steersman_databases import api
from steersman_manifests.crd import definition

_FROM_KUBERNETES = {"imagePullSecrets[].name"}
"""The key of a list, which an element cannot be without."""


@pytest.mark.parametrize(
    "kind", [*api.CLUSTER_KINDS, api.Backup, api.BackupStore, api.Database, api.DatabaseUser, api.Restore]
)
def test_spec_list_elements_have_no_defaults(kind: type[Any]) -> None:
    version: Any = definition(kind)["spec"]["versions"][0]
    assert set(_defaults(version["schema"]["openAPIV3Schema"]["properties"]["spec"], "")) <= _FROM_KUBERNETES


def _defaults(schema: Mapping[str, Any], path: str) -> Iterator[str]:
    """Yield the paths of defaults inside lists."""
    if "default" in schema and "[]" in path:
        yield path
    for name, inner in schema.get("properties", {}).items():
        yield from _defaults(inner, f"{path}.{name}".removeprefix("."))
    if "items" in schema:
        yield from _defaults(schema["items"], f"{path}[]")
