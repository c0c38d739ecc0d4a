"""Manifests from wherever they are: types, objects, files, directories."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeAlias, cast

import yaml

from steersman.client.documents import with_type
from steersman.crd import definitions
from steersman.errors import ConfigurationError
from steersman.meta import ApplyConfiguration, Object
from steersman.meta.documents import documents

Manifest: TypeAlias = dict[str, Any]
"""An object in wire form."""

Source: TypeAlias = type[Object] | Mapping[str, Any] | Object | ApplyConfiguration[Any] | str | os.PathLike[str]
"""A custom resource type, of which the CRD is generated; a manifest; an object; or the path of a file or directory.

Of a directory its ``.yaml``, ``.yml`` and ``.json`` files are read, in the order of their names; not those of
directories in it. Files may hold several documents, and a directory files of other tools.
"""

DEFINITIONS = ("CustomResourceDefinition",)
WEBHOOKS = ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration")
"""Kinds that belong together."""

_SUFFIXES = (".yaml", ".yml", ".json")


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
        fitting = [m for m in _manifests(source, kinds) if not kinds or m.get("kind") in kinds]
        if not fitting:
            raise ConfigurationError(f"{_name(source)} has no {' or '.join(kinds) or 'manifest'}")
        found += fitting
    return found


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
    path = Path(source)
    if not path.exists():
        raise ConfigurationError(f"{path} does not exist (looked for in {Path.cwd()})")
    if path.is_file():
        return list(_documents(path, _content(path), strict=not kinds))
    files = {f: _content(f) for f in sorted(path.iterdir()) if f.suffix in _SUFFIXES and f.is_file()}
    # What does not even name a kind may be of another tool, and no YAML that can be read without it.
    named = [f for f, content in files.items() if not kinds or any(kind.encode() in content for kind in kinds)]
    return [m for file in named for m in _documents(file, files[file], strict=not kinds)]


def _content(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError as error:
        raise ConfigurationError(f"cannot read {file}: {error.strerror}") from None


def _documents(file: Path, content: bytes, *, strict: bool) -> Iterator[Manifest]:
    """The manifests of a file; ``strict``: whatever else is in it is an error."""
    try:
        found = list(documents(content))
    except yaml.YAMLError as error:
        raise ConfigurationError(f"cannot read {file}: {error}") from None
    for document in (d for d in found if d is not None):
        for each in _items(document):
            if isinstance(each, dict):
                manifest = cast("Manifest", each)
                if not strict or {"apiVersion", "kind"} <= manifest.keys():
                    yield manifest
                    continue
            if strict:
                raise ConfigurationError(f"{file} is no Kubernetes manifest: an object has apiVersion and kind")


def _items(document: Any) -> list[Any]:
    if isinstance(document, dict) and (found := cast("Manifest", document)).get("kind") == "List":
        return found.get("items") or []
    return [document]
