"""Kubernetes manifests in files."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeAlias, cast

import yaml

from steersman.errors import ConfigurationError
from steersman_manifests.yaml_codec import load_yaml_documents

Manifest: TypeAlias = dict[str, Any]
"""Object in wire form."""

_SUFFIXES = (".yaml", ".yml", ".json")


def load_manifests(path: Path, kinds: tuple[str, ...] = ()) -> list[Manifest]:
    """Load the manifests of a file or directory. Lists are flattened.

    In a directory, the ``.yaml``, ``.yml`` and ``.json`` files are read in alphabetical order. Subdirectories are
    ignored.

    Args:
        path: file or directory. ``-`` is the standard input, as in kubectl.
        kinds: kinds to return. Other documents are ignored, even if they are not manifests. Defaults to all kinds;
            then each document must be a manifest.

    Raises:
        ConfigurationError: the file does not exist or is not a manifest. The message names it.
    """
    if not path.is_dir():
        return parse_manifests(_read(path), str(path), kinds)
    files = {f: _read(f) for f in sorted(path.iterdir()) if f.suffix in _SUFFIXES and f.is_file()}
    # A file that does not mention a kind may belong to another tool, and may not even be valid YAML.
    relevant = [f for f, content in files.items() if not kinds or any(kind.encode() in content for kind in kinds)]
    return [m for file in relevant for m in parse_manifests(files[file], str(file), kinds)]


def parse_manifests(content: str | bytes, source: str, kinds: tuple[str, ...] = ()) -> list[Manifest]:
    """Parse manifests, like ``load_manifests``.

    Args:
        content: YAML or JSON documents.
        source: origin of the content, for error messages.
        kinds: kinds to return. Defaults to all kinds.

    Raises:
        ConfigurationError: a document is not a manifest.
    """
    try:
        found = list(load_yaml_documents(content))
    except yaml.YAMLError as error:
        raise ConfigurationError(f"cannot read {source}: {error}") from error
    items = [item for document in found if document is not None for item in _flatten_lists(document)]
    selected = [item for item in items if not kinds or _kind_of(item) in kinds]
    if not all(_has_type_meta(item) for item in selected):
        raise ConfigurationError(f"{source} is not a Kubernetes manifest: set apiVersion and kind on every object")
    return selected


def _read(file: Path) -> bytes:
    try:
        return sys.stdin.buffer.read() if str(file) == "-" else file.read_bytes()
    except FileNotFoundError:
        raise ConfigurationError(f"{file} does not exist (looked for in {Path.cwd()})") from None
    except OSError as error:
        raise ConfigurationError(f"cannot read {file}: {error.strerror}") from None


def _has_type_meta(item: Any) -> bool:
    return isinstance(item, dict) and {"apiVersion", "kind"} <= cast("Manifest", item).keys()


def _kind_of(item: Any) -> Any:
    return cast("Manifest", item).get("kind") if isinstance(item, dict) else None


def _flatten_lists(document: Any) -> Iterator[Any]:
    if _kind_of(document) == "List":
        yield from (item for each in document.get("items") or () for item in _flatten_lists(each))
    else:
        yield document
