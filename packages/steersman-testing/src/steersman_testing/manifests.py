"""Manifests from wherever they are: types, objects, files, directories."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, TypeAlias

from steersman.client.encode import with_type_meta
from steersman.crd import definitions
from steersman.errors import ConfigurationError
from steersman.meta import ApplyConfiguration, Object
from steersman.meta.manifests import Manifest, load_manifests

ManifestSource: TypeAlias = (
    type[Object] | Mapping[str, Any] | Object | ApplyConfiguration[Any] | str | os.PathLike[str]
)
"""A custom resource type, of which the CRD is generated; a manifest; an object; or the path of a file or directory.

Of a directory its ``.yaml``, ``.yml`` and ``.json`` files are read, in the order of their names; not those of
directories in it. Files may hold several documents, and a directory files of other tools.
"""

CRD_KINDS = ("CustomResourceDefinition",)
_V1BETA1 = "apiextensions.k8s.io/v1beta1"
WEBHOOK_KINDS = ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration")
"""Kinds that belong together."""


def collect_manifests(sources: Iterable[ManifestSource], kinds: tuple[str, ...] = ()) -> list[Manifest]:
    """The manifests in ``sources``.

    Args:
        sources: where to look.
        kinds: those that are wanted; what else there is in a file is left out. Where it is empty, all are wanted, and
            there must be nothing else.

    Raises:
        ConfigurationError: a source does not exist, cannot be read, or has nothing that is wanted; names it.
    """
    source_list = list(sources)
    # Versions of one kind are one definition.
    types = [source for source in source_list if isinstance(source, type)]
    found: list[Manifest] = definitions(*types) if not kinds or set(kinds) & set(CRD_KINDS) else []
    for source in source_list:
        if found and isinstance(source, type):
            continue
        selected = [m for m in _read_source(source, kinds) if not kinds or _matches_kinds(m, kinds)]
        if not selected and isinstance(source, Mapping) and source.get("apiVersion") == _V1BETA1:
            raise ConfigurationError(
                f"{_describe_source(source)} is of {_V1BETA1}, which is not served: give its form of v1"
            )
        if not selected:
            raise ConfigurationError(f"{_describe_source(source)} has no {' or '.join(kinds) or 'manifest'}")
        found += selected
    return found


def _matches_kinds(manifest: Manifest, kinds: tuple[str, ...]) -> bool:
    # The form for clusters of old, which `steersman manifests` can write beside that of today.
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
