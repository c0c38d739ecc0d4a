"""Kubernetes manifests in files."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeAlias, cast

import yaml

from steersman.errors import ConfigurationError
from steersman.meta.documents import documents

Manifest: TypeAlias = dict[str, Any]
"""An object in wire form."""

_SUFFIXES = (".yaml", ".yml", ".json")


def manifests_in(place: Path, kinds: tuple[str, ...] = ()) -> list[Manifest]:
    """The manifests in the file or directory ``place``, lists taken apart.

    Of a directory its ``.yaml``, ``.yml`` and ``.json`` files are read, in the order of their names; not those of
    directories in it.

    Args:
        place: where to look; ``-`` is the standard input, as for kubectl.
        kinds: those that are wanted; what else there is is left out, files of other tools in a directory included.
            Where it is empty, all are wanted, and there must be nothing else.

    Raises:
        ConfigurationError: there is no such file, or it is no manifest; names it.
    """
    if not place.is_dir():
        return manifests_of(_content(place), str(place), kinds)
    files = {f: _content(f) for f in sorted(place.iterdir()) if f.suffix in _SUFFIXES and f.is_file()}
    # What does not even name a kind may be of another tool, and no YAML that can be read without it.
    named = [f for f, content in files.items() if not kinds or any(kind.encode() in content for kind in kinds)]
    return [m for file in named for m in manifests_of(files[file], str(file), kinds)]


def manifests_of(content: str | bytes, place: str, kinds: tuple[str, ...] = ()) -> list[Manifest]:
    """The manifests in ``content``, which comes from ``place``, as ``manifests_in``.

    Raises:
        ConfigurationError: it is no manifest.
    """
    try:
        found = list(documents(content))
    except yaml.YAMLError as error:
        raise ConfigurationError(f"cannot read {place}: {error}") from error
    items = [item for document in found if document is not None for item in _items(document)]
    wanted = [item for item in items if not kinds or _kind_of(item) in kinds]
    if not all(_is_object(item) for item in wanted):
        raise ConfigurationError(f"{place} is no Kubernetes manifest: an object has apiVersion and kind")
    return wanted


def _content(file: Path) -> bytes:
    try:
        return sys.stdin.buffer.read() if str(file) == "-" else file.read_bytes()
    except FileNotFoundError:
        raise ConfigurationError(f"{file} does not exist (looked for in {Path.cwd()})") from None
    except OSError as error:
        raise ConfigurationError(f"cannot read {file}: {error.strerror}") from None


def _is_object(item: Any) -> bool:
    return isinstance(item, dict) and {"apiVersion", "kind"} <= cast("Manifest", item).keys()


def _kind_of(item: Any) -> Any:
    return cast("Manifest", item).get("kind") if isinstance(item, dict) else None


def _items(document: Any) -> Iterator[Any]:
    if _kind_of(document) == "List":
        yield from (item for each in document.get("items") or () for item in _items(each))
    else:
        yield document
