"""Manifests from wherever they are: types, objects, files, directories."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeAlias, cast

import yaml

from steersman.client.documents import with_type
from steersman.crd import definition
from steersman.errors import ConfigurationError
from steersman.meta import ApplyConfiguration, Object, Resource

Manifest: TypeAlias = dict[str, Any]
"""An object in wire form."""

Source: TypeAlias = (
    type[Resource[Any, Any]] | Mapping[str, Any] | Object | ApplyConfiguration[Any] | str | os.PathLike[str]
)
"""A custom resource type, of which the CRD is generated; a manifest; an object; or the path of a file or directory.

Of a directory its ``.yaml``, ``.yml`` and ``.json`` files are read, in the order of their names; not those of
directories in it. Files may hold several documents.
"""

_SUFFIXES = (".yaml", ".yml", ".json")


def manifests_from(sources: Iterable[Source], kinds: tuple[str, ...]) -> list[Manifest]:
    """The manifests of ``kinds`` in ``sources``; what else a file holds is left out.

    Raises:
        ConfigurationError: a source does not exist, cannot be read, or has none of ``kinds``; names it.
    """
    found: list[Manifest] = []
    for source in sources:
        fitting = [m for m in _manifests(source) if m.get("kind") in kinds]
        if not fitting:
            raise ConfigurationError(f"{_name(source)} has no {' or '.join(kinds)}")
        found += fitting
    return found


def _name(source: Source) -> str:
    if isinstance(source, str | os.PathLike):
        return os.fspath(source)
    if isinstance(source, Mapping):
        return f"the manifest of kind {source.get('kind')!r}"
    return source.__name__ if isinstance(source, type) else type(source).__name__


def _manifests(source: Source) -> list[Manifest]:
    if isinstance(source, type):
        return [definition(source)]
    if isinstance(source, Object | ApplyConfiguration):
        return [with_type(source)]
    if isinstance(source, Mapping):
        return [dict(source)]
    path = Path(source)
    if not path.exists():
        raise ConfigurationError(f"{path} does not exist (looked for in {Path.cwd()})")
    if path.is_file():
        return list(_documents(path))
    files = sorted(f for f in path.iterdir() if f.suffix in _SUFFIXES and f.is_file())
    return [m for file in files for m in _documents(file)]


def _documents(file: Path) -> Iterator[Manifest]:
    load_all = cast("Callable[..., Iterator[Any]]", yaml.load_all)
    try:
        with file.open("rb") as stream:
            for document in load_all(stream, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader)):
                if isinstance(document, dict):
                    yield from _items(cast("Manifest", document))
    except (OSError, yaml.YAMLError) as error:
        raise ConfigurationError(f"cannot read {file}: {error}") from None


def _items(document: Manifest) -> list[Manifest]:
    return document.get("items") or [] if document.get("kind") == "List" else [document]
