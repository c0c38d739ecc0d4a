"""Saves the document parts that the generator reads, as test data."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import model
from documents import GROUP_VERSIONS, GVK_KEY, OPERATIONS, Documents, openapi_file_name

from steersman_cli.codegen.names import first_sentence


def save(found: Documents, directory: Path, only: list[str] | None) -> None:
    """Write one file per document. The modules generated from them equal those from the whole documents."""
    directory.mkdir(parents=True, exist_ok=True)
    for module in only or found:
        document = found[module]
        api = model.build_model({module: document})
        kept = model.reachable_schemas(list(api.locations), api.structs)
        schemas = document["components"]["schemas"]
        excerpt: dict[str, Any] = {
            "paths": {url: kinds for url, item in document["paths"].items() if (kinds := _operations(item))},
            "components": {"schemas": {name: _shorten(schemas[name]) for name in sorted(kept)}},
        }
        text = json.dumps(excerpt, indent=1, sort_keys=True)
        (directory / openapi_file_name(GROUP_VERSIONS[module])).write_text(text + "\n")


def _operations(item: dict[str, Any]) -> dict[str, Any]:
    return {verb: {GVK_KEY: item[verb][GVK_KEY]} for verb in OPERATIONS if GVK_KEY in item.get(verb, {})}


def _shorten(schema: dict[str, Any]) -> dict[str, Any]:
    short = dict(schema)
    if "description" in schema:
        short["description"] = first_sentence(schema["description"])
    if GVK_KEY in schema:
        # The generator distinguishes one kind from several only.
        short[GVK_KEY] = schema[GVK_KEY][:2]
    if "properties" in schema:
        short["properties"] = {name: _shorten(part) for name, part in schema["properties"].items()}
    return short
