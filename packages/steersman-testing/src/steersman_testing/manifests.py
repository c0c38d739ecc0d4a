"""Manifests from types, objects, files and directories."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, TypeAlias

from steersman.client.encode import with_type_meta
from steersman.errors import ConfigurationError
from steersman.meta import ApplyConfiguration, Object
from steersman_manifests.crd import definitions
from steersman_manifests.manifest_files import Manifest, load_manifests

ManifestSource: TypeAlias = (
    type[Object] | Mapping[str, Any] | Object | ApplyConfiguration[Any] | str | os.PathLike[str]
)
"""A type, manifest, object, or the path of a file or directory.

The CRD of a custom resource type is generated.

In a directory the ``.yaml``, ``.yml`` and ``.json`` files are read in the order of their names, without
subdirectories. A file may contain several documents.
"""

CRD_KINDS = ("CustomResourceDefinition",)
_V1BETA1 = "apiextensions.k8s.io/v1beta1"
WEBHOOK_KINDS = ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration")
"""Kinds of webhook configurations."""


def collect_manifests(sources: Iterable[ManifestSource], kinds: tuple[str, ...] = ()) -> list[Manifest]:
    """Collect the manifests in ``sources``.

    Args:
        sources: types, objects, manifests and paths.
        kinds: kinds to select. Other manifests in files are ignored. Empty: all manifests.

    Raises:
        ConfigurationError: if a source does not exist, is unreadable or contains no selected kind.
    """
    source_list = list(sources)
    # Versions of one kind share one CustomResourceDefinition.
    types = [source for source in source_list if isinstance(source, type)]
    found: list[Manifest] = definitions(*types) if not kinds or set(kinds) & set(CRD_KINDS) else []
    for source in source_list:
        if found and isinstance(source, type):
            continue
        selected = [m for m in _read_source(source, kinds) if not kinds or _matches_kinds(m, kinds)]
        if not selected and isinstance(source, Mapping) and source.get("apiVersion") == _V1BETA1:
            raise ConfigurationError(
                f"{_describe_source(source)} is of {_V1BETA1}, which is not served: use apiextensions.k8s.io/v1"
            )
        if not selected:
            raise ConfigurationError(f"{_describe_source(source)} has no {' or '.join(kinds) or 'manifest'}")
        found += selected
    return found


def _matches_kinds(manifest: Manifest, kinds: tuple[str, ...]) -> bool:
    # `steersman manifests` can also write v1beta1 for old clusters.
    return manifest.get("kind") in kinds and manifest.get("apiVersion") != _V1BETA1


def _describe_source(source: ManifestSource) -> str:
    if isinstance(source, str | os.PathLike):
        return os.fspath(source)
    if isinstance(source, Mapping):
        return f"the manifest of kind {source.get('kind')!r}"
    return source.__name__ if isinstance(source, type) else type(source).__name__


def _read_source(source: ManifestSource, kinds: tuple[str, ...]) -> list[Manifest]:
    if isinstance(source, type):
        return definitions(source)
    if isinstance(source, Object | ApplyConfiguration):
        return [with_type_meta(source)]
    if isinstance(source, Mapping):
        return [dict(source)]
    return load_manifests(Path(source), kinds)
