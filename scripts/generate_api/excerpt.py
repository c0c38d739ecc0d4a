"""The part of the documents that the generator reads, small enough to be test data."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import model
from documents import GROUP_VERSIONS, KIND, VERBS, Documents, file_name

from steersman_cli.codegen.names import sentence


def save(found: Documents, directory: Path, only: list[str] | None) -> None:
    """Writes one file a document; the modules made from them are the same as from the whole."""
    directory.mkdir(parents=True, exist_ok=True)
    for module in only or found:
        document = found[module]
        api = model.read({module: document})
        kept = model.reachable(list(api.locations), api.structs)
        schemas = document["components"]["schemas"]
        excerpt: dict[str, Any] = {
            "paths": {url: kinds for url, item in document["paths"].items() if (kinds := _operations(item))},
            "components": {"schemas": {name: _shorten(schemas[name]) for name in sorted(kept)}},
        }
        text = json.dumps(excerpt, indent=1, sort_keys=True)
        (directory / file_name(GROUP_VERSIONS[module])).write_text(text + "\n")


def _operations(item: dict[str, Any]) -> dict[str, Any]:
    return {verb: {KIND: item[verb][KIND]} for verb in VERBS if KIND in item.get(verb, {})}


def _shorten(schema: dict[str, Any]) -> dict[str, Any]:
    short = dict(schema)
    if "description" in schema:
        short["description"] = sentence(schema["description"])
    if KIND in schema:
        # One kind or many is all that is asked.
        short[KIND] = schema[KIND][:2]
    if "properties" in schema:
        short["properties"] = {name: _shorten(part) for name, part in schema["properties"].items()}
    return short
