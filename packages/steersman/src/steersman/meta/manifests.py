"""Kubernetes manifests in files."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeAlias, cast

import yaml

from steersman.errors import ConfigurationError
from steersman.meta.yaml_codec import load_yaml_documents

Manifest: TypeAlias = dict[str, Any]
"""An object in wire form."""

_SUFFIXES = (".yaml", ".yml", ".json")


def load_manifests(path: Path, kinds: tuple[str, ...] = ()) -> list[Manifest]:
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
    if not path.is_dir():
        return parse_manifests(_read(path), str(path), kinds)
    files = {f: _read(f) for f in sorted(path.iterdir()) if f.suffix in _SUFFIXES and f.is_file()}
    # What does not even name a kind may be of another tool, and no YAML that can be read without it.
    relevant = [f for f, content in files.items() if not kinds or any(kind.encode() in content for kind in kinds)]
    return [m for file in relevant for m in parse_manifests(files[file], str(file), kinds)]


def parse_manifests(content: str | bytes, source: str, kinds: tuple[str, ...] = ()) -> list[Manifest]:
    """The manifests in ``content``, which comes from ``place``, as ``manifests_in``.

    Raises:
        ConfigurationError: it is no manifest.
    """
    try:
        found = list(load_yaml_documents(content))
    except yaml.YAMLError as error:
        raise ConfigurationError(f"cannot read {source}: {error}") from error
    items = [item for document in found if document is not None for item in _flatten_lists(document)]
    selected = [item for item in items if not kinds or _kind_of(item) in kinds]
    if not all(_has_type_meta(item) for item in selected):
        raise ConfigurationError(f"{source} is no Kubernetes manifest: an object has apiVersion and kind")
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
