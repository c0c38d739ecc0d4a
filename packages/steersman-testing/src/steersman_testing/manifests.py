"""Manifests from wherever they are: types, objects, files, directories."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, TypeAlias

from steersman.client.documents import with_type
from steersman.crd import definitions
from steersman.errors import ConfigurationError
from steersman.meta import ApplyConfiguration, Object
from steersman.meta.manifests import Manifest, manifests_in

Source: TypeAlias = type[Object] | Mapping[str, Any] | Object | ApplyConfiguration[Any] | str | os.PathLike[str]
"""A custom resource type, of which the CRD is generated; a manifest; an object; or the path of a file or directory.

Of a directory its ``.yaml``, ``.yml`` and ``.json`` files are read, in the order of their names; not those of
directories in it. Files may hold several documents, and a directory files of other tools.
"""

DEFINITIONS = ("CustomResourceDefinition",)
_OF_OLD = "apiextensions.k8s.io/v1beta1"
WEBHOOKS = ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration")
"""Kinds that belong together."""


def manifests_from(sources: Iterable[Source], kinds: tuple[str, ...] = ()) -> list[Manifest]:
    """The manifests in ``sources``.

    Args:
        sources: where to look.
        kinds: those that are wanted; what else there is in a file is left out. Where it is empty, all are wanted, and
            there must be nothing else.

    Raises:
        ConfigurationError: a source does not exist, cannot be read, or has nothing that is wanted; names it.
    """
    given = list(sources)
    # Versions of one kind are one definition.
    types = [source for source in given if isinstance(source, type)]
    found: list[Manifest] = definitions(*types) if not kinds or set(kinds) & set(DEFINITIONS) else []
    for source in given:
        if found and isinstance(source, type):
            continue
        fitting = [m for m in _manifests(source, kinds) if not kinds or _is_wanted(m, kinds)]
        if not fitting and isinstance(source, Mapping) and source.get("apiVersion") == _OF_OLD:
            raise ConfigurationError(f"{_name(source)} is of {_OF_OLD}, which is not served: give its form of v1")
        if not fitting:
            raise ConfigurationError(f"{_name(source)} has no {' or '.join(kinds) or 'manifest'}")
        found += fitting
    return found


def _is_wanted(manifest: Manifest, kinds: tuple[str, ...]) -> bool:
    # The form for clusters of old, which `steersman manifests` can write beside that of today.
    return manifest.get("kind") in kinds and manifest.get("apiVersion") != _OF_OLD


def _name(source: Source) -> str:
    if isinstance(source, str | os.PathLike):
        return os.fspath(source)
    if isinstance(source, Mapping):
        return f"the manifest of kind {source.get('kind')!r}"
    return source.__name__ if isinstance(source, type) else type(source).__name__


def _manifests(source: Source, kinds: tuple[str, ...]) -> list[Manifest]:
    if isinstance(source, type):
        return definitions(source)
    if isinstance(source, Object | ApplyConfiguration):
        return [with_type(source)]
    if isinstance(source, Mapping):
        return [dict(source)]
    return manifests_in(Path(source), kinds)
