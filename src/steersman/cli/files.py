"""Kubernetes manifests in files."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import yaml

from steersman.errors import ConfigurationError
from steersman.meta.documents import documents

_SUFFIXES = (".yaml", ".yml", ".json")


def manifests_in(place: Path) -> Iterator[dict[str, Any]]:
    """The objects in the file or directory ``place``, lists taken apart; ``-`` is the standard input.

    Raises:
        ConfigurationError: there is no such file, or it is no manifest.
    """
    files = sorted(f for f in place.iterdir() if f.suffix in _SUFFIXES) if place.is_dir() else [place]
    if not files:
        raise ConfigurationError(f"{place} has no {' or '.join(_SUFFIXES)} file")
    for file in files:
        try:
            text = sys.stdin.read() if str(file) == "-" else file.read_text()
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigurationError(f"cannot read {file}: {error}") from error
        yield from manifests_of(text, str(file))


def manifests_of(text: str, place: str) -> Iterator[dict[str, Any]]:
    """The objects in ``text``, which comes from ``place``, lists taken apart.

    Raises:
        ConfigurationError: it is no manifest.
    """
    try:
        found = list(documents(text))
    except yaml.YAMLError as error:
        raise ConfigurationError(f"cannot read {place}: {error}") from error
    for document in found:
        yield from _objects(document, place)


def _objects(document: Any, place: str) -> Iterator[dict[str, Any]]:
    if document is None:
        return
    if not isinstance(document, dict) or "kind" not in document:
        raise ConfigurationError(f"{place} is no Kubernetes manifest: an object has apiVersion and kind")
    found = cast("dict[str, Any]", document)
    if found["kind"] == "List":
        yield from (o for item in found.get("items") or () for o in _objects(item, place))
    else:
        yield found
